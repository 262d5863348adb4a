// One node of the ONNX graph while it is lowered: its attributes, operands and
// results. Node inherits from Build, so the function that lowers a node can
// call node.reshape, node.broadcast, ... to compute the results.

#ifndef CLEAVE_LIB_IMPORT_ONNX_NODE_H
#define CLEAVE_LIB_IMPORT_ONNX_NODE_H

#include "Build.h"

namespace onnx {
class AttributeProto;
} // namespace onnx

namespace cleave::importer {

class Node : public Build {
public:
  Node(Model &model, const FlatNode &flat, llvm::ArrayRef<Operand> inputs,
       mlir::OpBuilder &builder,
       std::function<llvm::Expected<mlir::Value>(const TensorRef &)> argument);

  Model &model;
  const FlatNode &flat;
  const ::onnx::NodeProto &proto() const { return *flat.proto; }
  llvm::StringRef opType() const;
  int64_t opset() const { return flat.opset(); }

  // The operands. An empty name stands for an absent operand.
  size_t numInputs() const { return inputs.size(); }
  bool has(size_t index) const;
  const Operand &input(size_t index) const {
    static const Operand absent;
    return index < inputs.size() ? inputs[index] : absent;
  }
  size_t numOutputs() const;
  bool wants(size_t index) const;
  void set(size_t index, Operand operand);

  /// The graph that is the attribute `name`, or null.
  const Subgraph *subgraph(llvm::StringRef name) const;
  /// Lowers the nodes of a graph at the builder's insertion point. `arguments`
  /// are the values of the graph's inputs. Returns the values of its outputs.
  /// An empty error means that a node of the graph was refused, which is
  /// already recorded.
  std::function<llvm::Expected<llvm::SmallVector<Operand>>(
      const Subgraph &graph, llvm::ArrayRef<Operand> arguments)>
      lowerGraph;

  llvm::SmallVector<Operand> results;
  /// True if the node is a slice of an initializer whose begin or end is
  /// outside of the tensor.
  bool isCutShort = false;

  // Attributes, with their default.
  const ::onnx::AttributeProto *attribute(llvm::StringRef name) const;
  int64_t intAttr(llvm::StringRef name, int64_t otherwise) const;
  double floatAttr(llvm::StringRef name, double otherwise) const;
  std::string stringAttr(llvm::StringRef name, llvm::StringRef otherwise) const;
  std::optional<Shape> intsAttr(llvm::StringRef name) const;

  /// Returns the integers of input `index`, such as axes or a shape, which must
  /// be known during import. `what` names the input in messages.
  llvm::Expected<Shape> knownInts(size_t index, llvm::StringRef what) const;
  /// Returns the axes, from an attribute (before opset `since`) or from input
  /// `index`; nullopt if neither is given.
  llvm::Expected<std::optional<Shape>> axes(int64_t since, size_t index) const;
  /// An axis in [0, rank).
  static llvm::Expected<int64_t> axisOf(int64_t axis, int64_t rank);
  /// Distinct axes in increasing order.
  static llvm::Expected<Shape> axesOf(llvm::ArrayRef<int64_t> axes,
                                      int64_t rank);
  /// Refuses an attribute whose value is not the supported one.
  llvm::Error expectAttr(llvm::StringRef name, int64_t supported,
                         int64_t otherwise) const;

  /// Reads the elements of a tensor that is an attribute of a node, or of a
  /// small tensor of the ONNX file.
  static llvm::Expected<HostTensor> contents(Model &model,
                                             const TensorRef &tensor);

private:
  llvm::SmallVector<Operand> inputs;
};

/// The end of an error message about sizes that do not match, if one of them is
/// the size of a table of positions.
inline constexpr llvm::StringLiteral kLongSequence =
    "; dims.sequence may be longer than a table of positions";

using LowerFunction = llvm::Error (*)(Node &);

} // namespace cleave::importer

#endif
