// Pow, whose operands may have two types.

#include "Families.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <limits>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;

namespace cleave::importer {

namespace {

/// base^exponent in wrapping integer arithmetic.
int64_t wrappingPower(uint64_t base, uint64_t exponent) {
  uint64_t power = 1;
  for (; exponent; exponent >>= 1, base *= base)
    if (exponent & 1)
      power *= base;
  return int64_t(power);
}

/// Below zero, the power's whole part.
int64_t powerOfInts(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  return wrappingPower(base, exponent);
}
const Elementwise kPow = {
    [](const double *v) { return std::pow(v[0], v[1]); },
    [](const int64_t *v) { return powerOfInts(v[0], v[1]); },
    [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
      if (!isa<FloatType>(getElementTypeOrSelf(v[0].getType())))
        return {};
      return math::PowFOp::create(b, loc, v[0], v[1]);
    }};

/// x * x * ..., by squaring.
Expected<Operand> productOf(Node &node, Operand x, int64_t count) {
  std::optional<Operand> product;
  for (;; count >>= 1) {
    if (count & 1) {
      auto next = product ? multiply(node, *product, x) : Expected<Operand>(x);
      if (!next)
        return next.takeError();
      product = *next;
    }
    if (count <= 1)
      return *product;
    CLEAVE_TRY(square, multiply(node, x, x));
    x = square;
  }
}

/// The largest integer exponent for which a power is computed as a product of
/// factors at run time.
constexpr int64_t kMostFactors = 64;

/// The largest double that converts to a 64-bit integer without overflow.
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() - 1023;

/// Rounds an integer power to the nearest double and back, as NumPy computes
/// integer powers with float exponents. Integers beyond the exact range stay
/// unchanged.
const Elementwise kThroughDouble = {
    /*onFloats=*/nullptr,
    [](const int64_t *v) {
      return v[0] < -kLargest || v[0] > kLargest ? v[0] : int64_t(double(v[0]));
    },
    [](OpBuilder &b, Location loc, ArrayRef<Value> v) -> Value {
      auto type = cast<RankedTensorType>(v[0].getType());
      auto limit = [&](int64_t value) -> Value {
        return arith::ConstantOp::create(
            b, loc,
            DenseElementsAttr::get(type,
                                   b.getIntegerAttr(b.getI64Type(), value)));
      };
      Value below = arith::MinSIOp::create(b, loc, v[0], limit(kLargest));
      Value inside = arith::MaxSIOp::create(b, loc, below, limit(-kLargest));
      Value wide = arith::SIToFPOp::create(
          b, loc, RankedTensorType::get(type.getShape(), b.getF64Type()),
          inside);
      Value nearest = arith::FPToSIOp::create(b, loc, type, wide);
      Value fits =
          arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, inside, v[0]);
      return arith::SelectOp::create(b, loc, fits, nearest, v[0]);
    }};

/// Evaluates powers of integers exactly, with wrapping. Unsigned 64-bit bases
/// are never negative.
Expected<HostTensor> powerOfKnownInts(const Operand &x, const Operand &y) {
  auto power = [&](const int64_t *v) {
    if (y.type == Element::U64 || v[1] >= 0)
      return wrappingPower(v[0], v[1]);
    return x.type == Element::U64 ? int64_t(v[0] == 1)
                                  : powerOfInts(v[0], v[1]);
  };
  return mapInts(x.type, {&*x.host, &*y.host}, power);
}

/// Evaluates powers of integers with float exponents in double, as NumPy does.
/// A power that does not fit the integer type is undefined. If the exponent is
/// small enough for a product, such a power wraps; otherwise it is refused.
Expected<HostTensor> powerByKnownFloats(const Operand &x, const Operand &y) {
  bool hasSign = x.type == Element::I8 || x.type == Element::I16 ||
                 x.type == Element::I32 || x.type == Element::I64;
  double beyond = std::ldexp(1.0, 8 * int(byteSize(x.type)) - hasSign);
  double least = hasSign ? -beyond : 0;
  std::string problem;
  HostTensor exponents = y.host->cast(Element::F64);
  // The elementwise function takes only integers here, so float exponents are
  // passed as their bits and nothing is rounded.
  HostTensor bits(Element::I64, exponents.shape());
  for (auto [at, exponent] : llvm::enumerate(exponents.floats()))
    bits.setInt(at, llvm::bit_cast<int64_t>(exponent));
  auto power = [&](const int64_t *v) -> int64_t {
    double exponent = llvm::bit_cast<double>(v[1]);
    bool isUnsigned = x.type == Element::U64;
    if (exponent == std::trunc(exponent) && exponent >= 0 &&
        exponent <= kMostFactors) {
      int64_t product = wrappingPower(v[0], uint64_t(exponent));
      if (isUnsigned && uint64_t(product) <= 2 * uint64_t(kLargest))
        return int64_t(uint64_t(double(uint64_t(product))));
      return x.type == Element::I64 ? kThroughDouble.onInts(&product) : product;
    }
    double base = isUnsigned ? double(uint64_t(v[0])) : double(v[0]);
    double power = std::trunc(std::pow(base, exponent));
    if (power >= least && power < beyond)
      return isUnsigned ? int64_t(uint64_t(power)) : int64_t(power);
    if (problem.empty())
      problem = llvm::formatv("{0}^{1}", base, exponent).str();
    return 0;
  };
  CLEAVE_TRY(result, mapInts(x.type, {&*x.host, &bits}, power));
  if (!problem.empty())
    return reason("the power " + problem + " is no number of type " +
                  nameOf(x.type) + "; cast the base to floats");
  return result;
}

/// Lowers Pow for integers. The power has the type of its base, whatever the
/// type of the exponent.
Error lowerPowOfIntegers(Node &node) {
  const Operand &x = node.input(0), &y = node.input(1);
  if (x.isHost() && y.isHost()) {
    CLEAVE_TRY(power, isInteger(y.type) ? powerOfKnownInts(x, y)
                                        : powerByKnownFloats(x, y));
    node.set(0, Operand(power));
    return Error::success();
  }
  std::optional<double> exponent = y.splatValue();
  CLEAVE_TRY(shape, broadcastShapes(x.shape, y.shape));
  bool whole = exponent && *exponent == std::trunc(*exponent) &&
               *exponent >= 0 && *exponent <= kMostFactors;
  if (!whole)
    return reason("integers that depend on data have powers only where the "
                  "exponent is a known integer from 0 to 64; cast them to "
                  "floats");
  CLEAVE_TRY(wide, node.broadcast(x, shape));
  if (*exponent == 0)
    return one(node, node.splat(x.type, shape, 1));
  CLEAVE_TRY(power, productOf(node, wide, int64_t(*exponent)));
  if (isInteger(y.type) || x.type != Element::I64)
    return one(node, power);
  return one(node, node.map(kThroughDouble, x.type, {power}));
}

/// Powers with small integer exponents become products. So passes see x^2 in
/// one form only, as x * x.
Error lowerPow(Node &node) {
  const Operand &x = node.input(0);
  if (isInteger(x.type))
    return lowerPowOfIntegers(node);
  std::optional<double> exponent = node.input(1).splatValue();
  bool scalar =
      node.input(1).shape.empty() || product(node.input(1).shape) == 1;
  if (exponent && scalar && isFloat(x.type) && !x.isHost() &&
      node.input(1).rank() <= x.rank()) {
    if (*exponent == 1) {
      CLEAVE_TRY(value, node.value(x));
      return one(node, Operand(value));
    }
    if (*exponent == 2)
      return one(node, multiply(node, x, x));
    if (*exponent == 3) {
      CLEAVE_TRY(square, multiply(node, x, x));
      return one(node, multiply(node, square, x));
    }
    if (*exponent == 0.5)
      return one(node, sqrt(node, x));
    if (*exponent == -1)
      return one(node, divide(node, node.splat(x.type, {}, 1), x));
    if (*exponent == -0.5) {
      CLEAVE_TRY(root, sqrt(node, x));
      return one(node, divide(node, node.splat(x.type, {}, 1), root));
    }
  }
  const Operand &y = node.input(1);
  CLEAVE_TRY(power, node.cast(y, x.type));
  // An exponent of a wider type could be rounded when it is cast to the type of
  // the base. This would change the power.
  bool loses = isInteger(y.type) || byteSize(y.type) > byteSize(x.type);
  if (power.isHost() && y.isHost() && loses) {
    HostTensor back = power.host->cast(y.type);
    loses = !llvm::equal(back.ints(), y.host->ints()) ||
            !llvm::equal(back.floats(), y.host->floats());
  }
  if (!loses || x.type == Element::F64)
    return one(node, node.map(kPow, x.type, {x, power}));
  CLEAVE_TRY(wideX, node.cast(x, Element::F64));
  CLEAVE_TRY(wideY, node.cast(y, Element::F64));
  CLEAVE_TRY(wide, node.map(kPow, Element::F64, {wideX, wideY}));
  return one(node, node.cast(wide, x.type));
}

} // namespace

void addPowerOps(std::vector<OnnxOp> &table) {
  table.push_back(
      {"Pow", kOldest, kNewest, 1, "arith.mulf math.powf", lowerPow});
}

} // namespace cleave::importer
