#include "cleave/Codegen/EmulateBFloat16.h"
#include "cleave/Support/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace cleave;

void cleave::codegen::widenBFloat16Math(ModuleOp kernels) {
  SmallVector<Operation *> found;
  kernels.walk([&](Operation *op) {
    if (isa_and_nonnull<math::MathDialect>(op->getDialect()) &&
        op->getNumResults() == 1 &&
        getElementTypeOrSelf(op->getResult(0).getType()).isBF16())
      found.push_back(op);
  });
  for (Operation *op : found) {
    OpBuilder b(op);
    Location loc = op->getLoc();
    auto widened = [&](Type type) -> Type {
      Type f32 = b.getF32Type();
      auto vector = dyn_cast<VectorType>(type);
      return vector ? Type(vector.clone(f32)) : f32;
    };
    for (OpOperand &operand : op->getOpOperands())
      if (getElementTypeOrSelf(operand.get().getType()).isBF16())
        operand.set(arith::ExtFOp::create(
            b, loc, widened(operand.get().getType()), operand.get()));
    Value result = op->getResult(0);
    Type narrow = result.getType();
    result.setType(widened(narrow));
    b.setInsertionPointAfter(op);
    auto rounded = arith::TruncFOp::create(b, loc, narrow, result);
    result.replaceAllUsesExcept(rounded, rounded);
  }
}

/// Splits casts between bf16 and f64 through f32, because the emulation only
/// supports casts between bf16 and f32.
static void splitWideCasts(ModuleOp kernels) {
  kernels.walk([](Operation *op) {
    if (!isa<arith::ExtFOp, arith::TruncFOp>(op))
      return;
    Value from = op->getOperand(0), to = op->getResult(0);
    Type narrow = getElementTypeOrSelf(from.getType()),
         wide = getElementTypeOrSelf(to.getType());
    bool extends = isa<arith::ExtFOp>(op);
    if (!extends)
      std::swap(narrow, wide);
    if (!narrow.isBF16() || !wide.isF64())
      return;
    OpBuilder b(op);
    auto vector = dyn_cast<VectorType>(to.getType());
    Type f32 = vector ? Type(vector.clone(b.getF32Type())) : b.getF32Type();
    Value half =
        extends ? arith::ExtFOp::create(b, op->getLoc(), f32, from)
                : Value(arith::TruncFOp::create(b, op->getLoc(), f32, from));
    op->setOperand(0, half);
  });
}

LogicalResult cleave::codegen::emulateBFloat16(ModuleOp kernels) {
  splitWideCasts(kernels);
  auto build = [&](OpPassManager &passes) {
    passes.addPass(createCanonicalizerPass());
    passes.addPass(createCSEPass());
    arith::ArithEmulateUnsupportedFloatsOptions options;
    options.sourceTypeStrs = {"bf16"};
    options.targetTypeStr = "f32";
    passes.addPass(arith::createArithEmulateUnsupportedFloats(options));
  };
  if (failed(runPasses(kernels, "bf16 in f32", build, /*dumps=*/false)))
    return failure();
  // By default, MLIR's pass lets a rounding to bf16 and the extension after it
  // cancel. The flag `none` prevents this, because every rounding must take
  // effect.
  auto none = arith::FastMathFlagsAttr::get(kernels.getContext(),
                                            arith::FastMathFlags::none);
  kernels.walk([&](Operation *op) {
    if (auto widen = dyn_cast<arith::ExtFOp>(op))
      widen.setFastmathAttr(none);
    if (auto round = dyn_cast<arith::TruncFOp>(op))
      round.setFastmathAttr(none);
  });
  return success();
}

void cleave::codegen::storeBFloat16AsIntegers(ModuleOp kernels) {
  Type bits = IntegerType::get(kernels.getContext(), 16);
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [=](Type type) -> std::optional<std::pair<Type, WalkResult>> {
        if (!type.isBF16())
          return std::nullopt;
        return std::pair(bits, WalkResult::skip());
      });
  replacer.addReplacement(
      [=](Attribute attr) -> std::optional<std::pair<Attribute, WalkResult>> {
        Attribute same;
        if (auto number = dyn_cast<FloatAttr>(attr);
            number && number.getType().isBF16())
          same = IntegerAttr::get(bits, number.getValue().bitcastToAPInt());
        if (auto numbers = dyn_cast<DenseElementsAttr>(attr);
            numbers && numbers.getElementType().isBF16())
          same = numbers.bitcast(bits);
        if (!same)
          return std::nullopt;
        return std::pair(same, WalkResult::skip());
      });
  replacer.recursivelyReplaceElementsIn(kernels, /*replaceAttrs=*/true,
                                        /*replaceLocs=*/false,
                                        /*replaceTypes=*/true);
}
