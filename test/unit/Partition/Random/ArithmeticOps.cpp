// Generates those operations of arith and math that the other files do not
// generate, each on operands for which it is defined. Discontinuous operations
// (rounding, remainders, operations on bits) get only operands with exact
// values (integers without rounding errors).

#include "Generator.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

template <typename Op, typename... Operands>
Value make(Generator &g, Operands... operands) {
  return Op::create(g.b, g.loc, operands...);
}

/// Returns 1 + x^2 or 1 + |x|.
Value above1(Generator &g, Value x) {
  Value one =
      nn::createSplat(g.b, g.loc, cast<RankedTensorType>(x.getType()), 1);
  Value square = g.random.chance(1, 2) ? make<arith::MulFOp>(g, x, x)
                                       : make<math::AbsFOp>(g, x);
  return make<arith::AddFOp>(g, one, square);
}

/// Returns a value in (-1/2, 1/2) that is computed from x.
Value inside1(Generator &g, Value x) {
  Value half =
      nn::createSplat(g.b, g.loc, cast<RankedTensorType>(x.getType()), 0.5);
  return make<arith::MulFOp>(g, make<math::TanhOp>(g, x), half);
}

using Unary = Value (*)(Generator &, Value);

/// Generates a continuous function of one operand. The operand's magnitude is
/// at most 6, so the result's is at most 2^12.
bool unary(Generator &g) {
  static const Unary functions[] = {
      make<math::AtanOp, Value>,
      make<math::CosOp, Value>,
      make<math::CoshOp, Value>,
      make<math::SinhOp, Value>,
      make<math::AsinhOp, Value>,
      make<math::ErfOp, Value>,
      make<math::ErfcOp, Value>,
      make<math::Exp2Op, Value>,
      make<math::ExpM1Op, Value>,
      [](Generator &g, Value x) {
        return make<math::AcosOp>(g, inside1(g, x));
      },
      [](Generator &g, Value x) {
        return make<math::AsinOp>(g, inside1(g, x));
      },
      [](Generator &g, Value x) {
        return make<math::AtanhOp>(g, inside1(g, x));
      },
      [](Generator &g, Value x) { return make<math::TanOp>(g, inside1(g, x)); },
      [](Generator &g, Value x) {
        Value two =
            nn::createSplat(g.b, g.loc, cast<RankedTensorType>(x.getType()), 2);
        return make<math::AcoshOp>(
            g, Value(make<arith::MulFOp>(g, above1(g, x), two)));
      },
      [](Generator &g, Value x) { return make<math::CbrtOp>(g, above1(g, x)); },
      [](Generator &g, Value x) {
        return make<math::Log10Op>(g, above1(g, x));
      },
      [](Generator &g, Value x) {
        return make<math::Log1pOp>(g, above1(g, x));
      },
      [](Generator &g, Value x) { return make<math::Log2Op>(g, above1(g, x)); },
      [](Generator &g, Value x) { return make<math::SqrtOp>(g, above1(g, x)); },
      [](Generator &g, Value x) {
        return make<math::RsqrtOp>(g, above1(g, x));
      },
  };
  Entry x = g.tamed(g.any(), 6);
  g.give(g.random.pick(functions)(g, x.value), 4096, false);
  return true;
}

