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
  /// Whether remarks report where each sharding comes from.
  bool remarks = false;
  /// The mesh axes over which gathered parameters (`keepParameters`) and
  /// gathered activations (`keepActivations`) are kept for the backward pass
  /// instead of being gathered again.
  llvm::SmallVector<std::string> keepParameters, keepActivations;
  /// The mesh axes over which dist-decompose replaces all-gathers by ring
  /// attention, in which ranks pass on one tile at a time.
  llvm::SmallVector<std::string> rings;
  /// "auto", "ring" or "gather": see the option `plan` of dist-decompose.
  std::string ringPlan = "auto";
  /// The mesh axis that shards experts; empty for none. Tokens are sent to the
  /// ranks that hold their experts, and the experts' matrices are not gathered.
  std::string experts;
  /// Determines the size of the buffers for tokens that are sent to experts:
  /// see the option `max-load` of dist-dispatch-experts.
  double maxLoad = 2.0;
  /// "auto", "direct" or "hierarchical": see the option `exchange` of
  /// dist-dispatch-experts.
  std::string exchange = "auto";
  /// Whether an exposed collective and the matrix products next to it are
  /// decomposed into chunks that overlap: see dist-chunk-products.
  bool chunks = false;
  /// The path of the cluster.toml that describes the links and the devices for
  /// the cost models of the passes; if empty, default values are used.
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
