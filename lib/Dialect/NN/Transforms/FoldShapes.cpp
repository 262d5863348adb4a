// nn-fold-shapes.

#include "FactorDimensions.h"

#include "cleave/Dialect/NN/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_FOLDSHAPESPASS
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace cleave

using namespace mlir;

namespace {
struct FoldShapesPass : cleave::impl::FoldShapesPassBase<FoldShapesPass> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    OpPassManager cleanup(func::FuncOp::getOperationName());
    cleanup.addPass(createCanonicalizerPass());
    cleanup.addPass(createCSEPass());
    if (failed(runPipeline(cleanup, function)))
      return signalPassFailure();
    cleave::nn::factorDimensions(function, /*views=*/false);
    RewritePatternSet patterns(&getContext());
    cleave::nn::populateMovementPatterns(patterns);
    cleave::nn::populateEinsumPatterns(patterns);
    cleave::nn::populateLogicPatterns(patterns);
    if (failed(applyPatternsGreedily(function, std::move(patterns))))
      return signalPassFailure();
    cleave::nn::renameLetters(function);
    if (failed(runPipeline(cleanup, function)))
      signalPassFailure();
  }
};
} // namespace
