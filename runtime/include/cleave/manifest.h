//===- manifest.h - what the host knows about a compiled program ----------===//
//
// A compiled program is a folder: program.bin (commands and buffers, read by
// the executor), kernels, and manifest.json (the other information that a
// person or the training driver needs: names, shapes, roles, where the weight
// bytes are, the configuration). The compiler writes the manifest and
// `cleave-run` reads it, both by this header; docs/manifest.md describes the
// file. No function here throws, so code without exceptions can use them.
//
//===----------------------------------------------------------------------===//
#ifndef CLEAVE_MANIFEST_H
#define CLEAVE_MANIFEST_H

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cleave {

/// Where the bytes of a tensor are. `file` is relative to
/// Manifest::weightsFolder; the bytes are little endian and contiguous.
struct WeightRef {
  std::string file;
  uint64_t offset = 0;
  uint64_t length = 0;
  std::string dtype; ///< of the bytes in the file, e.g. "f32"
};

/// How a tensor without a file gets its initial values.
struct Initializer {
  std::string kind = "zeros"; ///< zeros | constant | normal | uniform
  double a = 0;               ///< constant: value; normal: mean; uniform: low
  double b = 1;               ///< normal: standard deviation; uniform: high
};

/// A tensor of the model that is stored as one slice of a larger tensor of the
/// program.
struct ManifestPart {
  std::string name;
  std::optional<WeightRef> weight;
};

/// A parameter, a buffer (a tensor without a gradient), or a large constant of
/// the model. Its layout in the program (view, sharding) is in the boundary
/// table of program.bin.
struct ManifestTensor {
  std::string name;               ///< as in the model
  std::string buffer;             ///< in the program's boundary table
  std::string kind = "parameter"; ///< parameter | buffer | constant
  std::string dtype = "f32";      ///< in the program
  std::vector<int64_t> shape;     ///< in the model
  bool trainable = true;
  std::optional<WeightRef> weight; ///< absent: `init` gives the values
  Initializer init;
  std::vector<std::string> aliases; ///< other names of the same (tied) tensor
  /// Set if the program stores several tensors of the model as one,
  /// concatenated along dimension 0; each part has shape[1:]. Files hold the
  /// parts under their own names, and `name` is that of the first part. Empty
  /// for other tensors.
  std::vector<ManifestPart> parts;
};

/// A tensor of the optimizer's state.
struct ManifestState {
  std::string buffer;    ///< in the program's boundary table
  std::string parameter; ///< its parameter; empty: of the whole model
  std::string slot;      ///< m, v, velocity, master, ...; step: number of
                         ///< updates, in a buffer that parameters share
  std::string init =
      "zeros"; ///< zeros (or what the action init_state gives) | parameter
};

/// Returns a part of a concatenated tensor (ManifestTensor::parts) as a
/// separate tensor.
ManifestTensor partOf(const ManifestTensor &tensor, size_t index);

/// The elements of an input that the model uses as row indices of a table. They
/// are a rectangular region of the input, with an offset, a size and a stride
/// in each dimension.
struct ManifestLookup {
  std::vector<int64_t> offsets, sizes, strides;
  int64_t rows = 0;
  std::string table; ///< name in the model; empty: none
  /// The number of low bits (a sign included) that the model reads of each
  /// element, because it casts to a narrower type. 0 if it reads all bits.
  int64_t bits = 0;
};

/// The meaning of an input; `spell` gives the word that manifests use.
enum class InputRole {
  Tokens,
  Labels,
  SampleIds,
  AttentionMask,
  PositionIds,
  Input,
  Step,
  LearningRate,
  Seed,
  Microbatch,
};
const char *spell(InputRole role);
/// Returns nullopt if no role is spelled so.
std::optional<InputRole> inputRoleOf(std::string_view text);

/// An input that the host fills before an action runs.
///
/// Per microbatch, with `shape` that of the whole microbatch over all ranks:
/// tokens, labels, sample_ids (global sample index), attention_mask,
/// position_ids, input (any other array). Scalars: step (from 1), lr, seed,
/// microbatch (index in the step).
struct ManifestInput {
  std::string name;   ///< in the model's graph, or the role
  std::string buffer; ///< in the program's boundary table
  InputRole role = InputRole::Input;
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t batchDim = -1;  ///< the dimension of samples, or -1
  std::string source;     ///< ones | zeros | arange | the name of an array
  int64_t vocabulary = 0; ///< rows of the table that it indexes; 0: none
  std::vector<ManifestLookup> lookups = {}; ///< the same for all samples
  bool trainingOnly = false;                ///< "forward" does not read it
  /// Some losses divide by a count over the whole step, such as the number of
  /// all its labels. An input that is read only for such a count holds the
  /// samples of all microbatches of the step, and `shape` is that of the whole
  /// step. Then `stepOf` is the name of the input that holds the same data for
  /// one microbatch. Empty for all other inputs.
  std::string stepOf;
};

/// An output of action "forward", with its name and type in the model's graph.
struct ManifestOutput {
  std::string name;
  std::string buffer; ///< in the program's boundary table
  std::string dtype;
  std::vector<int64_t> shape; ///< of the whole microbatch over all ranks
  int64_t batchDim = -1;
  /// True if the output depends on all samples of one `forward` call together,
  /// so that it is wrong if the call is padded with additional samples.
  bool wholeCall = false;
};

/// Another file of the program's folder, as it was when it was written.
struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
  std::string hash; ///< of its bytes; see digestOf
};

