// Expands mathematical functions of kernels to arithmetic.
//
// Single precision: all library calls are expanded. exp, log, tanh and erf are
// polynomials in single precision with errors of a few units in the last place
// (test/unit/Codegen/MathTest.cpp has the bounds); the other functions compute
// in double, where simple formulas are accurate enough. Double precision: exp
// and log are expanded; other functions call the C library for each lane.

#include "cleave/Codegen/ExpandMath.h"

#include "MathFormulas.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <limits>

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::codegen::formulas;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

namespace {

bool isType(Operation *op, unsigned width) {
  Type element = getElementTypeOrSelf(op->getResult(0).getType());
  return isa<FloatType>(element) && element.getIntOrFloatBitWidth() == width;
}

/// Rewrites operations `Op` on floats of `width` bits with a formula in the
/// same precision.
template <typename Op, unsigned width> struct Expand : RewritePattern {
  using Function = Value (*)(MathBuilder &, Value);
  Expand(MLIRContext *context, Function function)
      : RewritePattern(Op::getOperationName(), 2, context), function(function) {
  }
  LogicalResult matchAndRewrite(Operation *op,
                                PatternRewriter &rewriter) const override {
    if (!isType(op, width))
      return rewriter.notifyMatchFailure(op, "another type");
    MathBuilder m(rewriter, op->getLoc(), op->getResult(0).getType());
    rewriter.replaceOp(op, function(m, op->getOperand(0)));
    return success();
  }
  Function function;
};

/// Rewrites single-precision operations `Op` with a formula in double
/// precision.
template <typename Op> struct ByDouble : RewritePattern {
  using Function = Value (*)(MathBuilder &, ValueRange);
  ByDouble(MLIRContext *context, Function function)
      : RewritePattern(Op::getOperationName(), 2, context), function(function) {
  }
  LogicalResult matchAndRewrite(Operation *op,
                                PatternRewriter &rewriter) const override {
    if (!isType(op, 32))
      return rewriter.notifyMatchFailure(op, "another type");
    Type narrow = op->getResult(0).getType(), wide = rewriter.getF64Type();
    if (auto vector = dyn_cast<VectorType>(narrow))
      wide = vector.clone(wide);
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(
          arith::ExtFOp::create(rewriter, op->getLoc(), wide, operand));
    MathBuilder m(rewriter, op->getLoc(), wide);
    Value result = function(m, operands);
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, narrow, result);
    return success();
  }
  Function function;
};

/// Computes 1/sqrt(x) with two correctly rounded operations instead of an
/// approximate instruction.
struct ExpandRsqrt : OpRewritePattern<math::RsqrtOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::RsqrtOp op,
                                PatternRewriter &rewriter) const override {
    MathBuilder m(rewriter, op.getLoc(), op.getType());
    Value root = math::SqrtOp::create(rewriter, op.getLoc(), op.getOperand());
    rewriter.replaceOp(op, m.div(m.f(1.0), root));
    return success();
  }
};

// isinf and isnormal have no other lowering.

struct ExpandIsInf : OpRewritePattern<math::IsInfOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::IsInfOp op,
                                PatternRewriter &rewriter) const override {
    MathBuilder m(rewriter, op.getLoc(), op.getOperand().getType());
    rewriter.replaceOp(op, m.equal(m.abs(op.getOperand()), m.f(kInfinity)));
    return success();
  }
};

/// Returns whether a number is neither zero, subnormal, infinite nor NaN.
struct ExpandIsNormal : OpRewritePattern<math::IsNormalOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::IsNormalOp op,
                                PatternRewriter &rewriter) const override {
    Type type = op.getOperand().getType();
    MathBuilder m(rewriter, op.getLoc(), type);
    auto element = cast<FloatType>(getElementTypeOrSelf(type));
    double least = APFloat::getSmallestNormalized(element.getFloatSemantics())
                       .convertToDouble();
    Value magnitude = m.abs(op.getOperand());
    rewriter.replaceOp(op, m.both(m.notLess(magnitude, m.f(least)),
                                  m.less(magnitude, m.f(kInfinity))));
    return success();
  }
};

