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
  /// Mesh axes over which parameters, and over which activations, stay gathered
  /// from the forward to the backward pass instead of being gathered again.
  llvm::SmallVector<std::string> keepParameters, keepActivations;
  /// Mesh axes over which dist-decompose replaces an all-gather by a ring of
  /// messages with one tile each.
  llvm::SmallVector<std::string> rings;
  /// auto | ring | gather: see dist-decompose.
  std::string ringPlan = "auto";
  /// The mesh axis that shards experts. Rows are sent to the ranks that hold
  /// their experts, instead of gathering the experts' matrices on every rank.
  std::string experts;
  /// Sets the size of the buffers for rows that are sent to experts: see the
  /// option of dist-dispatch-experts.
  double maxLoad = 2.0;
  /// auto | direct | hierarchical: see dist-dispatch-experts.
  std::string exchange = "auto";
  /// Whether a collective that computation does not hide is cut into chunks
  /// together with the matrix product next to it: see dist-chunk-products.
  bool chunks = false;
  /// The path of the cluster.toml whose link speeds determine how reshards are
  /// planned; if empty, the defaults hold.
  std::string cluster;
  /// Functions that add passes at two places of the pipeline: after the
  /// propagation of shardings, and before collectives are merged into buckets.
  std::function<void(mlir::OpPassManager &)> afterPropagation, beforeBuckets;
};

/// Adds the passes that turn a program with sharding constraints into verified
/// per-rank programs: propagate, plan, partition, combine, choose residuals,
/// bucket, verify.
void buildPartitionPipeline(mlir::OpPassManager &passes,
                            const PartitionOptions &options = {});

/// Registers the pipeline for cleave-opt under the name
/// `dist-partition-pipeline`.
void registerPartitionPipeline();
} // namespace cleave

#endif
