// Generates dropout and optimizer operations.

#include "Generator.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

bool dropout(Generator &g) {
  Entry x = g.any(1, 4);
  Value seed = g.like(g.ints({})).value, step = g.like(g.ints({})).value;
  Value ids = g.like(g.ints({x.shape()[0]})).value;
  g.give(nn::DropoutOp::create(g.b, g.loc, x.value.getType(), x.value, seed,
                               step, ids, ValueRange(), APFloat(0.5),
                               g.random.below(4), ArrayRef<int64_t>(x.shape())),
         2 * x.bound, x.exact);
  return true;
}

bool adamw(Generator &g) {
  Entry p = g.any(0, 4);
  RankedTensorType type = p.type();
  Entry m = g.like(type, 1e4), root = g.like(type, 100),
        gradient = g.like(type, 1e4);
  Entry scale = g.like(g.floats({}), 10), rate = g.like(g.floats({}), 10);
  // The operands of an optimizer: second moments are not negative, steps count
  // from 1, and epsilon is large enough that a gradient near zero does not
  // amplify rounding errors.
  Value v = arith::MulFOp::create(g.b, g.loc, root.value, root.value);
  Value step = nn::createSplat(g.b, g.loc, g.ints({}), 3);
  auto op = nn::AdamWOp::create(g.b, g.loc, TypeRange{type, type, type},
                                p.value, m.value, v, gradient.value,
                                scale.value, rate.value, step, APFloat(0.5),
                                APFloat(0.75), APFloat(0.25), APFloat(0.125));
  double g1 = gradient.bound * scale.bound;
  g.give(op.getNewParameter(), 3 * p.bound + 100 * (m.bound + g1), false);
  if (g.random.chance(1, 3)) {
    g.give(op.getNewM(), m.bound + g1, false);
    g.give(op.getNewV(), root.bound * root.bound + g1 * g1, false);
  }
  return true;
}

bool sgd(Generator &g) {
  Entry p = g.any(0, 4);
  RankedTensorType type = p.type();
  Entry velocity = g.like(type, 1e4), gradient = g.like(type, 1e4);
  Entry scale = g.like(g.floats({}), 100), rate = g.like(g.floats({}), 100);
  bool exact =
      p.exact && velocity.exact && gradient.exact && scale.exact && rate.exact;
  auto op = nn::SgdOp::create(g.b, g.loc, TypeRange{type, type}, p.value,
                              velocity.value, gradient.value, scale.value,
                              rate.value, APFloat(2.0), APFloat(1.0));
  double next = 2 * velocity.bound + gradient.bound * scale.bound + p.bound;
  g.give(op.getNewParameter(), p.bound + rate.bound * next, exact);
  g.give(op.getNewVelocity(), next, exact);
  return true;
}

} // namespace

ArrayRef<Family> cleave::random::trainingFamilies() {
  static const Family families[] = {
      {"dropout", 6, dropout},
      {"adamw", 5, adamw},
      {"sgd", 4, sgd},
  };
  return families;
}
