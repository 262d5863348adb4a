//===- ExpertLinks.h - rows over links of two classes -----------*- C++ -*-===//
//
// An axis that leaves its node has links of two classes: between nodes, and
// within. A gather over it is a gather within and then one between, a sum
// scattered over it the same backwards. Written so, rows that are sent instead
// go between nodes first, to the rank there with the sender's place, and on
// from it.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_LIB_PARTITION_EXPERTS_EXPERTLINKS_H
#define CLEAVE_LIB_PARTITION_EXPERTS_EXPERTLINKS_H

#include "cleave/Config/Cluster.h"
#include "cleave/Dialect/Dist/IR/Layout.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partition {

/// The parts of an axis.
struct Levels {
  dist::AxisListAttr between, within;

  /// None where all links of the axis are of one class.
  static std::optional<Levels> of(dist::MeshOp mesh, llvm::StringRef axis);
};

/// Whether rows arrive sooner over two exchanges than over one, `axes`.
bool pays(mlir::func::FuncOp func, const Levels &levels,
          dist::AxisListAttr axes, const Cluster &cluster);

/// Gathers of matrices that rows choose, and scattered sums of their gradients,
/// over `axes` become two each. Whether there are any.
bool splitByLevels(mlir::func::FuncOp func, const Levels &levels,
                   dist::AxisListAttr axes);

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_EXPERTS_EXPERTLINKS_H
