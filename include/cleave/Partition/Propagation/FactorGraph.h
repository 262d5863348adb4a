//===- FactorGraph.h - values, rules and layouts of a module ----*- C++ -*-===//
//
// A graph of the tensors of a module, which exists in addition to the IR.
// Propagation computes shardings on it, and strategies use it to find the
// dimensions that sharding rules connect. Each tensor of each function is a
// node, and so is each result of a function. An edge is an operation with its
// sharding rule, or a tie between two tensors that must have the same sharding,
// such as arguments of two functions with the same name.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_PARTITION_PROPAGATION_FACTORGRAPH_H
#define CLEAVE_PARTITION_PROPAGATION_FACTORGRAPH_H

#include "cleave/Interfaces/LocalPlan.h"
#include "cleave/Partition/Utils/PortTable.h"
#include "llvm/ADT/DenseMap.h"

namespace cleave::partition {

using NodeId = unsigned;
inline constexpr NodeId kNoNode = ~0u;

/// A node of the graph: a tensor of the module.
struct Node {
  mlir::Value value; // null for the result of a function
  mlir::RankedTensorType type;
  Port port; // the function's argument or result, if `isPort` is true
  bool isPort = false;
  /// True for a value of an operation without operands. The operation is
  /// emitted again for each layout that a user of the value needs, so its users
  /// need not agree on a layout.
  bool isGenerator = false;
  /// The sharding that an attribute or a constraint asks for.
  dist::ShardingAttr requested;
};

/// An edge of the graph: an operation, or a tie between two tensors that must
/// have the same sharding.
struct Edge {
  mlir::Operation *op = nullptr; // null for ties
  ShardingRule rule;
  llvm::SmallVector<NodeId, 4> operands, results;
};

class FactorGraph {
public:
  /// Builds the graph of a module. An operation without a sharding rule gets
  /// one that replicates all its tensors, and a remark. Fails if an operation
  /// other than scf.for and scf.if has regions and no sharding rule, and for
  /// tensors of dynamic shape.
  static mlir::FailureOr<FactorGraph> of(mlir::ModuleOp module);

  llvm::SmallVector<Node, 0> nodes;
  llvm::SmallVector<Edge, 0> edges;
  /// For each node, the edges that connect the node with other nodes.
  llvm::SmallVector<llvm::SmallVector<unsigned, 4>, 0> edgesOf;

  NodeId nodeOf(mlir::Value value) const {
    auto it = ids.find(value);
    return it == ids.end() ? kNoNode : it->second;
  }

private:
  NodeId addNode(Node node);
  void addEdge(Edge edge);
  void addTie(NodeId a, NodeId b);
  /// Adds a node for a tensor and returns it; returns kNoNode for other values,
  /// which have no node.
  mlir::FailureOr<NodeId> addValue(mlir::Value value);
  mlir::LogicalResult addBlock(mlir::Block &block);
  /// Adds ties between the values that must have one sharding because a loop
  /// carries them or branches yield them.
  mlir::LogicalResult addRegions(mlir::Operation *op);
  mlir::LogicalResult addFunction(mlir::func::FuncOp func);
  llvm::DenseMap<mlir::Value, NodeId> ids;
};

/// Returns the sharding rule of an operation or, if the operation has none, a
/// rule that replicates all its tensors.
ShardingRule ruleOf(mlir::Operation *op);

/// Whether the operation has no operands, so that it can be emitted separately
/// for each layout in which its result is read.
bool isGenerator(mlir::Operation *op);

/// Whether the value is a constant of zeros. Zeros on all ranks can also be
/// read as partial sums with the total zero.
bool isZeroConstant(mlir::Value value);

/// Returns the layout of result `index` if the factors of the operation are
/// sharded by `factorAxes`, and partial values over the axes `carry` pass from
/// operands to the result.
dist::Layout producedLayout(const ShardingRule &rule,
                            llvm::ArrayRef<dist::Axes> factorAxes,
                            dist::AxisSet carry, dist::ReduceKind carryKind,
                            unsigned index);

/// Distributes the mesh axes `axes` of a dimension over the factors of the
/// dimension, major first: `result[i]` has the axes of factor `dim[i]`. Axes
/// that do not fit a factor are left out.
llvm::SmallVector<dist::Axes, 2> axesOfFactors(const DimFactors &dim,
                                               const ShardingRule &rule,
                                               llvm::ArrayRef<dist::Axis> axes,
                                               const dist::MeshAxes &mesh);

} // namespace cleave::partition

#endif