/// Computes integer powers by repeated squaring, one step per bit of the
/// exponent. A negative exponent gives 0, except for the bases 1 and -1: 1
/// gives 1, and -1 gives 1 or -1 for an even or odd exponent.
struct ExpandIPowI : OpRewritePattern<math::IPowIOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::IPowIOp op,
                                PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    Type type = op.getType();
    auto number = [&](int64_t value) -> Value {
      IntegerAttr attr =
          rewriter.getIntegerAttr(getElementTypeOrSelf(type), value);
      if (auto vector = dyn_cast<VectorType>(type))
        return arith::ConstantOp::create(rewriter, loc,
                                         DenseElementsAttr::get(vector, attr));
      return arith::ConstantOp::create(rewriter, loc, attr);
    };
    auto compare = [&](arith::CmpIPredicate how, Value a, Value b) -> Value {
      return arith::CmpIOp::create(rewriter, loc, how, a, b);
    };
    using arith::CmpIPredicate;
    Value base = op.getLhs(), exponent = op.getRhs();
    Value zero = number(0), one = number(1), power = one, square = base;
    int64_t bits = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
    for (int64_t bit = 0; bit < bits; ++bit) {
      Value digit =
          arith::ShRUIOp::create(rewriter, loc, exponent, number(bit));
      digit = arith::AndIOp::create(rewriter, loc, digit, one);
      power = arith::SelectOp::create(
          rewriter, loc, compare(CmpIPredicate::ne, digit, zero),
          arith::MulIOp::create(rewriter, loc, power, square), power);
      square = arith::MulIOp::create(rewriter, loc, square, square);
    }
    Value isUnit = arith::OrIOp::create(
        rewriter, loc, compare(CmpIPredicate::eq, base, one),
        compare(CmpIPredicate::eq, base, number(-1)));
    Value below = arith::SelectOp::create(rewriter, loc, isUnit, power, zero);
    rewriter.replaceOpWithNewOp<arith::SelectOp>(
        op, compare(CmpIPredicate::slt, exponent, zero), below, power);
    return success();
  }
};

/// Powers with exponents that are small constants.
struct ExpandConstantPower : OpRewritePattern<math::PowFOp> {
  ExpandConstantPower(MLIRContext *context)
      : OpRewritePattern(context, /*benefit=*/3) {}
  LogicalResult matchAndRewrite(math::PowFOp op,
                                PatternRewriter &rewriter) const override {
    Value exponent = op.getRhs();
    if (auto broadcast = exponent.getDefiningOp<vector::BroadcastOp>())
      exponent = broadcast.getSource();
    auto constant = exponent.getDefiningOp<arith::ConstantOp>();
    if (!constant)
      return rewriter.notifyMatchFailure(op, "the exponent is not constant");
    double value;
    if (auto scalar = dyn_cast<FloatAttr>(constant.getValue()))
      value = scalar.getValueAsDouble();
    else if (auto splat = dyn_cast<SplatElementsAttr>(constant.getValue()))
      value = splat.getSplatValue<APFloat>().convertToDouble();
    else
      return rewriter.notifyMatchFailure(op, "exponents differ");
    MathBuilder m(rewriter, op.getLoc(), op.getType());
    Value x = op.getLhs(), result;
    if (value == 1.0)
      result = x;
    else if (value == 2.0)
      result = m.mul(x, x);
    else if (value == 3.0)
      result = m.mul(m.mul(x, x), x);
    else if (value == 4.0)
      result = m.mul(m.mul(x, x), m.mul(x, x));
    else if (value == -1.0)
      result = m.div(m.f(1.0), x);
    else
      return rewriter.notifyMatchFailure(op, "not a small exponent");
    rewriter.replaceOp(op, result);
    return success();
  }
};

} // namespace

