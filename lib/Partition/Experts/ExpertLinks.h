//===- ExpertLinks.h - tokens over two classes of links ---------*- C++ -*-===//
//
// A mesh axis that crosses nodes has two classes of links: between nodes and
// within a node. If experts are sharded over such an axis, these functions
// replace each collective over the axis by two collectives. An all-gather runs
// first within nodes, then between nodes; a reduce-scatter runs in the reverse
// order. If an exchange of tokens later replaces these gathers, it has two
// hops. The first hop goes between nodes, to the rank that has the sender's
// index in the target node. The second hop goes within that node.
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

  /// Returns the sub-axes `between` and `within` of a mesh axis. Returns
  /// nullopt if the axis has links of one class only: all between nodes, or all
  /// within a node.
  static std::optional<Levels> of(dist::MeshOp mesh, llvm::StringRef axis);
};

/// Returns whether an exchange of tokens in two hops, between nodes and within
/// a node, is faster than one exchange over `axes`.
bool pays(mlir::func::FuncOp func, const Levels &levels,
          dist::AxisListAttr axes, const Cluster &cluster);

/// Replaces each all-gather of expert matrices over `axes` by one within nodes
/// and one between nodes, and each reduce-scatter of their gradients by one
/// between nodes and one within nodes. Returns whether there were such
/// collectives.
bool splitByLevels(mlir::func::FuncOp func, const Levels &levels,
                   dist::AxisListAttr axes);

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_EXPERTS_EXPERTLINKS_H
