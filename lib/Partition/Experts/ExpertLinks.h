//===- ExpertLinks.h - tokens over two classes of links ---------*- C++ -*-===//
//
// A mesh axis that crosses nodes has two classes of links: between nodes and
// within a node. If experts are sharded over such an axis, these functions
// split each collective over it in two. An all-gather runs first within nodes,
// then between nodes; a reduce-scatter runs in the reverse order. If an
// exchange of tokens later replaces these gathers, it has two hops. The first
// hop goes between nodes, to the rank that has the sender's index in the target
// node. The second hop goes within that node.
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
