//===- manifest.h - what the host knows about a compiled program ----------===//
//
// A compiled program is a folder: program.bin (commands and buffers, read by
// the executor), kernels, and manifest.json (everything around the program that
// a person or the training driver needs: names, shapes, roles, where the weight
// bytes are, the configuration). The compiler writes the manifest and
// `cleave-run` reads it, both through this header; docs/manifest.md describes
// the file. Nothing here throws, so that code without exceptions can use it.
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

/// Initial values of a tensor that no file holds.
struct Initializer {
  std::string kind = "zeros"; ///< zeros | constant | normal | uniform
  double a = 0;               ///< constant: value; normal: mean; uniform: low
  double b = 1;               ///< normal: standard deviation; uniform: high
};

/// A tensor of the model that is one slice of a larger tensor of the program.
struct ManifestPart {
  std::string name;
  std::optional<WeightRef> weight;
};

/// A parameter, a non-gradient buffer, or a large constant of the model. How
/// the program sees it (view, sharding) is in the boundary table of
/// program.bin.
struct ManifestTensor {
  std::string name;               ///< as in the model
  std::string buffer;             ///< in the program's boundary table
  std::string kind = "parameter"; ///< parameter | buffer | constant
  std::string dtype = "f32";      ///< in the program
  std::vector<int64_t> shape;     ///< in the model
  bool trainable = true;
  std::optional<WeightRef> weight; ///< absent: `init` says what it starts from
  Initializer init;
  std::vector<std::string> aliases; ///< other names of the same (tied) tensor
  /// The tensors of the model that are one after the other along dimension 0,
  /// each of shape[1:]; empty: this is one of them. Files hold the parts, under
  /// their names; `name` is that of the first.
  std::vector<ManifestPart> parts;
};

/// A piece of optimizer state.
struct ManifestState {
  std::string buffer;    ///< in the program's boundary table
  std::string parameter; ///< name of the tensor; empty: of the whole model
  std::string slot;      ///< m, v, velocity, master, ...; step: its updates,
                         ///< in a buffer that several parameters share
  std::string init =
      "zeros"; ///< zeros (or what the action init_state gives) | parameter
};

/// The tensor of the model that is part `index`.
ManifestTensor partOf(const ManifestTensor &tensor, size_t index);

/// A part of an input, by every dimension of its shape, whose elements are
/// indices of a table.
struct ManifestLookup {
  std::vector<int64_t> offsets, sizes, strides;
  int64_t rows = 0;
  std::string table; ///< name in the model; empty: none
  /// The model reads this many of an element's lowest bits, with their sign, as
  /// a cast to a narrower type does; 0: all.
  int64_t bits = 0;
};

/// What an input holds; a manifest spells it as `spell` does.
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
/// None where no role is spelled so.
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
  int64_t batchDim = -1;  ///< the dimension that counts samples, or -1
  std::string source;     ///< ones | zeros | arange | the name of an array
  int64_t vocabulary = 0; ///< rows of the table that it indexes; 0: none
  std::vector<ManifestLookup> lookups = {}; ///< of its parts; all samples alike
  bool trainingOnly = false;                ///< no input of action "forward"
  /// The input of which this holds the samples of the whole step, `shape` being
  /// that of all microbatches; empty: it holds those of a microbatch. What a
  /// loss divides by is counted from it.
  std::string stepOf;
};

/// An output of action "forward", with its name and type in the model's graph.
struct ManifestOutput {
  std::string name;
  std::string buffer; ///< in the program's boundary table
  std::string dtype;
  std::vector<int64_t> shape; ///< of the whole microbatch over all ranks
  int64_t batchDim = -1;
  /// Computed from all samples of a call together: right only for exactly as
  /// many as a call takes.
  bool wholeCall = false;
};

/// Another file of the folder, as it was written.
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

/// A scalar that an action leaves for the host.
struct ManifestMetric {
  std::string action; ///< loss_grad | loss | update
  std::string name;   ///< loss | weight | grad_norm | finite | an accumulator's
  std::string buffer; ///< in the program's boundary table
};

/// A router whose slots `loss_grad` counts, over all ranks and, where the
/// program accumulates, the microbatches of the step so far.
struct ManifestRouter {
  std::string name;
  std::string chosen; ///< buffer of i64 [experts]: slots that chose each
  std::string taken;  ///< i64: slots that were not dropped; empty: all
};

struct Manifest {
  static constexpr int currentVersion = 2;

  int version = currentVersion;
  std::string model;       ///< names the run's folder, e.g. "gpt2"
  std::string fingerprint; ///< of the unpartitioned model; see fingerprintOf
  /// Of what the model computes, whatever its weights and sizes; two that
  /// differ may compute the same. Empty: not known.
  std::string graph;
  std::string weightsFolder; ///< absolute, or relative to the manifest
  std::string configJson;    ///< the resolved configuration, a JSON object

  std::vector<std::pair<std::string, int64_t>> mesh; ///< slowest axis first
  int64_t ranks = 1;

  int64_t batch = 1; ///< samples per step
  int64_t microbatches = 1;
  int64_t sequence = 0; ///< 0: the model has no tokens
  /// Gradients and loss accumulate over microbatches, so the host zeroes the
  /// buffers of roles `gradient` and `accumulator` before the first.
  bool accumulates = false;
  /// One run of `loss_grad` takes all microbatches of a step: the host feeds
  /// microbatch k and runs `load.<k>`, which keeps it, for every k before it.
  bool pipelined = false;

  /// Digests of the files that inputs are bound to, by input.
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
  std::vector<ManifestWeights> weights; ///< all that tensors refer to

  /// Not of the file: whether digests of weights are checked where size and
  /// time are as they were, too.
  bool verifiesWeights = false;

  int64_t samplesPerMicrobatch() const { return batch / microbatches; }
  bool hasAction(std::string_view action) const;
  bool hasMetric(std::string_view action, std::string_view name) const;
  const ManifestTensor *tensor(std::string_view name) const;
  const ManifestInput *inputWithRole(InputRole role) const;
  /// Whether a loss reads the samples of the whole step in each microbatch.
  bool readsWholeSteps() const;
};

/// Bytes of one element, 0 for an unknown type. Types are spelled f64, f32,
/// bf16, f16, i64, i32, i16, i8, u64, u32, u16, u8, i1 (one byte). A program
/// computes with fewer (program::DType); files may hold any, bytes are
/// converted.
size_t elementSize(std::string_view dtype);

/// A number that two manifests share if their tensors have the same names,
/// kinds, shapes and aliases: what a checkpoint needs to fit. Independent of
/// the mesh, the order of the tensors and their values.
std::string fingerprintOf(const Manifest &manifest);

/// The text of manifest.json, sealed (io/Digest.h); the same manifest always
/// gives the same bytes.
std::string manifestToJson(const Manifest &manifest);

/// Reads the text of a manifest. False with a message in `error` if it is not
/// one, to the byte; the message names the key and what was expected.
bool manifestFromJson(std::string_view text, Manifest &manifest,
                      std::string &error);

/// Reads and checks FOLDER/manifest.json, and that the other files of the
/// folder are whole and as they were written; a relative weightsFolder is made
/// relative to the working directory.
bool readManifest(const std::string &folder, Manifest &manifest,
                  std::string &error);

} // namespace cleave

#endif // CLEAVE_MANIFEST_H
