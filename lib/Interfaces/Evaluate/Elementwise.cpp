// Reference semantics of elementwise operations: one loop each, in double or in
// 64-bit integers that wrap to the element type.

#include "Model.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::evaluate;

namespace {

template <typename Op, double (*Function)(double)>
void unary(Op, Operands in, Results out) {
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].floats[i] = Function(in[0]->floats[i]);
}

template <typename Op, double (*Function)(double, double)>
void binary(Op, Operands in, Results out) {
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].floats[i] = Function(in[0]->floats[i], in[1]->floats[i]);
}

/// Returns the element as a signed number; `true` of type i1 is -1.
int64_t signedAt(const Tensor &tensor, int64_t i) {
  return tensor.type.getElementType().isInteger(1) ? -tensor.ints[i]
                                                   : tensor.ints[i];
}

/// The element as an unsigned number.
uint64_t unsignedAt(const Tensor &tensor, int64_t i) {
  unsigned width = tensor.type.getElementTypeBitWidth();
  return tensor.ints[i] & llvm::maskTrailingOnes<uint64_t>(width);
}

template <typename Op, int64_t (*Function)(int64_t, int64_t)>
void binaryInt(Op op, Operands in, Results out) {
  Type type = getElementTypeOrSelf(op.getType());
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].ints[i] =
        wrapInteger(type, Function(signedAt(*in[0], i), signedAt(*in[1], i)));
}

template <typename Op, int64_t (*Function)(int64_t)>
void unaryInt(Op op, Operands in, Results out) {
  Type type = getElementTypeOrSelf(op.getType());
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].ints[i] = wrapInteger(type, Function(in[0]->ints[i]));
}

/// Applies a function to unsigned numbers of the operation's width.
template <typename Op, uint64_t (*Function)(uint64_t, uint64_t)>
void binaryUnsigned(Op op, Operands in, Results out) {
  Type type = getElementTypeOrSelf(op.getType());
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].ints[i] = wrapInteger(
        type, Function(unsignedAt(*in[0], i), unsignedAt(*in[1], i)));
}

/// Applies a predicate to floats.
template <typename Op, bool (*Function)(double)>
void asked(Op, Operands in, Results out) {
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].ints[i] = Function(in[0]->floats[i]);
}

// Sums and products wrap. They are computed on unsigned integers, because
// signed overflow is undefined in C++.
int64_t addInt(int64_t a, int64_t b) { return uint64_t(a) + uint64_t(b); }
int64_t subInt(int64_t a, int64_t b) { return uint64_t(a) - uint64_t(b); }
int64_t mulInt(int64_t a, int64_t b) { return uint64_t(a) * uint64_t(b); }
// As in kernels, x / 0 and its remainder are 0, and x / -1 wraps.
int64_t divInt(int64_t a, int64_t b) {
  return b == -1 ? subInt(0, a) : b ? a / b : 0;
}
int64_t remInt(int64_t a, int64_t b) { return b && b != -1 ? a % b : 0; }
int64_t floorDivInt(int64_t a, int64_t b) {
  return divInt(a, b) - (remInt(a, b) != 0 && (a < 0) != (b < 0));
}
int64_t andInt(int64_t a, int64_t b) { return a & b; }
int64_t orInt(int64_t a, int64_t b) { return a | b; }
int64_t xorInt(int64_t a, int64_t b) { return a ^ b; }
int64_t ceilDivInt(int64_t a, int64_t b) {
  return divInt(a, b) + (remInt(a, b) != 0 && (a < 0) == (b < 0));
}
// Shifts by the width or more are undefined in MLIR. Here, shifts by 64 bits or
// more give 0.
int64_t shlInt(int64_t a, int64_t b) {
  return b >= 0 && b < 64 ? uint64_t(a) << b : 0;
}
int64_t shrInt(int64_t a, int64_t b) { return b >= 0 && b < 64 ? a >> b : 0; }
uint64_t shrUnsigned(uint64_t a, uint64_t b) { return b < 64 ? a >> b : 0; }
uint64_t divUnsigned(uint64_t a, uint64_t b) { return b ? a / b : 0; }
uint64_t remUnsigned(uint64_t a, uint64_t b) { return b ? a % b : 0; }
uint64_t maxUnsigned(uint64_t a, uint64_t b) { return std::max(a, b); }
uint64_t minUnsigned(uint64_t a, uint64_t b) { return std::min(a, b); }
int64_t absInt(int64_t a) { return a < 0 ? -uint64_t(a) : a; }
/// Integer powers by repeated squaring. A negative exponent gives 0, except for
/// the bases 1 and -1.
int64_t powInt(int64_t a, int64_t b) {
  if (b < 0)
    return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = a;
  for (; b > 0; b /= 2, square *= square)
    if (b % 2)
      result *= square;
  return result;
}
int64_t maxInt(int64_t a, int64_t b) { return std::max(a, b); }
int64_t minInt(int64_t a, int64_t b) { return std::min(a, b); }

