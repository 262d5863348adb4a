//===- PlanRemarks.h - where partial results come from ----------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_PLANNING_PLANREMARKS_H
#define CLEAVE_LIB_PARTITION_PLANNING_PLANREMARKS_H

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partition {

/// Emits a remark for each partial result or argument of a planned function. It
/// says over which axes the value is partial, why, and where it is reduced.
void reportPartials(mlir::func::FuncOp func, const dist::MeshAxes &mesh);

} // namespace cleave::partition

#endif
