//===- FactorGraph.h - values, rules and layouts of a module ----*- C++ -*-===//
//
// The side table on which shardings are propagated, and in which strategies
// look for dimensions that sharding rules connect. Nodes are the tensors of all
// functions (and one for each function result); edges are operations with their
// sharding rules, and ties between ports of one name.
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

/// A tensor of the module.
struct Node {
  mlir::Value value; // null for the result of a function
  mlir::RankedTensorType type;
  Port port; // of function arguments and results
  bool isPort = false;
  /// An operation without operands: it is emitted again for each layout, so it
  /// does not tie its users.
  bool isGenerator = false;
  /// The sharding that an attribute or a constraint asks for.
  dist::ShardingAttr asked;
};

/// An operation, or a tie between tensors that must have one sharding.
struct Edge {
  mlir::Operation *op = nullptr; // null for ties
  ShardingRule rule;
  llvm::SmallVector<NodeId, 4> operands, results;
};

class FactorGraph {
public:
  /// Reads the module. Operations without a rule get one that replicates all
  /// tensors, with a remark. Fails on regions other than those of scf.for and
  /// scf.if, and on tensors of dynamic shape.
  static mlir::FailureOr<FactorGraph> of(mlir::ModuleOp module);

  llvm::SmallVector<Node, 0> nodes;
  llvm::SmallVector<Edge, 0> edges;
  /// For each node, the edges that it takes part in.
  llvm::SmallVector<llvm::SmallVector<unsigned, 4>, 0> edgesOf;

  NodeId nodeOf(mlir::Value value) const {
    auto it = ids.find(value);
    return it == ids.end() ? kNoNode : it->second;
  }

private:
  NodeId addNode(Node node);
  void addEdge(Edge edge);
  void addTie(NodeId a, NodeId b);
  /// The node of a new value; kNoNode for scalars.
  mlir::FailureOr<NodeId> addValue(mlir::Value value);
  mlir::LogicalResult addBlock(mlir::Block &block);
  /// Ties the values that a loop carries, or that branches return.
  mlir::LogicalResult addRegions(mlir::Operation *op);
  mlir::LogicalResult addFunction(mlir::func::FuncOp func);
  llvm::DenseMap<mlir::Value, NodeId> ids;
};

/// The rule of an operation; one that replicates all tensors if it has none.
ShardingRule ruleOf(mlir::Operation *op);

/// Whether the operation can be emitted again in any layout.
bool isGenerator(mlir::Operation *op);

/// Whether the value is a constant of zeros, which is also a partial sum of
/// zero.
bool isZeroConstant(mlir::Value value);

/// The layout of result `index` when the factors are sharded by `factorAxes`
/// and partial sums (or candidates) over `carry` pass through.
dist::Layout producedLayout(const ShardingRule &rule,
                            llvm::ArrayRef<dist::Axes> factorAxes,
                            dist::AxisSet carry, dist::ReduceKind carryKind,
                            unsigned index);

/// Spreads the axes of a dimension over its factors, major first: `result[i]`
/// has the axes of factor `dim[i]`. Axes that do not fit are left out.
llvm::SmallVector<dist::Axes, 2> axesOfFactors(const DimFactors &dim,
                                               const ShardingRule &rule,
                                               llvm::ArrayRef<dist::Axis> axes,
                                               const dist::MeshAxes &mesh);

} // namespace cleave::partition

#endif
