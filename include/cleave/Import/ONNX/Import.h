// Imports an ONNX file into the nn dialect. The result is a module with one
// function
//
//     @forward(parameters..., constants..., inputs...) -> (outputs...)
//
// whose arguments carry `nn.name`, `nn.role` and, for tensors of the file,
// `nn.data`: where their bytes are stored. Bytes of weights are not read.

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

/// On the module, a list of names: inputs of the graph that no node reads, and
/// that the function lacks.
inline constexpr llvm::StringLiteral kUnreadAttr = "nn.unread_inputs";
/// On the module: a digest of what the graph computes, independent of its
/// weights and sizes.
inline constexpr llvm::StringLiteral kGraphDigestAttr = "nn.graph_digest";
/// The prefix of such a digest; one with another prefix cannot be compared.
inline const std::string kGraphDigestVersion = "1:";

/// The source of a graph input.
enum class InputBinding { Data, Ones, Zeros, Arange };

/// A value that an input is bound to, the same for each sample and step.
struct BoundInput {
  std::string text; ///< as given: a number, or the name of a file
  bool isNumber = false;
  double number = 0;
  std::optional<int64_t> integer; ///< if the number is one
  std::string dtype;              ///< of the array: "f32", as in Array
  std::vector<int64_t> shape;
  std::string bytes; ///< little-endian, row-major
};

/// Two initializers that hold one parameter. With `transposed`, `copy` is the
/// matrix transpose of `primary`.
struct Tie {
  std::string primary, copy;
  bool transposed = false;
};

/// Limits of the work that a file may cause: a few bytes can cause any amount.
/// The configuration refuses zero or less.
struct ImportLimits {
  /// Elements of constants that evaluation during import stores, in total.
  int64_t evaluatedElements = int64_t(1) << 27;
  /// Nodes that calls of functions expand to.
  int64_t inlinedNodes = 200'000;
};

struct ImportOptions {
  /// Sizes of symbolic dimensions. `batch` (the microbatch) and `sequence` also
  /// name dimensions 0 and 1 of the tokens input.
  std::map<std::string, int64_t> dims;
  /// Inputs that are not data; names that the graph lacks are ignored.
  std::map<std::string, InputBinding> inputs;
  /// Inputs that are bound to constants; each must be an input of the graph.
  std::map<std::string, BoundInput> bound;
  /// The number of calls that share a batch; `dims.batch` is the size of one.
  int64_t microbatches = 1;
  /// The tokens input; empty: the only integer [batch, sequence] input.
  std::string tokens;
  /// The graph input that is the labels, if there is one.
  std::string labels;
  /// Ties of initializers in addition to those in the file.
  std::vector<Tie> ties;
  /// Initializers that are parameters although their elements or uses look like
  /// those of constants; other names are ignored.
  std::set<std::string> trainable;
  /// Patterns of initializers whose uses become separate parameters, tied to
  /// nothing. One that matches none is an error.
  std::vector<std::string> untie;
  /// Whether a parameter is frozen, so that it needs no messages.
  std::function<bool(llvm::StringRef)> isFrozen;
  /// Vectors that no gradient reaches, such as a bias that affects only what
  /// TopK chooses, are buffers instead of constants: training may change them.
  bool keepBuffers = false;
  ImportLimits limits;
  /// Outputs to keep; empty: all.
  std::vector<std::string> outputs;
  /// Whether missing bytes of weights are an error rather than a remark.
  bool requireData = false;
};

/// Reads the model. On failure a diagnostic says why, one for the whole file,
/// and the result is null.
mlir::OwningOpRef<mlir::ModuleOp> importOnnx(llvm::StringRef path,
                                             const ImportOptions &options,
                                             mlir::MLIRContext &context);

/// A tensor as the file declares it; sizes are numbers, expressions of symbols,
/// or "?". `note`: why a constant is one, or what a parameter is tied to.
struct TensorSummary {
  std::string name, type;
  std::vector<std::string> shape;
  std::string note;
};

/// A symbol of the inputs' shapes (empty: a dimension without name) and where
/// it occurs first.
struct DimSummary {
  std::string name, where;
};

struct FileSummary {
  std::vector<TensorSummary> inputs, outputs, parameters;
  /// Float tensors that are never trained. Tensors of one element are listed
  /// only if they are named like parameters.
  std::vector<TensorSummary> constants;
  std::vector<DimSummary> dims;
  /// Operators that are not supported and the version of the operators, as
  /// importOnnx reports them; "": all are supported.
  std::string unsupported;
  int64_t nodes = 0;    ///< model-local functions inlined
  int64_t elements = 0; ///< of all parameters
};

/// Summarises the declarations of a file; no dimension or input need be bound.
/// Emits errors for a file that is no model.
mlir::FailureOr<FileSummary> summarizeOnnx(llvm::StringRef path,
                                           mlir::MLIRContext &context,
                                           const ImportOptions &options);

/// Whether a dimension of a summary is a name, not a number, an expression of
/// names, or "?".
bool isDimensionName(llvm::StringRef text);

/// The shapes of the initializers by name, including copies due to train.untie
/// (options.untie). Emits errors for a file that is no model.
mlir::FailureOr<std::map<std::string, std::vector<int64_t>>>
initializersOf(llvm::StringRef path, mlir::MLIRContext &context,
               const ImportOptions &options);

/// The files beside the model that hold bytes of its initializers, relative to
/// its folder, sorted. They need not exist. Emits errors for a file that is no
/// model.
mlir::FailureOr<std::vector<std::string>>
externalFilesOf(llvm::StringRef path, mlir::MLIRContext &context,
                const ImportOptions &options);

/// Finds embedding tables that output heads store a second time, transposed or
/// not: the only case in which equal elements are a tie. Reads bytes of
/// weights. Emits an error if two tables match and no tie in `options` says
/// which is meant; skips initializers that these ties name.
mlir::FailureOr<std::vector<Tie>>
findTiesByContent(llvm::StringRef path, mlir::MLIRContext &context,
                  const ImportOptions &options);

/// The ties that `declared` (pairs of initializer names) stand for.
mlir::FailureOr<std::vector<Tie>>
declaredTies(llvm::StringRef path,
             const std::vector<std::vector<std::string>> &declared,
             mlir::MLIRContext &context, const ImportOptions &options);

/// The passes that follow the import, up to compact nn IR.
void buildImportPipeline(mlir::OpPassManager &manager);
void registerImportPipeline();

} // namespace cleave

#endif
