// From an ONNX file to the nn dialect. The result is a module with one function
//
//     @forward(parameters..., constants..., inputs...) -> (outputs...)
//
// whose arguments carry `nn.name`, `nn.role` and, for tensors of the file,
// `nn.data`: where their bytes lie. Bytes of weights are not read.

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

/// Of the module: [name]: inputs of the graph that no node reads, and that the
/// function lacks.
inline constexpr llvm::StringLiteral kUnreadAttr = "nn.unread_inputs";
/// Of the module: what the graph computes, whatever its weights and sizes are.
inline constexpr llvm::StringLiteral kGraphDigestAttr = "nn.graph_digest";
/// Begins such a digest: what is made otherwise says nothing.
inline const std::string kGraphDigestVersion = "1:";

/// What stands for a graph input.
enum class InputBinding { Data, Ones, Zeros, Arange };

/// What an input is bound to: the same for each sample and step.
struct BoundInput {
  std::string text; ///< as given: a number, or the name of a file
  bool isNumber = false;
  double number = 0;
  std::optional<int64_t> integer; ///< where the number is one
  std::string dtype;              ///< of the array: "f32", as in Array
  std::vector<int64_t> shape;
  std::string bytes; ///< little-endian, row-major
};

/// Two initializers that are one parameter. With `transposed`, `copy` is the
/// matrix transpose of `primary`.
struct Tie {
  std::string primary, copy;
  bool transposed = false;
};

/// What a file may make the importer do: a few bytes can stand for any amount
/// of work. Zero or less is refused by the configuration.
struct ImportLimits {
  /// Elements of constants that evaluation stores, in all.
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
  /// Inputs that are constants; each is one of the graph.
  std::map<std::string, BoundInput> bound;
  /// How many calls see a batch; `dims.batch` is that of one.
  int64_t microbatches = 1;
  /// The tokens input; empty: the only integer [batch, sequence] input.
  std::string tokens;
  /// The graph input that is the labels, if there is one.
  std::string labels;
  /// Initializers that are tied beyond what the file says.
  std::vector<Tie> ties;
  /// Initializers that are parameters though their elements or uses speak for
  /// constants; other names are ignored.
  std::set<std::string> trainable;
  /// Patterns of initializers of which each use is a parameter of its own; they
  /// are tied to nothing. One that matches none is an error.
  std::vector<std::string> untie;
  /// Whether a parameter is not trained, so that nothing need be said of it.
  std::function<bool(llvm::StringRef)> isFrozen;
  /// Vectors that no gradient reaches, such as a bias that moves what TopK
  /// chooses, are buffers instead of constants: training may move them.
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
  /// Float tensors that are never trained; of those of one element only the
  /// ones that are named like parameters.
  std::vector<TensorSummary> constants;
  std::vector<DimSummary> dims;
  /// Operators that are not supported and the version of the operators, as
  /// importOnnx reports them; "": all are.
  std::string unsupported;
  int64_t nodes = 0;    ///< model-local functions inlined
  int64_t elements = 0; ///< of all parameters
};

/// What a file declares; nothing need be bound. Emits errors for a file that is
/// no model.
mlir::FailureOr<FileSummary> summarizeOnnx(llvm::StringRef path,
                                           mlir::MLIRContext &context,
                                           const ImportOptions &options);

/// Whether a dimension of a summary is a name, not a number, an expression of
/// names, or "?".
bool isDimensionName(llvm::StringRef text);

/// The shapes of the initializers, by name, those that train.untie made
/// (options.untie) among them. Emits errors for a file that is no model.
mlir::FailureOr<std::map<std::string, std::vector<int64_t>>>
initializersOf(llvm::StringRef path, mlir::MLIRContext &context,
               const ImportOptions &options);

/// The files beside the model that hold bytes of its initializers, relative to
/// its folder, sorted. They need not exist. Emits errors for a file that is no
/// model.
mlir::FailureOr<std::vector<std::string>>
externalFilesOf(llvm::StringRef path, mlir::MLIRContext &context,
                const ImportOptions &options);

/// Finds the tables of embeddings that heads hold a second time, transposed or
/// not: the one case in which equal elements are a tie. Reads bytes of weights.
/// Emits an error where two tables could be meant, and no tie in `options` says
/// which; leaves out what these ties name.
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
