// The import of one file: binds dimensions, lowers nodes in order, and builds
// the function.

#ifndef CLEAVE_LIB_IMPORT_ONNX_IMPORTER_H
#define CLEAVE_LIB_IMPORT_ONNX_IMPORTER_H

#include "Classify.h"
#include "Dims.h"
#include "EvaluatedNodes.h"
#include "Node.h"
#include "Problems.h"

#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/Import/ONNX/Import.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>
#include <set>

namespace onnx {
class ValueInfoProto;
} // namespace onnx

namespace cleave::importer {

/// The declared element type.
Element elementOf(const ::onnx::ValueInfoProto &value);

class Node;

class Importer {
public:
  Importer(Model &model, const ImportOptions &options,
           mlir::MLIRContext &context)
      : model(model), options(options), context(context), builder(&context) {}

  mlir::OwningOpRef<mlir::ModuleOp> run();

private:
  struct Argument {
    mlir::Value value;
    std::string name;
    nn::Role role;
    const TensorRef *tensor = nullptr;
    std::optional<int64_t> batchDim;
  };

  // In order.
  std::string spellInputs() const;
  bool looksUpATable(const std::string &input) const;
  mlir::LogicalResult findInputs();
  mlir::LogicalResult findOutputs();
  mlir::LogicalResult bindDims();
  /// Warns of tensors that may be several parameters: several nodes read such a
  /// tensor, each as if it were its own. The exporter merges parameters that
  /// are equal.
  void warnOfMerged();
  /// Warns of tensors that a pattern of train.untie matches but that have only
  /// one use and so cannot be split.
  void warnOfWholes();
  /// Warns of trained tensors that the exporter computed from a parameter, if
  /// this parameter or another tensor computed from it is trained, too. They
  /// are trained separately, since the ONNX file has no operation between them.
  void warnOfFolded();
  /// Warns of parameters that look like buffers.
  void warnOfBuffers();
  /// Warns of tensors with one element that could be either parameters or
  /// literal numbers of the model's source code.
  void warnOfScalars();
  /// Warns of tensors that may be misclassified, since the ONNX file does not
  /// say whether they are trained: tensors that look like constants although a
  /// module may train them, and parameters that look like a mask or a table of
  /// positions, which the model may have frozen.
  void warnOfRules();
  /// Returns those tensors of `names` that are trained.
  std::vector<std::string> trained(std::vector<std::string> names);
  void bindInputs();
  void warnOfUnread();
  mlir::LogicalResult bindTies();
  void lowerNodes();
  void lowerNode(const FlatNode &node);
  /// Lowers a graph that is an attribute of a node; see Node::lowerGraph.
  llvm::Expected<llvm::SmallVector<Operand>>
  lowerGraph(const Subgraph &graph, llvm::ArrayRef<Operand> arguments);
  /// Records the results of a lowered node. If the node cannot compute a result
  /// that another node reads, this is recorded as a problem.
  void storeResults(const FlatNode &flat, const Node &node);
  bool isLongSequence(const FlatNode &flat,
                      llvm::ArrayRef<Operand> operands) const;
  mlir::LogicalResult finish();
  /// Returns the value of a graph output. If the output cannot be a value of
  /// the IR, records a problem and returns null.
  mlir::Value resultOf(const std::string &name);
  /// Emits an error or a warning if bytes of weights are missing.
  mlir::LogicalResult checkBytes();
  /// Stores the names of constants that look like parameters in an attribute.
  void noteConstants();
  /// Sorts the arguments into their final order, and returns their attributes.
  llvm::SmallVector<mlir::DictionaryAttr> orderArguments();
  std::string graphDigest();

  mlir::InFlightDiagnostic error() { return mlir::emitError(model.location()); }
  llvm::Expected<Shape> shapeOf(const ::onnx::ValueInfoProto &input);
  /// Binds the first dimension of each input, if it has a symbolic size that no
  /// later dimension has, to dims.batch.
  mlir::LogicalResult bindBatch(const std::set<std::string> &symbols);
  mlir::LogicalResult bindSymbol(const std::string &symbol, llvm::StringRef key,
                                 const std::string &input, int index);
  /// Returns the array or number to which the configuration binds an input, as
  /// a tensor of type `type` and shape `shape`.
  llvm::Expected<HostTensor> boundTensor(const BoundInput &bound, Element type,
                                         llvm::ArrayRef<int64_t> shape) const;
  /// The symbol of the batch dimension; empty if the ONNX file has none.
  std::string batchSymbol() const;
  /// Returns the dimension of this symbol if there is exactly one.
  std::optional<int64_t> batchDimOf(const ::onnx::ValueInfoProto &value) const;
  bool hasBatchAt(mlir::Value value, int64_t dim) const;
  /// Returns the operand for the name of a value. Returns null, with the reason
  /// in `why`, if the value does not exist or the node that computes it failed.
  const Operand *lookUp(const std::string &name, std::string &why);
  llvm::Expected<Operand> fromFile(const TensorRef &tensor);
  /// Returns whether a constant is stored like a parameter (a buffer), because
  /// options.keepBuffers asks for it.
  bool isBuffer(const TensorRef &tensor) const;
  /// Returns whether the ONNX file says that the tensor is a module's buffer,
  /// which is stored like a parameter but not trained.
  bool isModuleBuffer(const TensorRef &tensor) const;
  llvm::Expected<mlir::Value> argumentOf(const TensorRef &tensor);
  mlir::Value addArgument(mlir::RankedTensorType type, std::string name,
                          nn::Role role, const TensorRef *tensor);
  mlir::DictionaryAttr attributesOf(const Argument &argument);
  bool standIn(const std::string &name);
  std::string verifyFrom(mlir::Operation *op);

  Model &model;
  const ImportOptions &options;
  mlir::MLIRContext &context;
  mlir::OpBuilder builder;

  std::vector<const ::onnx::ValueInfoProto *> inputs; // without initializers
  std::vector<std::string> outputs;
  std::string tokens;
  Bindings dims;
  Constants constants;
  std::set<std::string> vectors; // see nn.vector
  std::set<std::string> needed;
  std::map<std::string, const Tie *> tieOfCopy;
  std::map<std::string, std::vector<const Tie *>> tiesOf;

  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp function;
  std::map<std::string, Operand> values;
  EvaluatedNodes evaluated;
  /// The number of loop bodies and branches around the current node. Values
  /// that are computed in them cannot be used outside.
  int graphDepth = 0;
  std::set<std::string> failed;
  /// Names of values that may be shorter than the token sequence; an error
  /// about their sizes mentions this cause. They are tables of position
  /// encodings, slices that are shorter than requested because the sliced
  /// tensor ends earlier, and values that are computed from such a table or
  /// slice by only moving its elements.
  std::set<std::string> tables;
  std::vector<std::string> scalars;
  Problems problems;
  std::vector<Argument> arguments;
  std::map<std::string, size_t> argumentIndex;
};

} // namespace cleave::importer

#endif
