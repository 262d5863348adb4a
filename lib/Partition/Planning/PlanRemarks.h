//===- PlanRemarks.h - where partial results come from ----------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_PLANNING_PLANREMARKS_H
#define CLEAVE_LIB_PARTITION_PLANNING_PLANREMARKS_H

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partition {

/// Tells, of a planned function, which results (and arguments) are partial over
/// which axes, what made them so, and where they are reduced.
void reportPartials(mlir::func::FuncOp func, const dist::MeshAxes &mesh);

} // namespace cleave::partition

#endif
