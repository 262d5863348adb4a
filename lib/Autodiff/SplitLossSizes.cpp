// What a step computes otherwise of another number of samples: in other
// numbers, or in other places.

#include "SplitLoss.h"

#include "cleave/Interfaces/Interfaces.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// The one dimension in which two values of `from` and `to` samples differ, in
/// its major part; nothing where they differ otherwise, -1 where in none.
static std::optional<int64_t> differingDim(Value value, Value twin,
                                           int64_t from, int64_t to) {
  ArrayRef<int64_t> a = typeOf(value).getShape(), b = typeOf(twin).getShape();
  int64_t found = -1;
  if (a.size() != b.size())
    return std::nullopt;
  for (auto [dim, sizes] : llvm::enumerate(llvm::zip(a, b))) {
    auto [x, y] = sizes;
    if (x == y)
      continue;
    if (found >= 0 || x % from != 0 || x / from * to != y)
      return std::nullopt;
    found = dim;
  }
  return found;
}

/// Whether attributes are equal where they do not repeat the result's shape.
static bool haveLikeAttributes(Operation *op, Operation *twin) {
  auto isShape = [](Attribute value, Operation *of) {
    auto sizes = dyn_cast_if_present<DenseI64ArrayAttr>(value);
    return sizes && of->getNumResults() &&
           sizes.asArrayRef() == typeOf(of->getResult(0)).getShape();
  };
  DictionaryAttr own = op->getAttrDictionary(),
                 others = twin->getAttrDictionary();
  return own.size() == others.size() &&
         llvm::all_of(own, [&](NamedAttribute named) {
           Attribute value = named.getValue(),
                     other = others.get(named.getName());
           return value == other ||
                  (isShape(value, op) && isShape(other, twin));
         });
}

/// Whether two operations of `step` and of one for `samples` samples do the
/// same for each: their results differ only in how many samples there are,
/// where the flow has them. Values that no sample is part of may repeat along
/// one dimension, as it passes through.
bool LossSplitter::isLike(Operation *op, Operation *twin,
                          int64_t samples) const {
  if (!flow || op->hasTrait<OpTrait::IsTerminator>())
    return true;
  if (!matchPattern(op, m_Constant()) && !haveLikeAttributes(op, twin))
    return false;
  auto differing = [&](Value value, Value other) {
    return differingDim(value, other, flow->size(), samples);
  };
  for (auto [value, other] : llvm::zip(op->getResults(), twin->getResults())) {
    std::optional<int64_t> dim = differing(value, other);
    if (!dim)
      return false;
    if (isBatched(value) && *dim != flow->majorDimOf(value).value_or(-1))
      return false;
  }
  if (llvm::any_of(op->getResults(), [&](Value v) { return isBatched(v); }))
    return true;
  ShardingRule rule = ShardingRule::of(op);
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    std::optional<int64_t> dim = differing(operand, twin->getOperand(index));
    if (!dim)
      return false;
    if (*dim < 0)
      continue;
    const DimFactors &made = rule.operands[index][*dim];
    if (made.empty() ||
        rule.factors[made.front()].kind != FactorKind::PassThrough)
      return false;
    for (auto [number, result] : llvm::enumerate(op->getResults())) {
      int64_t at = *differing(result, twin->getResult(number));
      if (at < 0 || rule.results[number][at].empty() ||
          rule.results[number][at].front() != made.front())
        return false;
    }
  }
  return true;
}

/// What is computed from constants that are another number in `other`, or
/// counts to another one.
LogicalResult LossSplitter::findVarying(func::FuncOp other) {
  if (!other)
    return failure();
  Block &block = step.getBody().front(), &twins = other.getBody().front();
  auto others = nn::BatchFlow::ofArguments(other);
  if (bool(flow) != bool(others))
    return failure();
  if (block.getOperations().size() != twins.getOperations().size())
    return failure();
  for (auto [op, twin] : llvm::zip(block, twins)) {
    if (op.getName() != twin.getName())
      return failure();
    DenseElementsAttr a, b;
    bool varies =
        matchPattern(&op, m_Constant(&a)) &&
        matchPattern(&twin, m_Constant(&b)) && a != b &&
        !(a.isSplat() && b.isSplat() &&
          a.getSplatValue<Attribute>() == b.getSplatValue<Attribute>());
    if (auto iota = dyn_cast<nn::IotaOp>(op))
      varies |= typeOf(iota).getDimSize(iota.getDim()) !=
                typeOf(twin.getResult(0)).getDimSize(iota.getDim());
    if (!isLike(&op, &twin, others ? others->size() : 1)) {
      unlike.insert(&op);
      varies = true;
    }
    varies |= llvm::any_of(op.getOperands(),
                           [&](Value v) { return varying.contains(v); });
    if (varies)
      varying.insert(op.result_begin(), op.result_end());
  }
  return success();
}
