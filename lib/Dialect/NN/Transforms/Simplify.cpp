// nn-simplify.

#include "FactorDimensions.h"

#include "cleave/Dialect/NN/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_SIMPLIFYPASS
#include "cleave/Dialect/NN/Transforms/Passes.h.inc"
} // namespace cleave

using namespace mlir;

namespace {
struct SimplifyPass : cleave::impl::SimplifyPassBase<SimplifyPass> {
  using Base::Base;

  LogicalResult simplify(func::FuncOp function, OpPassManager &cleanup) {
    RewritePatternSet patterns(&getContext());
    cleave::nn::populateMovementPatterns(patterns);
    cleave::nn::populateEinsumPatterns(patterns);
    if (failed(applyPatternsGreedily(function, std::move(patterns))))
      return failure();
    // The patterns that fold transposes into an einsum's result run last, so
    // that transposes first meet transposes that cancel them.
    RewritePatternSet last(&getContext());
    cleave::nn::populateEinsumResultPatterns(last);
    if (failed(applyPatternsGreedily(function, std::move(last))))
      return failure();
    cleave::nn::renameLetters(function);
    return runPipeline(cleanup, function);
  }

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    OpPassManager cleanup(func::FuncOp::getOperationName());
    cleanup.addPass(createCanonicalizerPass());
    cleanup.addPass(createCSEPass());
    if (failed(runPipeline(cleanup, function)))
      return signalPassFailure();
    if (parameterViews)
      cleave::nn::factorDimensions(function, /*views=*/true);
    if (failed(simplify(function, cleanup)))
      signalPassFailure();
  }
};
} // namespace
