//===- FactorGraph.h - values, rules and layouts of a module ----*- C++ -*-===//
//
// The side table on which shardings are propagated and strategies look for
// dimensions that belong together. Nodes are the tensors of all functions (and
// one for each function result); edges are operations with their sharding
// rules, and ties between ports of one name.
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
  /// An operation without operands: emitted anew in any layout, so it ties its
  /// users in no way.
  bool isGenerator = false;
  /// What was asked for, by an attribute or a constraint.
  dist::ShardingAttr asked;
};

/// An operation, or a tie that keeps tensors alike.
struct Edge {
  mlir::Operation *op = nullptr; // null for ties
  ShardingRule rule;
  llvm::SmallVector<NodeId, 4> operands, results;
};

class FactorGraph {
public:
  /// Reads the module. Operations without a rule get the one that keeps all
  /// whole, with a remark. Fails on regions other than those of
  /// scf.for and scf.if, and on tensors of dynamic shape.
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
  /// What a loop carries, or the branches give, is tied.
  mlir::LogicalResult addRegions(mlir::Operation *op);
  mlir::LogicalResult addFunction(mlir::func::FuncOp func);
  llvm::DenseMap<mlir::Value, NodeId> ids;
};

/// The rule of an operation; the one that keeps all whole where it has none.
ShardingRule ruleOf(mlir::Operation *op);

/// Whether the operation can be emitted again in any layout.
bool isGenerator(mlir::Operation *op);

/// Whether the value is a constant of zeros, which are addends of zero.
bool isZeroConstant(mlir::Value value);

/// The layout in which result `index` appears when the factors are split by
/// `factorAxes` and addends (or candidates) over `carry` pass through.
dist::Layout producedLayout(const ShardingRule &rule,
                            llvm::ArrayRef<dist::Axes> factorAxes,
                            dist::AxisSet carry, dist::ReduceKind carryKind,
                            unsigned index);

/// Spreads the axes of a dimension over its factors, major first: `result[i]`
/// is the axes of factor `dim[i]`. Axes that do not fit are left out.
llvm::SmallVector<dist::Axes, 2> axesOfFactors(const DimFactors &dim,
                                               const ShardingRule &rule,
                                               llvm::ArrayRef<dist::Axis> axes,
                                               const dist::MeshAxes &mesh);

} // namespace cleave::partition

#endif