/// A file of weights as it was when the model was compiled.
struct ManifestWeights {
  std::string file; ///< relative to Manifest::weightsFolder, as WeightRef::file
  int64_t bytes = 0;
  int64_t modified = 0; ///< nanoseconds since 1970
  std::string hash;     ///< of its bytes; see digestOfPieces
};

/// A scalar that an action computes for the host.
struct ManifestMetric {
  std::string action; ///< loss_grad | loss | update
  std::string name;   ///< loss | weight | grad_norm | finite | an accumulator's
  std::string buffer; ///< in the program's boundary table
};

/// A router of experts. `loss_grad` counts the pairs of a token and an expert
/// that it chose, over all ranks and, if the program accumulates gradients,
/// over the microbatches of the step so far.
struct ManifestRouter {
  std::string name;
  std::string chosen; ///< buffer, i64 [experts]: pairs of each expert
  std::string taken;  ///< buffer, i64: pairs not dropped; empty: all
};

struct Manifest {
  static constexpr int currentVersion = 2;

  int version = currentVersion;
  std::string model;       ///< names the run's folder, e.g. "gpt2"
  std::string fingerprint; ///< of the unpartitioned model; see fingerprintOf
  /// A digest of the model's graph without weights and sizes. Models with
  /// different digests may still compute the same function. Empty if unknown.
  std::string graph;
  std::string weightsFolder; ///< absolute, or relative to the manifest
  std::string configJson;    ///< the resolved configuration, a JSON object

  std::vector<std::pair<std::string, int64_t>> mesh; ///< slowest axis first
  int64_t ranks = 1;

  int64_t batch = 1; ///< samples per step
  int64_t microbatches = 1;
  int64_t sequence = 0; ///< 0: the model has no tokens
  /// True if gradients and loss accumulate over microbatches. Then the host
  /// zeroes the buffers of the roles `gradient` and `accumulator` before the
  /// first microbatch.
  bool accumulates = false;
  /// True if one run of `loss_grad` computes all microbatches of a step. Before
  /// that run the host writes the inputs of each microbatch k and runs
  /// `load.<k>`, which stores them.
  bool pipelined = false;

  /// For each input that the configuration binds to a file of values: the
  /// digest of that file.
  std::map<std::string, std::string> bound;
  std::vector<std::string> unread;  ///< inputs of the model that nothing reads
  std::vector<std::string> actions; ///< loss_grad, update, loss, forward, ...
  std::vector<ManifestInput> inputs;
  std::vector<ManifestOutput> outputs;
  std::vector<ManifestMetric> metrics;
  std::vector<ManifestRouter> routers;
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestState> state;
  std::vector<ManifestFile> files;      ///< program.bin, kernels.*
  std::vector<ManifestWeights> weights; ///< all files that tensors refer to

  /// Not part of the file. True if the digests of weight files are compared
  /// even if their sizes and modification times match.
  bool verifiesWeights = false;

  int64_t samplesPerMicrobatch() const { return batch / microbatches; }
  bool hasAction(std::string_view action) const;
  bool hasMetric(std::string_view action, std::string_view name) const;
  const ManifestTensor *tensor(std::string_view name) const;
  const ManifestInput *inputWithRole(InputRole role) const;
  /// Returns whether the loss of each microbatch reads the samples of the whole
  /// step.
  bool readsWholeSteps() const;
};

/// The size of an element in bytes, 0 for an unknown type. Types are f64, f32,
/// bf16, f16, i64, i32, i16, i8, u64, u32, u16, u8 and i1 (one byte). Programs
/// compute with a subset (program::DType); files may hold any type and are
/// converted.
size_t elementSize(std::string_view dtype);

/// Returns a digest of the tensors' names, kinds, shapes and aliases. If it is
/// equal for two manifests, checkpoints fit both. It does not depend on the
/// mesh, on the order of tensors, or on their values.
std::string fingerprintOf(const Manifest &manifest);

/// Returns the text of manifest.json with its digest (io/Digest.h). Equal
/// manifests give equal bytes.
std::string manifestToJson(const Manifest &manifest);

/// Reads the text of a manifest. Returns false if the text is damaged or is not
/// a manifest; the message in `error` names the key and what was expected.
bool manifestFromJson(std::string_view text, Manifest &manifest,
                      std::string &error);

/// Reads FOLDER/manifest.json and checks that the other files of the folder are
/// complete and unchanged. A relative weightsFolder becomes relative to the
/// working directory.
bool readManifest(const std::string &folder, Manifest &manifest,
                  std::string &error);

} // namespace cleave

#endif // CLEAVE_MANIFEST_H