/// Generates a function that is continuous in both operands.
bool binary(Generator &g) {
  Entry x = g.any(), y = g.like(x.type());
  switch (g.random.below(6)) {
  case 0:
    g.give(make<arith::MaxNumFOp>(g, x.value, y.value),
           std::max(x.bound, y.bound), x.exact && y.exact);
    return true;
  case 1:
    g.give(make<arith::MinNumFOp>(g, x.value, y.value),
           std::max(x.bound, y.bound), x.exact && y.exact);
    return true;
  case 2: {
    Value away = above1(g, y.value);
    g.give(make<math::Atan2Op>(g, x.value, away), 2, false);
    return true;
  }
  case 3: {
    Value base = above1(g, g.tamed(x, 6).value);
    g.give(make<math::PowFOp>(g, base, g.tamed(y, 2).value), 2048, false);
    return true;
  }
  case 4: {
    Entry z = g.like(x.type());
    double bound = x.bound * y.bound + z.bound;
    if (bound > g.maxBound)
      return false;
    g.give(make<math::FmaOp>(g, x.value, y.value, z.value), bound,
           x.exact && y.exact && z.exact);
    return true;
  }
  default: {
    Value three = nn::createSplat(g.b, g.loc, g.ints(x.shape()), 3);
    Value power =
        make<arith::AndIOp>(g, g.like(g.ints(x.shape())).value, three);
    g.give(make<math::FPowIOp>(g, g.tamed(x, 6).value, power), 216, false);
    return true;
  }
  }
}

/// Generates a discontinuous function, such as floor or a remainder. Its
/// operands are exact, that is, integers without rounding errors, so the result
/// is exact, too.
bool rounding(Generator &g) {
  Entry x = g.anyExact(0, 4);
  Value half = nn::createSplat(g.b, g.loc, x.type(), 0.5);
  Value halves = make<arith::MulFOp>(g, x.value, half);
  switch (g.random.below(9)) {
  case 0:
    g.give(make<math::FloorOp>(g, halves), x.bound, true);
    return true;
  case 1:
    g.give(make<math::CeilOp>(g, halves), x.bound, true);
    return true;
  case 2:
    g.give(make<math::RoundOp>(g, halves), x.bound, true);
    return true;
  case 3:
    g.give(make<math::RoundEvenOp>(g, halves), x.bound, true);
    return true;
  case 4:
    g.give(make<math::TruncOp>(g, halves), x.bound, true);
    return true;
  case 5:
    g.give(make<arith::RemFOp>(g, x.value,
                               above1(g, g.like(x.type(), 1e4, true).value)),
           x.bound, true);
    return true;
  case 6: {
    Value y = g.like(x.type(), 1e9, true).value;
    g.give(make<math::CopySignOp>(g, x.value, make<arith::AddFOp>(g, y, half)),
           x.bound, true);
    return true;
  }
  case 7: {
    // Converts the value to an integer and back.
    Type wide = g.b.getI64Type();
    Value whole = g.random.chance(1, 2)
                      ? make<arith::FPToSIOp>(g, x.type().clone(wide), halves)
                      : make<arith::FPToUIOp>(g, x.type().clone(wide),
                                              make<math::AbsFOp>(g, halves));
    g.give(whole, x.bound, true);
    g.give(make<arith::UIToFPOp>(g, x.type(), make<math::AbsIOp>(g, whole)),
           x.bound, true);
    return true;
  }
  default: {
    // The bits are only passed through two bitcasts and must be preserved. nn
    // has no operations on 16-bit integers.
    unsigned width = x.type().getElementTypeBitWidth();
    if (width == 16 || g.style.compiled) // nn-widen supports no other widths
      return false;
    Value bits = make<arith::BitcastOp>(
        g, x.type().clone(g.b.getIntegerType(width)), x.value);
    g.give(make<arith::BitcastOp>(g, x.type(), bits), x.bound, true);
    return true;
  }
  }
}

/// Generates a test whether each number is finite, infinite, NaN or normal, and
/// a select by its result.
bool question(Generator &g) {
  Entry x = g.anyExact(0, 4), y = g.like(x.type());
  // Either infinities and NaN (x / 0) or finite numbers (x).
  Value zero = nn::createSplat(g.b, g.loc, x.type(), 0);
  Value odd =
      g.random.chance(1, 2) ? make<arith::DivFOp>(g, x.value, zero) : x.value;
  Value answer;
  switch (g.random.below(4)) {
  case 0:
    answer = make<math::IsFiniteOp>(g, odd);
    break;
  case 1:
    answer = make<math::IsInfOp>(g, odd);
    break;
  case 2:
    answer = make<math::IsNaNOp>(g, odd);
    break;
  default:
    answer = make<math::IsNormalOp>(g, odd);
  }
  g.give(make<arith::SelectOp>(g, answer, x.value, y.value),
         std::max(x.bound, y.bound), x.exact && y.exact);
  return true;
}

