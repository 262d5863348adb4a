// Rules of operations that place elements: broadcast, reshape, transpose,
// slice, concat, pad, iota, and the identities save and rematerialize.

#include "Model.h"

#include <numeric>

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

/// The rule of an operation that only moves the elements of one tensor.
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

/// Both shapes spell one row-major order. What they have in common, major
/// first, are factors that pass through: [6, 4] -> [24] has 6 and 4. Where
/// sizes share no divisor the rest up to the next common boundary is whole.
ShardingRule reshape(nn::ReshapeOp op) {
  ShardingRule rule;
  ArrayRef<int64_t> from = shapeOf(op.getInput()), to = shapeOf(op.getResult());
  TensorFactors input(from.size()), result(to.size());
  size_t i = 0, j = 0;
  // What is left of dimensions i and j.
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
      break; // Only with empty tensors.
    if (int64_t common = std::gcd(a, b); common > 1) {
      int64_t factor = rule.addFactor(common);
      input[i].push_back(factor);
      result[j].push_back(factor);
      a /= common;
      b /= common;
      continue;
    }
    // No common major part: keep whole until the products meet.
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

/// Dimensions taken whole pass through; the others must be whole.
ShardingRule slice(nn::SliceOp op) {
  ShardingRule rule;
  TensorFactors input, result;
  ArrayRef<int64_t> from = shapeOf(op.getInput()), to = shapeOf(op.getResult());
  for (size_t dim = 0; dim < from.size(); ++dim) {
    bool whole = op.getOffsets()[dim] == 0 && op.getStrides()[dim] == 1 && from[dim] == to[dim];
    if (whole) {
      input.push_back({rule.addFactor(from[dim])});
      result.push_back(input.back());
    } else {
      input.push_back({rule.addFactor(from[dim], FactorKind::NeedReplication)});
      result.push_back({rule.addFactor(to[dim], FactorKind::NeedReplication)});
    }
  }
  return moves(std::move(rule), input, result);
}

/// The sizes of the box follow the tile.
LogicalResult planSlice(nn::SliceOp op, LocalPlan &plan) {
  plan.setResults(nn::SliceOp::create(plan.builder(), plan.loc(), plan.resultType(0),
                                      plan.operand(0), op.getOffsets(),
                                      plan.resultType(0).getShape(), op.getStrides())
                      ->getResults());
  return success();
}

ShardingRule concat(nn::ConcatOp op) {
  ShardingRule rule;
  int64_t along = op.getDim();
  TensorFactors common = addFactors(rule, shapeOf(op.getResult()));
  rule.factors[common[along][0]].kind = FactorKind::NeedReplication;
  rule.results = {common};
  SmallVector<unsigned, 2> all;
  for (auto [index, input] : llvm::enumerate(op.getInputs())) {
    TensorFactors dims = common;
    dims[along] = {rule.addFactor(shapeOf(input)[along], FactorKind::NeedReplication)};
    rule.operands.push_back(dims);
    all.push_back(index);
  }
  rule.linear = {all};
  rule.movement = true;
  return rule;
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
      input.push_back({rule.addFactor(from[dim], FactorKind::NeedReplication)});
      result.push_back({rule.addFactor(to[dim], FactorKind::NeedReplication)});
    }
  }
  rule.operands = {input};
  rule.results = {result};
  // Sums of zeros are zeros; the largest or least of equal numbers is that
  // number.
  if (op.getValue().isZero()) {
    rule.linear = {{0}};
    rule.movement = true;
  }
  return rule;
}

ShardingRule iota(nn::IotaOp op) {
  ShardingRule rule;
  rule.results = {addFactors(rule, shapeOf(op.getResult()))};
  return rule;
}

/// Counts from where the tile begins.
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

/// The cotangent is only waited for; it may lie in any way.
ShardingRule rematerialize(nn::RematerializeOp op) {
  ShardingRule rule;
  TensorFactors dims = addFactors(rule, shapeOf(op.getInput()));
  rule.operands = {dims, addFactors(rule, shapeOf(op.getCotangent()))};
  rule.results = {dims};
  rule.linear = {{0}};
  rule.movement = true;
  return rule;
}

} // namespace

void cleave::sharding::attachShape(MLIRContext *context) {
  attach<nn::BroadcastOp, broadcast>(context);
  attach<nn::ReshapeOp, reshape>(context);
  attach<nn::TransposeOp, transpose>(context);
  attach<nn::SliceOp, slice, planSlice>(context);
  attach<nn::ConcatOp, concat>(context);
  attach<nn::PadOp, pad>(context);
  attach<nn::IotaOp, iota, planIota>(context);
  attach<nn::SaveOp, save>(context);
  attach<nn::RematerializeOp, rematerialize>(context);
}