double addF(double a, double b) { return a + b; }
double subF(double a, double b) { return a - b; }
double mulF(double a, double b) { return a * b; }
double divF(double a, double b) { return a / b; }
double negF(double a) { return -a; }
// arith.maximumf and minimumf propagate NaN.
double maxF(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
}
double minF(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
}
double rsqrtF(double a) { return 1 / std::sqrt(a); }
double sigmoidF(double a) { return 1 / (1 + std::exp(-a)); }

void fused(math::FmaOp, Operands in, Results out) {
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].floats[i] =
        std::fma(in[0]->floats[i], in[1]->floats[i], in[2]->floats[i]);
}
void powerInt(math::FPowIOp, Operands in, Results out) {
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].floats[i] = std::pow(in[0]->floats[i], double(in[1]->ints[i]));
}

/// Reinterprets the bits as another type of the same width.
void bitcast(arith::BitcastOp op, Operands in, Results out) {
  Type to = getElementTypeOrSelf(op.getType());
  const Tensor &from = *in[0];
  auto semantics = [](Type type) -> const llvm::fltSemantics & {
    return cast<FloatType>(type).getFloatSemantics();
  };
  for (int64_t i = 0; i < out[0].size(); ++i) {
    APInt bits(to.getIntOrFloatBitWidth(), 0);
    if (from.isFloat()) {
      APFloat value(from.floats[i]);
      bool losesInfo;
      value.convert(semantics(from.type.getElementType()),
                    APFloat::rmNearestTiesToEven, &losesInfo);
      bits = value.bitcastToAPInt();
    } else {
      bits =
          APInt(bits.getBitWidth(), uint64_t(from.ints[i]), /*isSigned=*/true,
                /*implicitTrunc=*/true);
    }
    if (!out[0].isFloat()) {
      out[0].ints[i] = wrapInteger(to, bits.getSExtValue());
      continue;
    }
    APFloat value(semantics(to), bits);
    bool losesInfo;
    value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven,
                  &losesInfo);
    out[0].floats[i] = value.convertToDouble();
  }
}

void compareFloats(arith::CmpFOp op, Operands in, Results out) {
  using P = arith::CmpFPredicate;
  P predicate = op.getPredicate();
  for (int64_t i = 0; i < out[0].size(); ++i) {
    double a = in[0]->floats[i], b = in[1]->floats[i];
    bool unordered = std::isnan(a) || std::isnan(b), value = false;
    switch (predicate) {
    case P::AlwaysFalse:
      value = false;
      break;
    case P::AlwaysTrue:
      value = true;
      break;
    case P::OEQ:
      value = !unordered && a == b;
      break;
    case P::OGT:
      value = !unordered && a > b;
      break;
    case P::OGE:
      value = !unordered && a >= b;
      break;
    case P::OLT:
      value = !unordered && a < b;
      break;
    case P::OLE:
      value = !unordered && a <= b;
      break;
    case P::ONE:
      value = !unordered && a != b;
      break;
    case P::ORD:
      value = !unordered;
      break;
    case P::UEQ:
      value = unordered || a == b;
      break;
    case P::UGT:
      value = unordered || a > b;
      break;
    case P::UGE:
      value = unordered || a >= b;
      break;
    case P::ULT:
      value = unordered || a < b;
      break;
    case P::ULE:
      value = unordered || a <= b;
      break;
    case P::UNE:
      value = unordered || a != b;
      break;
    case P::UNO:
      value = unordered;
      break;
    }
    out[0].ints[i] = value;
  }
}

