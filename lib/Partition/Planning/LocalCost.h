//===- LocalCost.h - communication inside operations ------------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_PLANNING_LOCALCOST_H
#define CLEAVE_LIB_PARTITION_PLANNING_LOCALCOST_H

#include "cleave/Cost/LinkModel.h"
#include "cleave/Interfaces/LocalPlan.h"

namespace cleave::partition {

/// Returns the seconds of communication inside an operation whose factors are
/// split by the axes `factors`: all-reduces of a reduction along a split
/// dimension (as in softmax), and halo exchanges. Returns infinity if no
/// per-rank code can be emitted for the operation.
double secondsWithin(mlir::Operation *op, const ShardingRule &rule,
                     llvm::ArrayRef<dist::Axes> factors,
                     const dist::MeshAxes &mesh, const cost::LinkModel &links);

/// Returns the largest number of elements along the window's dimension that a
/// rank of a group of `ranks` ranks receives from other ranks.
int64_t elementsReceived(dist::WindowOp window, int64_t ranks);

} // namespace cleave::partition

#endif
