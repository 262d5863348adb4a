// nn-raise-composites: applies all patterns of the Raise*.cpp files.

#include "Dataflow.h"

#include "cleave/Dialect/NN/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_RAISECOMPOSITESPASS
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace cleave

using namespace mlir;

namespace {
struct RaiseCompositesPass
    : cleave::impl::RaiseCompositesPassBase<RaiseCompositesPass> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    RewritePatternSet patterns(&getContext());
    cleave::nn::populateRaiseNormPatterns(patterns);
    cleave::nn::populateRaiseGeluPatterns(patterns);
    cleave::nn::populateRaiseRotaryPatterns(patterns);
    cleave::nn::populateRaiseAttentionPatterns(patterns);
    // The raising patterns insert transposes and reshapes, which the movement
    // patterns remove again.
    cleave::nn::populateMovementPatterns(patterns);
    cleave::nn::populateEinsumPatterns(patterns);
    OpPassManager cleanup(func::FuncOp::getOperationName());
    cleanup.addPass(createCSEPass());
    if (failed(applyPatternsGreedily(function, std::move(patterns))) ||
        failed(runPipeline(cleanup, function)))
      signalPassFailure();
  }
};
} // namespace
