// Sharding rules of data movement: broadcast, reshape, transpose, slice,
// concat, pad, iota, and of the identities save and rematerialize.

#include "Model.h"

#include <numeric>

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

/// Turns `rule` into the rule of an operation that moves the elements of one
/// tensor, whose dimensions have the factors `input` and `result`.
ShardingRule moves(ShardingRule rule, const TensorFactors &input,
                   const TensorFactors &result) {
  rule.operands = {input};
  rule.results = {result};
  rule.linear = {{0}};
  rule.movement = true;
  return rule;
}

ShardingRule broadcast(nn::BroadcastOp op) {
  ShardingRule rule;
  TensorFactors result = addFactors(rule, shapeOf(op.getResult())), input;
  for (int64_t dim : op.getDims())
    input.push_back(result[dim]);
  return moves(std::move(rule), input, result);
}

/// The sharding rule of a reshape. Sizes are matched from the outermost
/// dimensions on: common divisors of the sizes on both sides are factors that
/// pass through, so [6, 4] -> [24] has the factors 6 and 4. Where sizes share
/// no divisor, dimensions cannot be split until the products of the sizes on
/// both sides are equal again.
ShardingRule reshape(nn::ReshapeOp op) {
  ShardingRule rule;
  ArrayRef<int64_t> from = shapeOf(op.getInput()), to = shapeOf(op.getResult());
  TensorFactors input(from.size()), result(to.size());
  size_t i = 0, j = 0;
  // The remaining sizes of dimensions i and j.
  int64_t a = from.empty() ? 1 : from[0], b = to.empty() ? 1 : to[0];
  auto nextInput = [&] { a = ++i < from.size() ? from[i] : 1; };
  auto nextResult = [&] { b = ++j < to.size() ? to[j] : 1; };
  while (i < from.size() || j < to.size()) {
    if (i < from.size() && a == 1) {
      nextInput();
      continue;
    }
    if (j < to.size() && b == 1) {
      nextResult();
      continue;
    }
    if (i == from.size() || j == to.size())
      break; // only with empty tensors
    if (int64_t common = std::gcd(a, b); common > 1) {
      int64_t factor = rule.addFactor(common);
      input[i].push_back(factor);
      result[j].push_back(factor);
      a /= common;
      b /= common;
      continue;
    }
    // The sizes of these two dimensions have no common divisor. So the
    // dimensions cannot be split, nor can those after them, up to the point
    // where the products of the sizes on both sides are equal again.
    int64_t left = a, right = b;
    input[i].push_back(rule.addFactor(a, FactorKind::NeedReplication));
    result[j].push_back(rule.addFactor(b, FactorKind::NeedReplication));
    nextInput();
    nextResult();
    while (left != right) {
      if (left < right) {
        left *= a;
        input[i].push_back(rule.addFactor(a, FactorKind::NeedReplication));
        nextInput();
      } else {
        right *= b;
        result[j].push_back(rule.addFactor(b, FactorKind::NeedReplication));
        nextResult();
      }
    }
  }
  return moves(std::move(rule), input, result);
}

ShardingRule transpose(nn::TransposeOp op) {
  ShardingRule rule;
  TensorFactors input = addFactors(rule, shapeOf(op.getInput())), result;
  for (int64_t dim : op.getPermutation())
    result.push_back(input[dim]);
  return moves(std::move(rule), input, result);
}

/// Adds a factor for a dimension that is sliced or padded. If the factor is
/// split, elements move between tiles. If a slice keeps a single element, this
/// element is broadcast to all ranks, so the result's dimension does not have
/// the factor.
void addMoved(ShardingRule &rule, int64_t from, int64_t to,
              TensorFactors &input, TensorFactors &result) {
  if (from == 0 || to == 0) { // nothing moves
    input.push_back({rule.addFactor(from, FactorKind::NeedReplication)});
    result.push_back({rule.addFactor(to, FactorKind::NeedReplication)});
    return;
  }
  input.push_back(
      {rule.addFactor(std::max(from, to), FactorKind::Permutation)});
  if (to == 1)
    result.emplace_back();
  else
    result.push_back(input.back());
}

