// Bounds of integers by interval arithmetic.

#include "IndexRange.h"

#include "cleave/Dialect/NN/IR/NN.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;

namespace cleave::importer {

using Range = std::optional<IndexRange>;

/// The smallest and largest integer of a type.
static IndexRange rangeOfType(Type type) {
  unsigned width = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
  if (width == 1)
    return {0, 1};
  return {llvm::minIntN(width), llvm::maxIntN(width)};
}

/// A type in which sums and products of two 64-bit bounds do not overflow.
using Wide = __int128;

/// Returns the range [low, high], or nullopt if it exceeds the integer type:
/// the values may then have wrapped.
static Range bounded(Type type, Wide low, Wide high) {
  IndexRange all = rangeOfType(type);
  if (low < all.low || high > all.high || low > high)
    return std::nullopt;
  return IndexRange{int64_t(low), int64_t(high)};
}

static Range fitting(Type type, Range range) {
  return range ? bounded(type, range->low, range->high) : range;
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
    return bounded(op.getType(), value, value);
  }
  int64_t low = std::numeric_limits<int64_t>::max(), high = -low;
  for (const APInt &bits : elements.getValues<APInt>()) {
    low = std::min(low, number(bits));
    high = std::max(high, number(bits));
  }
  return bounded(op.getType(), low, high);
}

/// Of two operands, one by one.
static Range combined(Operation *op, IndexRange a, IndexRange b) {
  auto made = [&](Wide low, Wide high) {
    return bounded(op->getResult(0).getType(), low, high);
  };
  if (isa<arith::AddIOp>(op))
    return made(Wide(a.low) + b.low, Wide(a.high) + b.high);
  if (isa<arith::SubIOp>(op))
    return made(Wide(a.low) - b.high, Wide(a.high) - b.low);
  if (isa<arith::MaxSIOp>(op))
    return made(std::max(a.low, b.low), std::max(a.high, b.high));
  if (isa<arith::MinSIOp>(op))
    return made(std::min(a.low, b.low), std::min(a.high, b.high));
  if (isa<arith::MulIOp>(op)) {
    auto [low, high] =
        std::minmax({Wide(a.low) * b.low, Wide(a.low) * b.high,
                     Wide(a.high) * b.low, Wide(a.high) * b.high});
    return made(low, high);
  }
  return std::nullopt;
}

/// Returns the range of a maximum, minimum or remainder. The range of one
/// operand is enough to bound it.
static Range limited(Operation *op, Range a, Range b) {
  if (isa<arith::MaxSIOp, arith::MinSIOp>(op)) {
    // A maximum or minimum is bounded on one side even if the range of only one
    // operand is known. Later operations may bound the other side.
    Range known = a ? a : b;
    if (!known)
      return std::nullopt;
    IndexRange all = rangeOfType(op->getResult(0).getType());
    return isa<arith::MaxSIOp>(op) ? IndexRange{known->low, all.high}
                                   : IndexRange{all.low, known->high};
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
        return bounded(iota.getType(), 0,
                       iota.getType().getDimSize(iota.getDim()) - 1);
      })
      .Case([&](nn::ArgMaxOp top) {
        auto type = cast<RankedTensorType>(top.getInput().getType());
        return bounded(top.getType(), 0, type.getDimSize(top.getDim()) - 1);
      })
      .Case([&](nn::TopKOp top) {
        auto type = cast<RankedTensorType>(top.getInput().getType());
        return bounded(top.getIndices().getType(), 0,
                       type.getShape().back() - 1);
      })
      .Case<nn::ReshapeOp, nn::TransposeOp, nn::SliceOp, nn::BroadcastOp,
            arith::ExtSIOp>([&](Operation *) { return of(0); })
      // Truncation keeps a number only if it fits into the narrower type.
      .Case([&](arith::TruncIOp cut) { return fitting(cut.getType(), of(0)); })
      .Case([&](arith::ExtUIOp extend) {
        bool isBool =
            getElementTypeOrSelf(extend.getIn().getType()).isInteger(1);
        return isBool ? Range({0, 1}) : Range();
      })
      .Case([&](arith::SelectOp) -> Range {
        Range yes = of(1), no = of(2);
        if (!yes || !no)
          return std::nullopt;
        return IndexRange{std::min(yes->low, no->low),
                          std::max(yes->high, no->high)};
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
    bool moves = isa<nn::ReshapeOp, nn::TransposeOp, nn::BroadcastOp,
                     arith::ExtSIOp, arith::TruncIOp>(op);
    if (!moves && !(parts && isa<nn::SliceOp>(op)))
      return false;
    value = op->getOperand(0);
  }
  return true;
}

} // namespace cleave::importer
