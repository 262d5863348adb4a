// Imports an ONNX file into the nn dialect. The result is a module with one
// function
//
//     @forward(parameters..., constants..., inputs...) -> (outputs...)
//
// whose arguments have the attributes `nn.name`, `nn.role` and, for tensors
// that the ONNX file contains, `nn.data`, which states where their bytes are
// stored. The bytes of weights are not read.

#ifndef CLEAVE_IMPORT_ONNX_IMPORT_H
#define CLEAVE_IMPORT_ONNX_IMPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace mlir {
class OpPassManager;
}

namespace cleave {

/// A module attribute with the names of graph inputs that no node reads. The
/// function has no arguments for these inputs.
inline constexpr llvm::StringLiteral kUnreadAttr = "nn.unread_inputs";
/// A module attribute with a digest of the graph's computation. The digest does
/// not depend on the values of weights or on the sizes of dimensions.
inline constexpr llvm::StringLiteral kGraphDigestAttr = "nn.graph_digest";
/// The prefix of a graph digest. Digests with different prefixes cannot be
/// compared.
inline const std::string kGraphDigestVersion = "1:";

/// The source of a graph input.
enum class InputBinding { Data, Ones, Zeros, Arange };

/// A constant to which a graph input is bound; the input has this value for all
/// samples and steps.
struct BoundInput {
  std::string text; ///< as the user wrote it: a number, or the path of a .npy
  bool isNumber = false;
  double number = 0;
  std::optional<int64_t> integer; ///< `number`, if it is an integer
  std::string dtype;              ///< element type of the array, such as "f32"
  std::vector<int64_t> shape;
  std::string bytes; ///< little-endian, row-major
};

/// Two initializers that represent the same parameter. With `transposed`,
/// `copy` is the matrix transpose of `primary`.
struct Tie {
  std::string primary, copy;
  bool transposed = false;
};

/// Limits of the work during import. Without limits, a small ONNX file could
/// cause any amount of work, for example by constants that are evaluated or
/// functions that are expanded. The configuration only accepts positive limits.
struct ImportLimits {
  /// The maximum total number of elements of constants that are evaluated
  /// during import.
  int64_t evaluatedElements = int64_t(1) << 27;
  /// The maximum number of nodes into which function calls expand.
  int64_t inlinedNodes = 200'000;
};

struct ImportOptions {
  /// Sizes of symbolic dimensions by name. The names `batch` (the number of
  /// samples in a microbatch) and `sequence` also set dimensions 0 and 1 of the
  /// tokens input.
  std::map<std::string, int64_t> dims;
  /// Inputs that are generated instead of read from data. Names that are not
  /// inputs of the graph are ignored.
  std::map<std::string, InputBinding> inputs;
  /// Inputs that are bound to constants; each must be an input of the graph.
  std::map<std::string, BoundInput> bound;
  /// The number of microbatches in a batch. The imported function processes one
  /// microbatch per call; `dims.batch` is its number of samples.
  int64_t microbatches = 1;
  /// The name of the graph input that has the token ids. If empty, it is the
  /// only integer input of shape [batch, sequence].
  std::string tokens;
  /// The name of the graph input that has the labels; empty if labels are not a
  /// graph input.
  std::string labels;
  /// Ties in addition to those that the ONNX file itself expresses. A tie makes
  /// two initializers the same parameter.
  std::vector<Tie> ties;
  /// Initializers that are parameters although their elements or uses look like
  /// those of constants; other names are ignored.
  std::set<std::string> trainable;
  /// Patterns of initializer names. Each use of a matching initializer becomes
  /// a separate, untied parameter. A pattern without a match is an error.
  std::vector<std::string> untie;
  /// Returns whether the parameter of this name is frozen, that is, not
  /// trained. The import reports no remarks on frozen parameters.
  std::function<bool(llvm::StringRef)> isFrozen;
  /// If true, vectors that get no gradient become buffers instead of constants,
  /// so that training may change them. An example is a router's bias that only
  /// affects which experts TopK chooses.
  bool keepBuffers = false;
  ImportLimits limits;
  /// The names of the graph outputs to keep; if empty, all outputs are kept.
  std::vector<std::string> outputs;
  /// Whether a weight whose bytes are missing causes an error (true) or only a
  /// warning (false).
  bool requireData = false;
};

/// Imports the model. On failure, reports one diagnostic for the whole file and
/// returns null.
mlir::OwningOpRef<mlir::ModuleOp> importOnnx(llvm::StringRef path,
                                             const ImportOptions &options,
                                             mlir::MLIRContext &context);

/// A tensor as the ONNX file declares it. Each size in `shape` is a number, an
/// expression of symbols, or "?". `note` states why a constant is not a
/// parameter, or what a parameter is tied to, or how many nodes read it.
struct TensorSummary {
  std::string name, type;
  std::vector<std::string> shape;
  std::string note;
};

/// A symbolic dimension in the shapes of the inputs, and where it occurs first,
/// such as "dimension 0 of ids". An empty `name` means that the ONNX file gives
/// the dimension no name.
struct DimSummary {
  std::string name, where;
};

struct FileSummary {
  std::vector<TensorSummary> inputs, outputs, parameters;
  /// Float initializers that are never trained. Initializers of one element are
  /// listed only if they are named like parameters.
  std::vector<TensorSummary> constants;
  std::vector<DimSummary> dims;
  /// The reasons why the model is not supported (operators, operator set
  /// versions, initializers), as text in the form of importOnnx's error
  /// message; empty if there are none.
  std::string unsupported;
  int64_t nodes = 0;    ///< number of nodes, model-local functions inlined
  int64_t elements = 0; ///< number of elements of all parameters together
};

/// Summarizes the declarations of an ONNX file. `options` need not bind the
/// symbolic dimensions or the inputs. Emits an error if the file is not a
/// model.
mlir::FailureOr<FileSummary> summarizeOnnx(llvm::StringRef path,
                                           mlir::MLIRContext &context,
                                           const ImportOptions &options);

/// Returns whether `text`, a size in TensorSummary::shape, is a plain name of a
/// dimension, and not a number, an expression of names, or "?".
bool isDimensionName(llvm::StringRef text);

/// Returns the shapes of the initializers by name, including the copies that
/// `options.untie` (train.untie) creates. Emits an error if the file is not a
/// model.
mlir::FailureOr<std::map<std::string, std::vector<int64_t>>>
initializersOf(llvm::StringRef path, mlir::MLIRContext &context,
               const ImportOptions &options);

/// Returns the files that hold the external data of the model's initializers,
/// as sorted paths relative to the model's folder. These files need not exist.
/// Emits an error if the file at `path` is not a model.
mlir::FailureOr<std::vector<std::string>>
externalFilesOf(llvm::StringRef path, mlir::MLIRContext &context,
                const ImportOptions &options);

/// Finds matrices of output heads that are copies of an embedding table,
/// transposed or not, and returns a tie for each. This is the only case in
/// which equal elements are treated as a tie. Reads the bytes of weights. Skips
/// matrices that `options.ties` names. Emits an error if another matrix matches
/// several tables, because it is then not clear to which one it is tied.
mlir::FailureOr<std::vector<Tie>>
findTiesByContent(llvm::StringRef path, mlir::MLIRContext &context,
                  const ImportOptions &options);

/// Converts `declared` (pairs of initializer names) to ties. Emits an error if
/// an initializer does not exist or if the shapes of a pair do not match.
mlir::FailureOr<std::vector<Tie>>
declaredTies(llvm::StringRef path,
             const std::vector<std::vector<std::string>> &declared,
             mlir::MLIRContext &context, const ImportOptions &options);

/// Adds the passes that follow the import. They remove reshapes that only serve
/// the exporter, replace spelled-out attention, norms and experts by single nn
/// operations, simplify the result, and mark the batch dimensions.
void buildImportPipeline(mlir::OpPassManager &manager);
void registerImportPipeline();

} // namespace cleave

#endif