/// Dimensions that are not sliced pass through.
ShardingRule slice(nn::SliceOp op) {
  ShardingRule rule;
  TensorFactors input, result;
  ArrayRef<int64_t> from = shapeOf(op.getInput()), to = shapeOf(op.getResult());
  for (size_t dim = 0; dim < from.size(); ++dim) {
    bool whole = op.getOffsets()[dim] == 0 && op.getStrides()[dim] == 1 &&
                 from[dim] == to[dim];
    if (whole) {
      input.push_back({rule.addFactor(from[dim])});
      result.push_back(input.back());
    } else {
      addMoved(rule, from[dim], to[dim], input, result);
    }
  }
  return moves(std::move(rule), input, result);
}

/// Emits the per-rank code of a slice. Along a split dimension, a halo exchange
/// (dist.window) with the offset and the stride of the slice replaces it.
LogicalResult planSlice(nn::SliceOp op, LocalPlan &plan) {
  Value value = plan.operand(0);
  SmallVector<int64_t> offsets(op.getOffsets()), strides(op.getStrides());
  ArrayRef<int64_t> from = shapeOf(op.getInput());
  RankedTensorType type = plan.resultType(0);
  for (size_t dim = 0; dim < from.size(); ++dim) {
    int64_t factor = plan.rule().operands[0][dim][0];
    if (!plan.isSplit(factor) ||
        plan.rule().factors[factor].kind != FactorKind::Permutation)
      continue;
    int64_t length = type.getDimSize(dim);
    int64_t step =
        plan.rule().results[0][dim].empty() ? 0 : strides[dim] * length;
    value = plan.window(value, dim, factor, from[dim], offsets[dim], step,
                        strides[dim], length, shapeOf(op.getResult())[dim]);
    offsets[dim] = 0;
    strides[dim] = 1;
  }
  plan.setResults(nn::SliceOp::create(plan.builder(), plan.loc(), type, value,
                                      offsets, type.getShape(), strides)
                      ->getResults());
  return success();
}

ShardingRule concat(nn::ConcatOp op) {
  ShardingRule rule;
  TensorFactors common = addFactors(rule, shapeOf(op.getResult()));
  rule.factors[common[op.getDim()][0]].kind = FactorKind::Permutation;
  rule.results = {common};
  rule.operands.assign(op->getNumOperands(), common);
  SmallVector<unsigned, 2> all(op->getNumOperands());
  std::iota(all.begin(), all.end(), 0);
  rule.linear = {all};
  rule.movement = true;
  return rule;
}

/// Returns a mask that is true where an element's global index along `dim`,
/// which is split as `factor`, is at least `bound`.
Value isFrom(LocalPlan &plan, RankedTensorType type, int64_t dim,
             int64_t factor, int64_t bound) {
  auto indexType = type.clone(plan.builder().getI64Type());
  Value index = plan.globalIndex(indexType, dim, factor);
  return arith::CmpIOp::create(
      plan.builder(), plan.loc(), arith::CmpIPredicate::sge, index,
      nn::createSplat(plan.builder(), plan.loc(), indexType, bound));
}

/// Emits the per-rank code of a concatenation along a split dimension. Each
/// operand is moved to its position in the result, and each element is selected
/// from the last operand that begins at or before the element.
LogicalResult planConcat(nn::ConcatOp op, LocalPlan &plan) {
  int64_t dim = op.getDim(), factor = plan.rule().results[0][dim][0];
  if (!plan.isSplit(factor)) {
    plan.setResults(plan.cloneLocal()->getResults());
    return success();
  }
  RankedTensorType type = plan.resultType(0);
  int64_t tile = type.getDimSize(dim), start = 0;
  Value result;
  for (auto [index, input] : llvm::enumerate(op.getInputs())) {
    int64_t size = shapeOf(input)[dim];
    if (size == 0)
      continue;
    Value placed = plan.window(plan.operand(index), dim, factor, size, -start,
                               tile, 1, tile, shapeOf(op.getResult())[dim]);
    result =
        result ? arith::SelectOp::create(plan.builder(), plan.loc(),
                                         isFrom(plan, type, dim, factor, start),
                                         placed, result)
                     .getResult()
               : placed;
    start += size;
  }
  plan.setResults(result ? result : plan.constant(type, 0));
  return success();
}