void compareInts(arith::CmpIOp op, Operands in, Results out) {
  for (int64_t i = 0; i < out[0].size(); ++i) {
    APInt a(64, signedAt(*in[0], i), true), b(64, signedAt(*in[1], i), true);
    out[0].ints[i] = arith::applyCmpPredicate(op.getPredicate(), a, b);
  }
}

void select(arith::SelectOp op, Operands in, Results out) {
  bool single = in[0]->size() == 1; // a scalar condition chooses a whole tensor
  for (int64_t i = 0; i < out[0].size(); ++i)
    copyElement(out[0], i, in[0]->ints[single ? 0 : i] ? *in[1] : *in[2], i);
}

template <typename Op> void sameFloats(Op, Operands in, Results out) {
  out[0].floats = in[0]->floats;
}

void toFloat(arith::SIToFPOp, Operands in, Results out) {
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].floats[i] = signedAt(*in[0], i);
}

void toFloatUnsigned(arith::UIToFPOp, Operands in, Results out) {
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].floats[i] = unsignedAt(*in[0], i);
}

template <typename Op> void toInt(Op op, Operands in, Results out) {
  Type type = getElementTypeOrSelf(op.getType());
  for (int64_t i = 0; i < out[0].size(); ++i) {
    double value = std::trunc(in[0]->floats[i]);
    // MLIR does not define conversions of values that are out of range. In C++
    // they are undefined behavior, which is avoided here by clamping.
    double limit = 9.2e18;
    value = std::isnan(value) ? 0 : std::clamp(value, -limit, limit);
    out[0].ints[i] = wrapInteger(type, static_cast<int64_t>(value));
  }
}

template <typename Op> void intToInt(Op op, Operands in, Results out) {
  Type type = getElementTypeOrSelf(op.getType());
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].ints[i] = wrapInteger(type, signedAt(*in[0], i));
}

void extendUnsigned(arith::ExtUIOp op, Operands in, Results out) {
  Type type = getElementTypeOrSelf(op.getType());
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].ints[i] = wrapInteger(type, unsignedAt(*in[0], i));
}

double geluErf(double x) { return x / 2 * (1 + std::erf(x * M_SQRT1_2)); }
double geluErfSlope(double x) {
  double density = std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  return (1 + std::erf(x * M_SQRT1_2)) / 2 + x * density;
}
const double geluScale = std::sqrt(2 / M_PI);
double geluTanh(double x) {
  return x / 2 * (1 + std::tanh(geluScale * (x + 0.044715 * x * x * x)));
}
double geluTanhSlope(double x) {
  double t = std::tanh(geluScale * (x + 0.044715 * x * x * x));
  double inner = geluScale * (1 + 3 * 0.044715 * x * x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * inner;
}

void gelu(nn::GeluOp op, Operands in, Results out) {
  auto function = op.getKind() == nn::GeluKind::Erf ? geluErf : geluTanh;
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].floats[i] = function(in[0]->floats[i]);
}

void geluGrad(nn::GeluGradOp op, Operands in, Results out) {
  bool erf = op.getKind() == nn::GeluKind::Erf;
  auto slope = erf ? geluErfSlope : geluTanhSlope;
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].floats[i] = in[0]->floats[i] * slope(in[1]->floats[i]);
}

template <typename Op> void identity(Op, Operands in, Results out) {
  out[0].floats = in[0]->floats;
  out[0].ints = in[0]->ints;
}

} // namespace