/// Adds a pattern that computes a single-precision function of one argument in
/// double precision.
template <typename Op, Value (*function)(MathBuilder &, Value)>
static void addUnary(RewritePatternSet &patterns) {
  patterns.add<ByDouble<Op>>(
      patterns.getContext(),
      +[](MathBuilder &m, ValueRange x) { return function(m, x[0]); });
}

LogicalResult cleave::codegen::expandMath(ModuleOp kernels) {
  MLIRContext *context = kernels.getContext();
  RewritePatternSet patterns(context);
  patterns.add<Expand<math::ExpOp, 32>>(context, exp32);
  patterns.add<Expand<math::LogOp, 32>>(context, log32);
  patterns.add<Expand<math::TanhOp, 32>>(context, tanh32);
  patterns.add<Expand<math::ErfOp, 32>>(context, erf32);
  patterns.add<Expand<math::ExpOp, 64>>(context, exp64);
  patterns.add<Expand<math::LogOp, 64>>(context, log64);
  patterns.add<ByDouble<math::SinOp>>(
      context,
      +[](MathBuilder &m, ValueRange x) { return sine64(m, x[0], 0); });
  patterns.add<ByDouble<math::CosOp>>(
      context,
      +[](MathBuilder &m, ValueRange x) { return sine64(m, x[0], 1); });
  patterns.add<ByDouble<math::PowFOp>>(
      context,
      +[](MathBuilder &m, ValueRange x) { return power64(m, x[0], x[1]); });
  patterns.add<ByDouble<math::Log2Op>>(
      context, +[](MathBuilder &m, ValueRange x) {
        return m.mul(log64(m, x[0]), m.f(1.4426950408889634));
      });
  patterns.add<ByDouble<math::Log10Op>>(
      context, +[](MathBuilder &m, ValueRange x) {
        return m.mul(log64(m, x[0]), m.f(0.43429448190325182765));
      });
  patterns.add<ByDouble<math::Exp2Op>>(
      context, +[](MathBuilder &m, ValueRange x) {
        return exp64(m, m.mul(x[0], m.f(0.69314718055994530942)));
      });
  addUnary<math::SinhOp, sinh>(patterns);
  addUnary<math::AtanOp, arcTangent>(patterns);
  addUnary<math::AsinOp, arcSine>(patterns);
  addUnary<math::CbrtOp, cubeRoot>(patterns);
  addUnary<math::AsinhOp, arSinh>(patterns);
  addUnary<math::AcoshOp, arCosh>(patterns);
  addUnary<math::AtanhOp, arTanh>(patterns);
  addUnary<math::ExpM1Op, expM1>(patterns);
  addUnary<math::Log1pOp, log1P>(patterns);
  patterns.add<ByDouble<math::AcosOp>>(
      context, +[](MathBuilder &m, ValueRange x) {
        return m.sub(m.f(1.57079632679489661923), arcSine(m, x[0]));
      });
  patterns.add<ByDouble<math::Atan2Op>>(
      context,
      +[](MathBuilder &m, ValueRange x) { return arcTangent2(m, x[0], x[1]); });
  patterns.add<ByDouble<math::CoshOp>>(
      context, +[](MathBuilder &m, ValueRange x) {
        Value e = exp64(m, x[0]);
        return m.mul(m.add(e, m.div(m.f(1.0), e)), m.f(0.5));
      });
  patterns.add<ByDouble<math::TanOp>>(
      context, +[](MathBuilder &m, ValueRange x) {
        return m.div(sine64(m, x[0], 0), sine64(m, x[0], 1));
      });
  patterns.add<ExpandConstantPower, ExpandIPowI, ExpandIsInf, ExpandIsNormal,
               ExpandRsqrt>(context);
  // Functions that remain in single precision.
  populateMathPolynomialApproximationPatterns(
      patterns, [](StringRef name) { return name == "math.erfc"; });
  math::populateExpansionPatterns(patterns, {"fpowi"});
  return applyPatternsGreedily(kernels, std::move(patterns));
}
