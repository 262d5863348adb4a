// Recognizes GELU in its two forms:
//   tanh: x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))
//   erf:  x * 0.5 * (1 + erf(x / sqrt(2)))
// Products are compared as sets of factors, so order does not matter.

#include "Dataflow.h"

#include <cmath>

using namespace mlir;

namespace cleave::nn {

namespace {

constexpr double kTolerance = 1e-5;

/// A product: a constant factor and the other factors. A factor of x^3 is
/// listed three times.
struct Product {
  double number = 1;
  SmallVector<Value> factors;
};

void collect(Value value, Product &product, unsigned depth) {
  if (std::optional<double> splat = splatOf(value)) {
    product.number *= *splat;
    return;
  }
  if (auto mul = value.getDefiningOp<arith::MulFOp>(); mul && depth) {
    collect(mul.getLhs(), product, depth - 1);
    collect(mul.getRhs(), product, depth - 1);
    return;
  }
  if (auto div = value.getDefiningOp<arith::DivFOp>(); div && depth)
    if (std::optional<double> splat = splatOf(div.getRhs());
        splat && *splat != 0) {
      product.number /= *splat;
      collect(div.getLhs(), product, depth - 1);
      return;
    }
  product.factors.push_back(value);
}

Product productOf(Value value, unsigned depth = 6) {
  Product product;
  collect(value, product, depth);
  return product;
}

bool near(double value, double expected) {
  return std::abs(value - expected) <= kTolerance * std::abs(expected);
}

/// Returns whether `value` is x + 0.044715 * x^3, with the terms in either
/// order.
bool isCubicOf(Value value, Value x) {
  auto add = value.getDefiningOp<arith::AddFOp>();
  if (!add)
    return false;
  for (auto [linear, cubic] : {std::pair(add.getLhs(), add.getRhs()),
                               std::pair(add.getRhs(), add.getLhs())}) {
    if (linear != x)
      continue;
    Product product = productOf(cubic);
    if (near(product.number, 0.044715) && product.factors.size() == 3 &&
        llvm::all_equal(product.factors) && product.factors[0] == x)
      return true;
  }
  return false;
}

/// If `value` is 1 + tanh(...) or 1 + erf(...), the second factor of a GELU of
/// x, returns which of the two.
std::optional<GeluKind> gateOf(Value value, Value x) {
  auto add = value.getDefiningOp<arith::AddFOp>();
  if (!add)
    return std::nullopt;
  Value inner = isSplat(add.getRhs(), 1)   ? add.getLhs()
                : isSplat(add.getLhs(), 1) ? add.getRhs()
                                           : Value();
  if (!inner)
    return std::nullopt;
  if (auto erf = inner.getDefiningOp<math::ErfOp>()) {
    Product product = productOf(erf.getOperand());
    if (product.factors.size() == 1 && product.factors[0] == x &&
        near(product.number, std::sqrt(0.5)))
      return GeluKind::Erf;
  }
  if (auto tanh = inner.getDefiningOp<math::TanhOp>()) {
    Product product = productOf(tanh.getOperand());
    if (product.factors.size() == 1 && isCubicOf(product.factors[0], x) &&
        near(product.number, std::sqrt(2 / M_PI)))
      return GeluKind::Tanh;
  }
  return std::nullopt;
}

struct RaiseGelu : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op,
                                PatternRewriter &rewriter) const override {
    if (!isa<RankedTensorType>(op.getType()))
      return rewriter.notifyMatchFailure(op, "no tensor");
    // x itself may be a product, which must not be split into its factors: the
    // factors of GELU are then x and the gate. So products are first split only
    // to a small depth.
    for (unsigned depth = 1; depth <= 3; ++depth) {
      Product product = productOf(op, depth);
      if (product.factors.size() != 2 || !near(product.number, 0.5))
        continue;
      for (int first : {0, 1}) {
        Value x = product.factors[first];
        if (std::optional<GeluKind> kind =
                gateOf(product.factors[1 - first], x)) {
          rewriter.replaceOpWithNewOp<GeluOp>(op, op.getType(), *kind, x);
          return success();
        }
      }
    }
    return rewriter.notifyMatchFailure(op, "no product of x, 0.5 and a gate");
  }
};

} // namespace

void populateRaiseGeluPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseGelu>(patterns.getContext());
}

} // namespace cleave::nn
