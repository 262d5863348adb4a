//===- Passes.h - from shardings to the program of one rank -----*- C++ -*-===//

#ifndef CLEAVE_PARTITION_PASSES_H
#define CLEAVE_PARTITION_PASSES_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Partition/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "cleave/Partition/Passes.h.inc"

/// From constraints to verified local programs: propagate, plan, partition,
/// combine, verify.
void buildPartitionPipeline(mlir::OpPassManager &passes, bool remarks = false);

/// Makes the pipeline known to cleave-opt as `dist-partition-pipeline`.
void registerPartitionPipeline();
} // namespace cleave

#endif