/// Sums, products, rounding and signs of floats.
static void attachFloatArithmetic(MLIRContext *c) {
  attach<arith::AddFOp, binary<arith::AddFOp, addF>>(c);
  attach<arith::SubFOp, binary<arith::SubFOp, subF>>(c);
  attach<arith::MulFOp, binary<arith::MulFOp, mulF>>(c);
  attach<arith::DivFOp, binary<arith::DivFOp, divF>>(c);
  attach<arith::MaximumFOp, binary<arith::MaximumFOp, maxF>>(c);
  attach<arith::MinimumFOp, binary<arith::MinimumFOp, minF>>(c);
  attach<arith::NegFOp, unary<arith::NegFOp, negF>>(c);
  attach<math::AbsFOp, unary<math::AbsFOp, std::fabs>>(c);
  attach<math::FloorOp, unary<math::FloorOp, std::floor>>(c);
  attach<math::CeilOp, unary<math::CeilOp, std::ceil>>(c);
  attach<math::RoundEvenOp, unary<math::RoundEvenOp, std::nearbyint>>(c);
  attach<arith::MaxNumFOp, binary<arith::MaxNumFOp, std::fmax>>(c);
  attach<arith::MinNumFOp, binary<arith::MinNumFOp, std::fmin>>(c);
  attach<arith::RemFOp, binary<arith::RemFOp, std::fmod>>(c);
  attach<math::CopySignOp, binary<math::CopySignOp, std::copysign>>(c);
  attach<math::RoundOp, unary<math::RoundOp, std::round>>(c);
  attach<math::TruncOp, unary<math::TruncOp, std::trunc>>(c);
  attach<math::FmaOp, fused>(c);
}

/// Exponentials, powers, trigonometric functions, activations.
static void attachFunctions(MLIRContext *c) {
  attach<math::PowFOp, binary<math::PowFOp, std::pow>>(c);
  attach<math::ExpOp, unary<math::ExpOp, std::exp>>(c);
  attach<math::LogOp, unary<math::LogOp, std::log>>(c);
  attach<math::TanhOp, unary<math::TanhOp, std::tanh>>(c);
  attach<math::ErfOp, unary<math::ErfOp, std::erf>>(c);
  attach<math::SqrtOp, unary<math::SqrtOp, std::sqrt>>(c);
  attach<math::RsqrtOp, unary<math::RsqrtOp, rsqrtF>>(c);
  attach<math::SinOp, unary<math::SinOp, std::sin>>(c);
  attach<math::CosOp, unary<math::CosOp, std::cos>>(c);
  attach<nn::SigmoidOp, unary<nn::SigmoidOp, sigmoidF>>(c);
  attach<nn::GeluOp, gelu>(c);
  attach<nn::GeluGradOp, geluGrad>(c);
  attach<math::Atan2Op, binary<math::Atan2Op, std::atan2>>(c);
  attach<math::AcosOp, unary<math::AcosOp, std::acos>>(c);
  attach<math::AcoshOp, unary<math::AcoshOp, std::acosh>>(c);
  attach<math::AsinOp, unary<math::AsinOp, std::asin>>(c);
  attach<math::AsinhOp, unary<math::AsinhOp, std::asinh>>(c);
  attach<math::AtanOp, unary<math::AtanOp, std::atan>>(c);
  attach<math::AtanhOp, unary<math::AtanhOp, std::atanh>>(c);
  attach<math::CbrtOp, unary<math::CbrtOp, std::cbrt>>(c);
  attach<math::CoshOp, unary<math::CoshOp, std::cosh>>(c);
  attach<math::SinhOp, unary<math::SinhOp, std::sinh>>(c);
  attach<math::TanOp, unary<math::TanOp, std::tan>>(c);
  attach<math::ErfcOp, unary<math::ErfcOp, std::erfc>>(c);
  attach<math::Exp2Op, unary<math::Exp2Op, std::exp2>>(c);
  attach<math::ExpM1Op, unary<math::ExpM1Op, std::expm1>>(c);
  attach<math::Log10Op, unary<math::Log10Op, std::log10>>(c);
  attach<math::Log1pOp, unary<math::Log1pOp, std::log1p>>(c);
  attach<math::Log2Op, unary<math::Log2Op, std::log2>>(c);
  attach<math::FPowIOp, powerInt>(c);
}

