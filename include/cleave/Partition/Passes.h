//===- Passes.h - from shardings to per-rank programs -----------*- C++ -*-===//

#ifndef CLEAVE_PARTITION_PASSES_H
#define CLEAVE_PARTITION_PASSES_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include <functional>

namespace cleave {
#define GEN_PASS_DECL
#include "cleave/Partition/Passes.h.inc"

struct PartitionOptions {
  /// Report where every sharding came from.
  bool remarks = false;
  /// Axes over which parameters, and activations, stay gathered from the
  /// forward to the backward pass.
  llvm::SmallVector<std::string> keepParameters, keepActivations;
  /// Axes over which dist-decompose replaces gathers by rings.
  llvm::SmallVector<std::string> rings;
  /// auto | ring | gather: see dist-decompose.
  std::string ringPlan = "auto";
  /// The axis over which experts are sharded: instead of gathering their
  /// matrices, rows are dispatched to them.
  std::string experts;
  /// Size of buffers for these rows: see dist-dispatch-experts.
  double maxLoad = 2.0;
  /// auto | direct | hierarchical: see dist-dispatch-experts.
  std::string exchange = "auto";
  /// Whether exposed collectives and their products are cut into chunks: see
  /// dist-chunk-products.
  bool chunks = false;
  /// A cluster.toml that reshards are planned for; "": the defaults.
  std::string cluster;
  /// Add passes after the propagation of shardings, and before collectives are
  /// merged into buckets.
  std::function<void(mlir::OpPassManager &)> afterPropagation, beforeBuckets;
};

/// From constraints to verified per-rank programs: propagate, plan, partition,
/// combine, choose residuals, bucket, verify.
void buildPartitionPipeline(mlir::OpPassManager &passes,
                            const PartitionOptions &options = {});

/// Makes the pipeline known to cleave-opt as `dist-partition-pipeline`.
void registerPartitionPipeline();
} // namespace cleave

#endif
