//===- BuildPasses.cpp - the pipeline of the partition passes -------------===//

#include "cleave/Partition/Passes.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void cleave::buildPartitionPipeline(OpPassManager &passes,
                                    const PartitionOptions &options) {
  DistPropagatePassOptions propagate;
  propagate.remarks = options.remarks;
  // The passes from dist-propagate to dist-partition exchange discardable
  // attributes, so no other rewriting pass may run between them: it would drop
  // the attributes.
  passes.addPass(createDistPropagatePass(propagate));
  if (options.afterPropagation)
    options.afterPropagation(passes);
  DistPlanOpsPassOptions planOps;
  planOps.remarks = options.remarks;
  DistPartitionPassOptions partition;
  planOps.cluster = partition.cluster = options.cluster;
  passes.addPass(createDistPlanOpsPass(planOps));
  passes.addPass(createDistPartitionPass(partition));
  passes.addPass(createDistVerifyVariancePass());
  passes.addPass(createCSEPass());
  passes.addPass(createDistCombinePass());
  ChooseResidualsPassOptions residuals;
  residuals.keepParameters = options.keepParameters;
  residuals.keepActivations = options.keepActivations;
  passes.addPass(createChooseResidualsPass(residuals));
  if (options.beforeBuckets)
    options.beforeBuckets(passes);
  DistBucketPassOptions buckets;
  buckets.cluster = options.cluster;
  passes.addPass(createDistBucketPass(buckets));
  passes.addPass(createDistVerifyVariancePass());
  // The passes after dist-verify-variance rewrite only programs that it has
  // accepted, each in a way that keeps them correct.
  if (options.chunks) {
    DistChunkProductsPassOptions chunks;
    chunks.cluster = options.cluster;
    passes.addPass(createDistChunkProductsPass(chunks));
  }
  if (options.ringPlan != "gather") {
    DistSplitStreamPassOptions split;
    split.always = options.ringPlan == "ring";
    split.cluster = options.cluster;
    passes.addPass(createDistSplitStreamPass(split));
    passes.addPass(createCSEPass());
  }
  if (!options.rings.empty()) {
    DistDecomposePassOptions decompose;
    decompose.axes = options.rings;
    decompose.plan = options.ringPlan;
    decompose.cluster = options.cluster;
    passes.addPass(createDistDecomposePass(decompose));
    passes.addPass(createCSEPass());
  }
  if (!options.experts.empty()) {
    DistDispatchExpertsPassOptions experts;
    experts.axis = options.experts;
    experts.maxLoad = options.maxLoad;
    experts.exchange = options.exchange;
    experts.cluster = options.cluster;
    passes.addPass(createDistDispatchExpertsPass(experts));
    passes.addPass(createCSEPass());
    if (options.beforeBuckets) // for the new collectives
      options.beforeBuckets(passes);
  }
  passes.addPass(createDistSortRowsPass());
  passes.addPass(createCSEPass());
  if (!options.experts.empty()) {
    DistOverlapExpertsPassOptions overlap;
    overlap.cluster = options.cluster;
    passes.addPass(createDistOverlapExpertsPass(overlap));
  }
}

void cleave::registerPartitionPipeline() {
  PassPipelineRegistration<>(
      "dist-partition-pipeline",
      "From constraints to verified per-rank programs",
      [](OpPassManager &passes) { buildPartitionPipeline(passes); });
}