static void attachIntegerArithmetic(MLIRContext *c) {
  attach<arith::AddIOp, binaryInt<arith::AddIOp, addInt>>(c);
  attach<arith::SubIOp, binaryInt<arith::SubIOp, subInt>>(c);
  attach<arith::MulIOp, binaryInt<arith::MulIOp, mulInt>>(c);
  attach<arith::DivSIOp, binaryInt<arith::DivSIOp, divInt>>(c);
  attach<arith::FloorDivSIOp, binaryInt<arith::FloorDivSIOp, floorDivInt>>(c);
  attach<arith::RemSIOp, binaryInt<arith::RemSIOp, remInt>>(c);
  attach<arith::AndIOp, binaryInt<arith::AndIOp, andInt>>(c);
  attach<arith::OrIOp, binaryInt<arith::OrIOp, orInt>>(c);
  attach<arith::XOrIOp, binaryInt<arith::XOrIOp, xorInt>>(c);
  attach<arith::MaxSIOp, binaryInt<arith::MaxSIOp, maxInt>>(c);
  attach<arith::MinSIOp, binaryInt<arith::MinSIOp, minInt>>(c);
  attach<arith::CeilDivSIOp, binaryInt<arith::CeilDivSIOp, ceilDivInt>>(c);
  attach<arith::ShLIOp, binaryInt<arith::ShLIOp, shlInt>>(c);
  attach<arith::ShRSIOp, binaryInt<arith::ShRSIOp, shrInt>>(c);
  attach<arith::ShRUIOp, binaryUnsigned<arith::ShRUIOp, shrUnsigned>>(c);
  attach<arith::DivUIOp, binaryUnsigned<arith::DivUIOp, divUnsigned>>(c);
  attach<arith::RemUIOp, binaryUnsigned<arith::RemUIOp, remUnsigned>>(c);
  attach<arith::MaxUIOp, binaryUnsigned<arith::MaxUIOp, maxUnsigned>>(c);
  attach<arith::MinUIOp, binaryUnsigned<arith::MinUIOp, minUnsigned>>(c);
  attach<math::AbsIOp, unaryInt<math::AbsIOp, absInt>>(c);
  attach<math::IPowIOp, binaryInt<math::IPowIOp, powInt>>(c);
}

/// Attaches the models of comparisons, and of the selection by a condition.
static void attachPredicates(MLIRContext *c) {
  attach<math::IsFiniteOp, asked<math::IsFiniteOp, std::isfinite>>(c);
  attach<math::IsInfOp, asked<math::IsInfOp, std::isinf>>(c);
  attach<math::IsNaNOp, asked<math::IsNaNOp, std::isnan>>(c);
  attach<math::IsNormalOp, asked<math::IsNormalOp, std::isnormal>>(c);
  attach<arith::CmpFOp, compareFloats>(c);
  attach<arith::CmpIOp, compareInts>(c);
  attach<arith::SelectOp, select>(c);
}

/// Attaches the models of conversions between types, and of operations that
/// return their operand unchanged.
static void attachConversions(MLIRContext *c) {
  attach<arith::ExtFOp, sameFloats<arith::ExtFOp>>(c);
  attach<arith::TruncFOp, sameFloats<arith::TruncFOp>>(c);
  attach<arith::SIToFPOp, toFloat>(c);
  attach<arith::UIToFPOp, toFloatUnsigned>(c);
  attach<arith::FPToSIOp, toInt<arith::FPToSIOp>>(c);
  attach<arith::FPToUIOp, toInt<arith::FPToUIOp>>(c);
  attach<arith::BitcastOp, bitcast>(c);
  attach<arith::ExtSIOp, intToInt<arith::ExtSIOp>>(c);
  attach<arith::ExtUIOp, extendUnsigned>(c);
  attach<arith::TruncIOp, intToInt<arith::TruncIOp>>(c);
  attach<nn::SaveOp, identity<nn::SaveOp>>(c);
  attach<nn::RematerializeOp, identity<nn::RematerializeOp>>(c);
}

void cleave::evaluate::attachElementwise(MLIRContext *c) {
  attachFloatArithmetic(c);
  attachFunctions(c);
  attachIntegerArithmetic(c);
  attachPredicates(c);
  attachConversions(c);
}
