//===- LocalCost.h - what operations send while they run --------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_PLANNING_LOCALCOST_H
#define CLEAVE_LIB_PARTITION_PLANNING_LOCALCOST_H

#include "cleave/Cost/LinkModel.h"
#include "cleave/Interfaces/LocalPlan.h"

namespace cleave::partition {

/// Seconds that the operation communicates by itself when its factors are split
/// by `factors`: joint reductions, and windows of what is on other ranks.
/// Infinite where it has no local form.
double secondsWithin(mlir::Operation *op, const ShardingRule &rule,
                     llvm::ArrayRef<dist::Axes> factors,
                     const dist::MeshAxes &mesh, const cost::LinkModel &links);

/// The most elements of dimension `dim` that a rank of the window's group
/// receives from others.
int64_t elementsReceived(dist::WindowOp window, int64_t ranks);

} // namespace cleave::partition

#endif