/// Generates a conversion to a type of another width and back.
bool width(Generator &g) {
  if (g.random.chance(1, 2)) {
    Entry x = g.any();
    Type other = g.b.getF64Type();
    bool narrows = x.type().getElementType() == other;
    RankedTensorType type = x.type().clone(narrows ? g.b.getF32Type() : other);
    if (narrows) {
      Value narrow = make<arith::TruncFOp>(g, type, x.value);
      g.give(make<arith::ExtFOp>(g, x.type(), narrow), x.bound, x.exact);
    } else {
      Value wide = make<arith::ExtFOp>(g, type, x.value);
      g.give(make<arith::TruncFOp>(g, x.type(), wide), x.bound, x.exact);
    }
    return true;
  }
  Entry x = g.like(g.ints(g.shape(0, 4)));
  if (g.random.chance(1, 2)) {
    Value narrow =
        make<arith::TruncIOp>(g, x.type().clone(g.b.getI32Type()), x.value);
    g.give(make<arith::ExtSIOp>(g, x.type(), narrow), x.bound, true);
    return true;
  }
  Value small = g.like(g.bools(x.shape())).value;
  g.give(make<arith::ExtUIOp>(g, x.type(), small), 1, true);
  return true;
}

/// Generates integer operations. Only the last bits of their results are kept,
/// so that values stay small.
bool integers(Generator &g) {
  RankedTensorType type = g.ints(g.shape(0, 4));
  Value x = g.like(type).value, y = g.like(type).value;
  auto number = [&](double value) {
    return nn::createSplat(g.b, g.loc, type, value);
  };
  Value odd = make<arith::OrIOp>(g, y, number(1)); // is not zero
  Value few = make<arith::AndIOp>(g, y, number(3));
  Value result;
  switch (g.random.below(17)) {
  case 0:
    result = make<arith::SubIOp>(g, x, y);
    break;
  case 1:
    result = make<arith::XOrIOp>(g, x, y);
    break;
  case 2:
    result = make<arith::ShLIOp>(g, x, few);
    break;
  case 3:
    result = make<arith::ShRSIOp>(g, x, few);
    break;
  case 4:
    result = make<arith::ShRUIOp>(g, x, few);
    break;
  case 5:
    result = make<arith::DivSIOp>(g, x, odd);
    break;
  case 6:
    result = make<arith::DivUIOp>(g, x, odd);
    break;
  case 7:
    result = make<arith::RemSIOp>(g, x, odd);
    break;
  case 8:
    result = make<arith::RemUIOp>(g, x, odd);
    break;
  case 9:
    result = make<arith::CeilDivSIOp>(g, x, odd);
    break;
  case 10:
    result = make<arith::FloorDivSIOp>(g, x, odd);
    break;
  case 11:
    result = make<arith::MaxSIOp>(g, x, y);
    break;
  case 12:
    result = make<arith::MinSIOp>(g, x, y);
    break;
  case 13:
    result = make<arith::MaxUIOp>(g, x, y);
    break;
  case 14:
    result = make<arith::MinUIOp>(g, x, y);
    break;
  case 15:
    result = make<math::IPowIOp>(g, x, few);
    break;
  default:
    result = make<math::AbsIOp>(g, x);
  }
  g.give(make<arith::AndIOp>(g, result, number(7)), 7, true);
  return true;
}

} // namespace

ArrayRef<Family> cleave::random::arithmeticFamilies() {
  static const Family families[] = {
      {"unary", 5, unary},       {"binary", 4, binary},
      {"rounding", 4, rounding}, {"question", 2, question},
      {"width", 2, width},       {"integers", 5, integers},
  };
  return families;
}
