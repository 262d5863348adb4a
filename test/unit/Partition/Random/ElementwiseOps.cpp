// Generates elementwise operations: sums, products, selects, and non-linear
// functions.

#include "Generator.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

template <typename Op> bool addition(Generator &g) {
  Entry x = g.any(), y = g.like(x.type());
  if (x.bound + y.bound > g.maxBound)
    return false;
  g.give(Op::create(g.b, g.loc, x.value, y.value), x.bound + y.bound,
         x.exact && y.exact);
  return true;
}

bool product(Generator &g) {
  Entry x = g.any(), y = g.like(x.type());
  if (x.bound * y.bound > g.maxBound)
    return false;
  g.give(arith::MulFOp::create(g.b, g.loc, x.value, y.value), x.bound * y.bound,
         x.exact && y.exact);
  return true;
}

template <typename Op> bool extremum(Generator &g) {
  Entry x = g.any(), y = g.like(x.type());
  g.give(Op::create(g.b, g.loc, x.value, y.value), std::max(x.bound, y.bound),
         x.exact && y.exact);
  return true;
}

bool negation(Generator &g) {
  Entry x = g.any();
  g.give(arith::NegFOp::create(g.b, g.loc, x.value), x.bound, x.exact);
  return true;
}

bool absolute(Generator &g) {
  Entry x = g.any();
  g.give(math::AbsFOp::create(g.b, g.loc, x.value), x.bound, x.exact);
  return true;
}

/// Generates a division by 1 + y^2, so that no divisor is zero.
bool division(Generator &g) {
  Entry x = g.any(), y = g.tamed(g.like(x.type()), 10);
  Value one = nn::createSplat(g.b, g.loc, x.type(), 1);
  Value square = arith::MulFOp::create(g.b, g.loc, y.value, y.value);
  Value below = arith::AddFOp::create(g.b, g.loc, one, square);
  g.give(arith::DivFOp::create(g.b, g.loc, x.value, below), x.bound, false);
  return true;
}

/// Generates a function with a bounded derivative.
bool smooth(Generator &g) {
  Entry x = g.any();
  switch (g.random.below(9)) {
  case 0:
    g.give(math::TanhOp::create(g.b, g.loc, x.value), 1, false);
    return true;
  case 1:
    g.give(math::SinOp::create(g.b, g.loc, g.tamed(x, 100).value), 1, false);
    return true;
  case 2:
  case 8:
    g.give(nn::SigmoidOp::create(g.b, g.loc, x.value), 1, false);
    return true;
  case 3:
  case 7:
    g.give(nn::GeluOp::create(g.b, g.loc, x.value.getType(),
                              g.random.chance(1, 2) ? nn::GeluKind::Tanh
                                                    : nn::GeluKind::Erf,
                              x.value),
           x.bound, false);
    return true;
  case 4: {
    Value one = nn::createSplat(g.b, g.loc, x.type(), 1);
    Value least = arith::AddFOp::create(
        g.b, g.loc, one, math::AbsFOp::create(g.b, g.loc, x.value).getResult());
    g.give(math::LogOp::create(g.b, g.loc, least), x.bound, false);
    return true;
  }
  case 5:
    g.give(math::ExpOp::create(g.b, g.loc, g.tamed(x, 6).value), 404, false);
    return true;
  default: {
    Entry y = g.tamed(g.like(x.type()), 20);
    g.give(nn::GeluGradOp::create(g.b, g.loc, x.value.getType(),
                                  nn::GeluKind::Tanh, x.value, y.value),
           2 * x.bound, false);
    return true;
  }
  }
}

/// Generates a select. Its condition is an argument, or compares values without
/// rounding errors, or compares the index of each element in the unsharded
/// tensor, as the causal mask of attention does.
bool choice(Generator &g) {
  Entry x = g.any(), y = g.like(x.type());
  Value condition;
  if (x.rank() > 0 && g.random.chance(1, 2)) {
    auto type = g.ints(x.shape());
    Value i = nn::IotaOp::create(g.b, g.loc, type, g.random.below(x.rank()));
    Value j = nn::IotaOp::create(g.b, g.loc, type, g.random.below(x.rank()));
    if (g.random.chance(1, 2))
      j = g.like(type).value;
    condition =
        arith::CmpIOp::create(g.b, g.loc, arith::CmpIPredicate::sle, i, j);
  } else if (g.random.chance(1, 2)) {
    condition = g.argument(g.bools(x.shape())).value;
  } else {
    Entry l = g.like(x.type(), 1e9, true), r = g.like(x.type(), 1e9, true);
    condition = arith::CmpFOp::create(g.b, g.loc, arith::CmpFPredicate::OLT,
                                      l.value, r.value);
  }
  g.give(arith::SelectOp::create(g.b, g.loc, condition, x.value, y.value),
         std::max(x.bound, y.bound), x.exact && y.exact);
  return true;
}

/// Converts integers to floats.
bool conversion(Generator &g) {
  RankedTensorType type = g.ints(g.shape(0, 4));
  Entry x = g.like(type), y = g.like(type);
  if (x.bound * y.bound > 1e6)
    return false;
  Value sum = g.random.chance(1, 2)
                  ? Value(arith::AddIOp::create(g.b, g.loc, x.value, y.value))
                  : Value(arith::MulIOp::create(g.b, g.loc, x.value, y.value));
  g.give(sum, std::max(x.bound + y.bound, x.bound * y.bound), true);
  g.give(arith::SIToFPOp::create(g.b, g.loc, g.floats(type.getShape()), sum),
         std::max(x.bound + y.bound, x.bound * y.bound), true);
  return true;
}

} // namespace

ArrayRef<Family> cleave::random::elementwiseFamilies() {
  static const Family families[] = {
      {"add", 10, addition<arith::AddFOp>},
      {"sub", 4, addition<arith::SubFOp>},
      {"mul", 8, product},
      {"maximum", 3, extremum<arith::MaximumFOp>},
      {"minimum", 2, extremum<arith::MinimumFOp>},
      {"neg", 3, negation},
      {"abs", 2, absolute},
      {"div", 4, division},
      {"smooth", 10, smooth},
      {"select", 7, choice},
      {"conversion", 3, conversion},
  };
  return families;
}
