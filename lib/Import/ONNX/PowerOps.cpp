// Pow, whose operands may have two types.

#include "Families.h"

#include <cmath>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;

namespace cleave::importer {

namespace {

/// Wraps where the power does not fit. Below zero, the power's whole part.
int64_t powerOfInts(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t power = 1, factor = base;
  for (; exponent; exponent >>= 1, factor *= factor)
    if (exponent & 1)
      power *= factor;
  return int64_t(power);
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

/// The type of a power is that of its base, whatever the exponent's.
Error lowerPowOfIntegers(Node &node) {
  const Operand &x = node.input(0), &y = node.input(1);
  if (x.isHost() && y.isHost()) {
    // Through doubles where the exponent is no integer, as in NumPy.
    auto power = isInteger(y.type)
                     ? mapInts(x.type, {&*x.host, &*y.host}, kPow.onInts)
                     : mapFloats(x.type, {&*x.host, &*y.host}, kPow.onFloats);
    if (!power)
      return power.takeError();
    node.set(0, Operand(*power));
    return Error::success();
  }
  std::optional<double> exponent = y.splatValue();
  CLEAVE_TRY(shape, broadcastShapes(x.shape, y.shape));
  bool whole = exponent && *exponent == std::trunc(*exponent) &&
               *exponent >= 0 && *exponent <= 64;
  if (!whole)
    return reason("integers that depend on data have powers only where the "
                  "exponent is a known integer from 0 to 64; cast them to "
                  "floats");
  CLEAVE_TRY(wide, node.broadcast(x, shape));
  if (*exponent == 0)
    return one(node, node.splat(x.type, shape, 1));
  return one(node, productOf(node, wide, int64_t(*exponent)));
}

/// Small powers are products, so that one spelling of x^2 reaches the passes.
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
  // What is lost of a wider exponent would show in the power.
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
