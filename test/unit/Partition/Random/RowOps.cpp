// Generates softmax, norms and cross-entropy, and their gradients.

#include "Generator.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

/// The epsilon of norms is large enough that a row of equal elements does not
/// amplify rounding errors.
constexpr double kEpsilon = 0.125;

/// Returns whether a norm of this value cancels. A row of one element minus its
/// mean is zero. In bf16, however, it is a rounding error that depends on how
/// often the element was rounded.
bool cancels(Generator &g, const Entry &x) {
  return g.style.bf16 && x.shape().back() == 1;
}

RankedTensorType rowsOf(Generator &g, const Entry &x) {
  return g.floats(x.shape().drop_back());
}

bool softmax(Generator &g) {
  Entry x = g.tamed(g.any(1, 4), 30);
  g.give(nn::SoftmaxOp::create(g.b, g.loc, x.value), 1, false);
  return true;
}

bool layerNorm(Generator &g) {
  Entry x = g.tamed(g.any(1, 4), 100);
  if (cancels(g, x))
    return false;
  RankedTensorType last = g.floats(x.shape().take_back());
  Entry scale = g.tamed(g.like(last), 10), shift = g.like(last, 1e4);
  auto norm = nn::LayerNormOp::create(
      g.b, g.loc, TypeRange{x.type(), rowsOf(g, x), rowsOf(g, x)}, x.value,
      scale.value, shift.value, APFloat(kEpsilon));
  g.give(norm.getResult(), 10 * scale.bound + shift.bound, false);
  if (g.random.chance(1, 2)) {
    Entry dy = g.tamed(g.like(x.type()), 100);
    g.give(nn::LayerNormGradOp::create(g.b, g.loc, x.type(), dy.value, x.value,
                                       scale.value, norm.getMean(),
                                       norm.getRstd()),
           1e4, false);
  } else if (g.random.chance(1, 2)) {
    g.give(norm.getMean(), x.bound, false);
    g.give(norm.getRstd(), 3, false);
  }
  return true;
}

bool rmsNorm(Generator &g) {
  Entry x = g.tamed(g.any(1, 4), 100);
  Entry scale = g.tamed(g.like(g.floats(x.shape().take_back())), 10);
  auto norm =
      nn::RmsNormOp::create(g.b, g.loc, TypeRange{x.type(), rowsOf(g, x)},
                            x.value, scale.value, APFloat(kEpsilon));
  g.give(norm.getResult(), 10 * scale.bound, false);
  if (g.random.chance(1, 2)) {
    Entry dy = g.tamed(g.like(x.type()), 100);
    g.give(nn::RmsNormGradOp::create(g.b, g.loc, x.type(), dy.value, x.value,
                                     scale.value, norm.getRstd()),
           1e4, false);
  }
  return true;
}

/// Generates the gradient of a layer norm or RMS norm without the norm itself.
/// So the operands that a norm would compute for each row (mean and reciprocal
/// standard deviation) are arbitrary values.
bool normGrad(Generator &g) {
  Entry x = g.tamed(g.any(1, 4), 10);
  Entry dy = g.tamed(g.like(x.type()), 10);
  Entry scale = g.tamed(g.like(g.floats(x.shape().take_back())), 10);
  Entry rstd = g.tamed(g.like(rowsOf(g, x)), 3);
  if (g.random.chance(1, 2)) {
    Entry mean = g.tamed(g.like(rowsOf(g, x)), 10);
    g.give(nn::LayerNormGradOp::create(g.b, g.loc, x.type(), dy.value, x.value,
                                       scale.value, mean.value, rstd.value),
           1e6, false);
  } else {
    g.give(nn::RmsNormGradOp::create(g.b, g.loc, x.type(), dy.value, x.value,
                                     scale.value, rstd.value),
           1e6, false);
  }
  return true;
}

bool crossEntropy(Generator &g) {
  Entry x = g.tamed(g.any(1, 4), 20);
  if (cancels(g, x))
    return false;
  RankedTensorType rows = rowsOf(g, x);
  Value labels = g.like(g.ints(rows.getShape())).value;
  int64_t ignore = g.random.chance(1, 2) ? 2 : -100;
  auto loss = nn::CrossEntropyOp::create(g.b, g.loc, TypeRange{rows, rows},
                                         x.value, labels, ignore);
  g.give(loss.getLoss(), 50, false);
  if (g.random.chance(1, 2)) {
    Entry d = g.like(rows);
    g.give(nn::CrossEntropyGradOp::create(g.b, g.loc, x.type(), d.value,
                                          x.value, labels, loss.getLse(),
                                          ignore),
           2 * d.bound, false);
  } else if (g.random.chance(1, 3)) {
    g.give(loss.getLse(), 50, false);
  }
  return true;
}

/// Generates the gradient of a cross-entropy without the cross-entropy itself.
/// So the operand with the log-sum-exp of each row has arbitrary values.
bool crossEntropyGrad(Generator &g) {
  Entry x = g.tamed(g.any(1, 4), 4);
  RankedTensorType rows = rowsOf(g, x);
  Entry d = g.like(rows, 100), lse = g.tamed(g.like(rows), 4);
  Value labels = g.like(g.ints(rows.getShape())).value;
  g.give(nn::CrossEntropyGradOp::create(g.b, g.loc, x.type(), d.value, x.value,
                                        labels, lse.value, 3),
         3000 * d.bound, false);
  return true;
}

} // namespace

ArrayRef<Family> cleave::random::rowFamilies() {
  static const Family families[] = {
      {"softmax", 6, softmax},
      {"layer_norm", 6, layerNorm},
      {"rms_norm", 6, rmsNorm},
      {"norm gradients", 5, normGrad},
      {"cross_entropy", 7, crossEntropy},
      {"cross_entropy_grad", 5, crossEntropyGrad},
  };
  return families;
}
