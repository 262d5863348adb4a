//===- PlanRemarks.h - where partial results come from ----------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_PLANNING_PLANREMARKS_H
#define CLEAVE_LIB_PARTITION_PLANNING_PLANREMARKS_H

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partition {

/// Emits remarks for a planned function: the results and arguments that are
/// partial, the axes and the cause, and where they are reduced.
void reportPartials(mlir::func::FuncOp func, const dist::MeshAxes &mesh);

} // namespace cleave::partition

#endif
