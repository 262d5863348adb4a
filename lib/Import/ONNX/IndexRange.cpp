// Bounds of integers by interval arithmetic.

#include "IndexRange.h"

#include "cleave/Dialect/NN/IR/NN.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>

using namespace mlir;

namespace cleave::importer {

using Range = std::optional<IndexRange>;

/// Far below where 32-bit integers wrap.
static Range bounded(int64_t low, int64_t high) {
  constexpr int64_t limit = int64_t(1) << 30;
  if (low < -limit || high > limit || low > high)
    return std::nullopt;
  return IndexRange{low, high};
}

static Range ofConstant(arith::ConstantOp op) {
  auto elements = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!elements || !elements.getElementType().isInteger() || elements.empty())
    return std::nullopt;
  bool isBool = elements.getElementType().isInteger(1);
  auto number = [&](const APInt &bits) {
    return isBool ? int64_t(bits.getZExtValue()) : bits.getSExtValue();
  };
  if (elements.isSplat()) {
    int64_t value = number(elements.getSplatValue<APInt>());
    return bounded(value, value);
  }
  int64_t low = std::numeric_limits<int64_t>::max(), high = -low;
  for (const APInt &bits : elements.getValues<APInt>()) {
    low = std::min(low, number(bits));
    high = std::max(high, number(bits));
  }
  return bounded(low, high);
}

/// Of two operands, one by one.
static Range combined(Operation *op, IndexRange a, IndexRange b) {
  if (isa<arith::AddIOp>(op))
    return bounded(a.low + b.low, a.high + b.high);
  if (isa<arith::SubIOp>(op))
    return bounded(a.low - b.high, a.high - b.low);
  if (isa<arith::MaxSIOp>(op))
    return bounded(std::max(a.low, b.low), std::max(a.high, b.high));
  if (isa<arith::MinSIOp>(op))
    return bounded(std::min(a.low, b.low), std::min(a.high, b.high));
  if (isa<arith::MulIOp>(op)) {
    auto [low, high] = std::minmax(
        {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
    return bounded(low, high);
  }
  return std::nullopt;
}

/// One of two operands is enough.
static Range limited(Operation *op, Range a, Range b) {
  constexpr int64_t limit = int64_t(1) << 30;
  if (isa<arith::MaxSIOp, arith::MinSIOp>(op)) {
    // The other side stays open, and is closed by what follows.
    Range known = a ? a : b;
    if (!known)
      return std::nullopt;
    return isa<arith::MaxSIOp>(op) ? IndexRange{known->low, limit}
                                   : IndexRange{-limit, known->high};
  }
  // A remainder is smaller than the divisor.
  if (isa<arith::RemSIOp>(op) && b && b->low > 0)
    return IndexRange{a && a->low >= 0 ? 0 : 1 - b->high, b->high - 1};
  return std::nullopt;
}

Range rangeOf(Value value, unsigned depth) {
  constexpr unsigned deepest = 24;
  Operation *op = value.getDefiningOp();
  if (!op || depth == deepest)
    return std::nullopt;
  auto of = [&](unsigned operand) {
    return rangeOf(op->getOperand(operand), depth + 1);
  };
  return llvm::TypeSwitch<Operation *, Range>(op)
      .Case(ofConstant)
      .Case([&](nn::IotaOp iota) {
        return bounded(0, iota.getType().getDimSize(iota.getDim()) - 1);
      })
      .Case([&](nn::ArgMaxOp top) {
        auto type = cast<RankedTensorType>(top.getInput().getType());
        return bounded(0, type.getDimSize(top.getDim()) - 1);
      })
      .Case([&](nn::TopKOp top) {
        auto type = cast<RankedTensorType>(top.getInput().getType());
        return bounded(0, type.getShape().back() - 1);
      })
      .Case<nn::ReshapeOp, nn::TransposeOp, nn::SliceOp, nn::BroadcastOp,
            arith::ExtSIOp, arith::TruncIOp>([&](Operation *) { return of(0); })
      .Case([&](arith::ExtUIOp extend) {
        bool isBool =
            getElementTypeOrSelf(extend.getIn().getType()).isInteger(1);
        return isBool ? bounded(0, 1) : Range();
      })
      .Case([&](arith::SelectOp) -> Range {
        Range yes = of(1), no = of(2);
        if (!yes || !no)
          return std::nullopt;
        return bounded(std::min(yes->low, no->low),
                       std::max(yes->high, no->high));
      })
      .Case<arith::AddIOp, arith::SubIOp, arith::MulIOp, arith::MaxSIOp,
            arith::MinSIOp, arith::RemSIOp>([&](Operation *) -> Range {
        Range a = of(0), b = of(1);
        if (a && b)
          if (Range both = combined(op, *a, *b))
            return both;
        return limited(op, a, b);
      })
      .Default(Range());
}

bool isInput(Value value, bool parts) {
  while (Operation *op = value.getDefiningOp()) {
    bool moves =
        isa<nn::ReshapeOp, nn::TransposeOp, nn::BroadcastOp, arith::ExtSIOp>(
            op);
    if (!moves && !(parts && isa<nn::SliceOp>(op)))
      return false;
    value = op->getOperand(0);
  }
  return true;
}

} // namespace cleave::importer