ShardingRule pad(nn::PadOp op) {
  ShardingRule rule;
  TensorFactors input, result;
  ArrayRef<int64_t> from = shapeOf(op.getInput()), to = shapeOf(op.getResult());
  for (size_t dim = 0; dim < from.size(); ++dim) {
    if (from[dim] == to[dim]) {
      input.push_back({rule.addFactor(from[dim])});
      result.push_back(input.back());
    } else {
      addMoved(rule, from[dim], to[dim], input, result);
    }
  }
  rule.operands = {input};
  rule.results = {result};
  // Padding with zero is linear. Padding commutes with maximum and minimum for
  // any value.
  if (op.getValue().isZero())
    rule.linear = {{0}};
  rule.movement = true;
  return rule;
}

/// Emits the per-rank code of a pad. Along split dimensions, a halo exchange
/// pads with zeros.
LogicalResult planPad(nn::PadOp op, LocalPlan &plan) {
  Value value = plan.operand(0);
  SmallVector<int64_t> low(op.getLow()), high(op.getHigh());
  ArrayRef<int64_t> from = shapeOf(op.getInput());
  RankedTensorType type = plan.resultType(0);
  SmallVector<size_t> moved;
  for (size_t dim = 0; dim < from.size(); ++dim) {
    int64_t factor = plan.rule().operands[0][dim][0];
    if (!plan.isSplit(factor) ||
        plan.rule().factors[factor].kind != FactorKind::Permutation)
      continue;
    int64_t length = type.getDimSize(dim);
    value = plan.window(value, dim, factor, from[dim], -low[dim], length, 1,
                        length, shapeOf(op.getResult())[dim]);
    low[dim] = high[dim] = 0;
    moved.push_back(dim);
  }
  OpBuilder &builder = plan.builder();
  Value result = nn::PadOp::create(builder, plan.loc(), type, value, low, high,
                                   op.getValue());
  if (!op.getValue().isZero()) {
    Value filling = plan.constant(type, op.getValue().convertToDouble());
    for (size_t dim : moved) {
      int64_t factor = plan.rule().operands[0][dim][0],
              begin = op.getLow()[dim];
      for (auto [bound, inside] :
           {std::pair(begin, true), std::pair(begin + from[dim], false)}) {
        Value after = isFrom(plan, type, dim, factor, bound);
        result = inside ? arith::SelectOp::create(builder, plan.loc(), after,
                                                  result, filling)
                        : arith::SelectOp::create(builder, plan.loc(), after,
                                                  filling, result);
      }
    }
  }
  plan.setResults(result);
  return success();
}

ShardingRule iota(nn::IotaOp op) {
  ShardingRule rule;
  rule.results = {addFactors(rule, shapeOf(op.getResult()))};
  rule.factors[rule.results[0][op.getDim()][0]].indexed = true;
  return rule;
}

/// Adds the offset of the tile.
LogicalResult planIota(nn::IotaOp op, LocalPlan &plan) {
  plan.setResults(plan.globalIndex(plan.resultType(0), op.getDim(),
                                   plan.rule().results[0][op.getDim()][0]));
  return success();
}

ShardingRule save(nn::SaveOp op) {
  ShardingRule rule = elementwise(op);
  rule.linear = {{0}};
  rule.movement = true;
  return rule;
}

/// nn.rematerialize only waits for its second operand, the cotangent, and does
/// not read it; so the cotangent may have any layout.
ShardingRule rematerialize(nn::RematerializeOp op) {
  ShardingRule rule;
  TensorFactors dims = addFactors(rule, shapeOf(op.getInput()));
  rule.operands = {dims, addFactors(rule, shapeOf(op.getCotangent()))};
  rule.results = {dims};
  rule.linear = {{0}};
  rule.movement = true;
  rule.waited = {1};
  return rule;
}

} // namespace

void cleave::sharding::attachShape(MLIRContext *context) {
  attach<nn::BroadcastOp, broadcast>(context);
  attach<nn::ReshapeOp, reshape>(context);
  attach<nn::TransposeOp, transpose>(context);
  attach<nn::SliceOp, slice, planSlice>(context);
  attach<nn::ConcatOp, concat, planConcat>(context);
  attach<nn::PadOp, pad, planPad>(context);
  attach<nn::IotaOp, iota, planIota>(context);
  attach<nn::SaveOp, save>(context);
  attach<nn::RematerializeOp, rematerialize>(context);
}
