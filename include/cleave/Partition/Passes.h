//===- Passes.h - from shardings to the program of one rank -----*- C++ -*-===//

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
  /// Tell where every sharding came from.
  bool remarks = false;
  /// Axes over which gathered parameters, and activations, stay from the
  /// forward to the backward pass.
  llvm::SmallVector<std::string> keepParameters, keepActivations;
  /// Axes along which gathered dimensions go round tile by tile where
  /// operations can take them so.
  llvm::SmallVector<std::string> rings;
  /// auto | ring | gather: see dist-decompose.
  std::string ringPlan = "auto";
  /// The axis over which experts lie: rows go to them where they would be
  /// gathered.
  std::string experts;
  /// Room for rows there: see dist-dispatch-experts.
  double maxLoad = 2.0;
  /// auto | direct | hierarchical: see dist-dispatch-experts.
  std::string exchange = "auto";
  /// Whether products that are waited for, or wait, are cut: see
  /// dist-chunk-products.
  bool chunks = false;
  /// A cluster.toml that reshards are planned for; "": the defaults.
  std::string cluster;
  /// Adds passes behind the propagation of shardings, and before messages are
  /// merged.
  std::function<void(mlir::OpPassManager &)> afterPropagation, beforeBuckets;
};

/// From constraints to verified local programs: propagate, plan, partition,
/// combine, choose residuals, bucket, verify.
void buildPartitionPipeline(mlir::OpPassManager &passes,
                            const PartitionOptions &options = {});

/// Makes the pipeline known to cleave-opt as `dist-partition-pipeline`.
void registerPartitionPipeline();
} // namespace cleave

#endif
