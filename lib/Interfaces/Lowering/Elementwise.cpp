// Elementwise operations of arith and math, and the activations of nn.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::lowering;

namespace {

constexpr double kSqrtHalf = 0.70710678118654752440;      // 1/sqrt(2)
constexpr double kSqrtTwoOverPi = 0.79788456080286535588; // sqrt(2/pi)
constexpr double kInvSqrtTwoPi = 0.39894228040143267794;  // 1/sqrt(2 pi)
constexpr double kGeluCubic = 0.044715;

/// Returns tanh(sqrt(2/pi) (x + 0.044715 x^3)), with `square` = x^2.
Value geluTanh(TensorExpr &e, Value x, Value square) {
  Value factor =
      e.add(e.mul(square, kSqrtTwoOverPi * kGeluCubic), kSqrtTwoOverPi);
  return e.make<math::TanhOp>(e.mul(x, factor));
}

/// Returns the standard normal distribution function, (1 + erf(x / sqrt 2)) /
/// 2.
Value normalCdf(TensorExpr &e, Value x) {
  Value erf = e.make<math::ErfOp>(e.mul(x, kSqrtHalf));
  return e.add(e.mul(erf, 0.5), 0.5);
}

Decomposed gelu(nn::GeluOp op, TensorExpr &e) {
  Value x = op.getInput();
  if (op.getKind() == nn::GeluKind::Erf)
    return SmallVector<Value>{e.mul(x, normalCdf(e, x))};
  Value tanh = geluTanh(e, x, e.mul(x, x));
  return SmallVector<Value>{e.mul(e.mul(x, 0.5), e.add(tanh, 1.0))};
}

Decomposed geluGrad(nn::GeluGradOp op, TensorExpr &e) {
  Value x = op.getInput(), slope;
  Value square = e.mul(x, x);
  if (op.getKind() == nn::GeluKind::Erf) {
    Value density = e.mul(e.exp(e.mul(square, -0.5)), kInvSqrtTwoPi);
    slope = e.add(normalCdf(e, x), e.mul(x, density));
  } else {
    // With t = tanh(u), the derivative is (1 + t)/2 + x/2 (1 - t^2) u'.
    Value t = geluTanh(e, x, square);
    Value inner =
        e.add(e.mul(square, 3.0 * kSqrtTwoOverPi * kGeluCubic), kSqrtTwoOverPi);
    Value bell = e.sub(e.splat(t, 1.0), e.mul(t, t));
    Value second = e.mul(e.mul(e.mul(x, 0.5), bell), inner);
    slope = e.add(e.add(e.mul(t, 0.5), 0.5), second);
  }
  return SmallVector<Value>{e.mul(op.getCotangent(), slope)};
}

Decomposed sigmoid(nn::SigmoidOp op, TensorExpr &e) {
  Value one = e.splat(op.getInput(), 1.0);
  return SmallVector<Value>{
      e.div(one, e.add(one, e.exp(e.neg(op.getInput()))))};
}

} // namespace

void cleave::lowering::attachElementwise(MLIRContext *context) {
  attachPlain<KernelClass::Elementwise, arith::AddFOp, arith::SubFOp,
              arith::MulFOp, arith::DivFOp, arith::RemFOp, arith::NegFOp,
              arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp,
              arith::MinNumFOp, arith::AddIOp, arith::SubIOp, arith::MulIOp,
              arith::MulUIExtendedOp, arith::MulSIExtendedOp, arith::DivSIOp,
              arith::DivUIOp, arith::CeilDivSIOp, arith::CeilDivUIOp,
              arith::FloorDivSIOp, arith::RemSIOp, arith::RemUIOp,
              arith::AndIOp, arith::OrIOp, arith::XOrIOp, arith::ShLIOp,
              arith::ShRSIOp, arith::ShRUIOp, arith::MaxSIOp, arith::MinSIOp,
              arith::MaxUIOp, arith::MinUIOp>(context);
  attachPlain<KernelClass::Elementwise, arith::CmpFOp, arith::CmpIOp,
              arith::SelectOp, arith::TruncFOp, arith::ExtSIOp, arith::ExtUIOp,
              arith::TruncIOp, arith::SIToFPOp, arith::UIToFPOp,
              arith::FPToSIOp, arith::FPToUIOp, arith::BitcastOp>(context);
  attachPlain<
      KernelClass::Elementwise, math::AbsFOp, math::AbsIOp, math::AcosOp,
      math::AcoshOp, math::AsinOp, math::AsinhOp, math::AtanOp, math::Atan2Op,
      math::AtanhOp, math::CbrtOp, math::CeilOp, math::CopySignOp, math::CosOp,
      math::CoshOp, math::ErfOp, math::ErfcOp, math::ExpOp, math::Exp2Op,
      math::ExpM1Op, math::FloorOp, math::FmaOp, math::FPowIOp, math::IPowIOp,
      math::IsFiniteOp, math::IsInfOp, math::IsNaNOp, math::IsNormalOp,
      math::LogOp, math::Log10Op, math::Log1pOp, math::Log2Op, math::PowFOp,
      math::RoundOp, math::RoundEvenOp, math::RsqrtOp, math::SinOp,
      math::SinhOp, math::SqrtOp, math::TanOp, math::TanhOp, math::TruncOp>(
      context);
  // Constants count as views: kernels contain them as immediates.
  attachPlain<KernelClass::View, arith::ConstantOp>(context);
  // Conversions to a wider type count as views, since every kernel that reads
  // the result converts the elements while loading them.
  attachPlain<KernelClass::View, keeps<0>, arith::ExtFOp>(context);

  attachPlain<KernelClass::Elementwise, nn::CheckIndexOp>(context);
  attach<nn::GeluOp, KernelClass::Elementwise, gelu>(context);
  attach<nn::GeluGradOp, KernelClass::Elementwise, geluGrad>(context);
  attach<nn::SigmoidOp, KernelClass::Elementwise, sigmoid>(context);
}
