//===- ExpertLinks.h - tokens over two classes of links ---------*- C++ -*-===//
//
// A mesh axis that crosses nodes has two classes of links: between nodes and
// within a node. If experts are sharded over such an axis, these functions
// split an all-gather over it into one within nodes and then one between nodes,
// and a reduce-scatter into the same two in reverse order. An exchange of
// tokens that replaces these gathers then has two hops: first between nodes, to
// the rank that has the sender's position in the target node, and then within
// that node.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_LIB_PARTITION_EXPERTS_EXPERTLINKS_H
#define CLEAVE_LIB_PARTITION_EXPERTS_EXPERTLINKS_H

#include "cleave/Config/Cluster.h"
#include "cleave/Dialect/Dist/IR/Layout.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partition {

/// A mesh axis as two sub-axes: `between` numbers the nodes, `within` the ranks
/// of a node.
struct Levels {
  dist::AxisListAttr between, within;

  /// Returns the two sub-axes, or nullopt if all links of the axis are of one
  /// class.
  static std::optional<Levels> of(dist::MeshOp mesh, llvm::StringRef axis);
};

/// Returns whether two hierarchical exchanges are faster than one exchange over
/// `axes`.
bool pays(mlir::func::FuncOp func, const Levels &levels,
          dist::AxisListAttr axes, const Cluster &cluster);

/// Splits, into two each, the gathers over `axes` of expert matrices and the
/// reduce-scatters of their gradients. Returns whether there were any.
bool splitByLevels(mlir::func::FuncOp func, const Levels &levels,
                   dist::AxisListAttr axes);

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_EXPERTS_EXPERTLINKS_H
