// Emits the reductions of a kernel: combiners and sequential reductions.

#include "cleave/Codegen/NodeEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::kernels;

/// Longer sums are computed in blocks of this many terms, which keeps their
/// rounding error small.
static constexpr int64_t kSumBlock = 64;

Value NodeEmitter::identity(nn::Combiner combiner, Type type) {
  Type element = getElementTypeOrSelf(type);
  TypedAttr attr;
  if (combiner == nn::Combiner::Sum) {
    attr = b.getZeroAttr(element);
  } else if (auto floats = dyn_cast<FloatType>(element)) {
    bool negative = combiner == nn::Combiner::Max;
    attr = b.getFloatAttr(
        element, APFloat::getInf(floats.getFloatSemantics(), negative));
  } else {
    unsigned width = element.getIntOrFloatBitWidth();
    bool boolean = width == 1, max = combiner == nn::Combiner::Max;
    APInt value = boolean ? APInt(1, max ? 0 : 1)
                  : max   ? APInt::getSignedMinValue(width)
                          : APInt::getSignedMaxValue(width);
    attr = b.getIntegerAttr(element, value);
  }
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(b, attr);
}

Value NodeEmitter::combine(nn::Combiner combiner, Value x, Value y) {
  Type element = getElementTypeOrSelf(x.getType());
  bool floats = isa<FloatType>(element), boolean = element.isInteger(1);
  switch (combiner) {
  case nn::Combiner::Sum:
    return floats ? Value(arith::AddFOp::create(b, x, y))
                  : Value(arith::AddIOp::create(b, x, y));
  case nn::Combiner::Max:
    if (boolean)
      return arith::OrIOp::create(b, x, y);
    return floats ? Value(arith::MaximumFOp::create(b, x, y))
                  : Value(arith::MaxSIOp::create(b, x, y));
  case nn::Combiner::Min:
    if (boolean)
      return arith::AndIOp::create(b, x, y);
    return floats ? Value(arith::MinimumFOp::create(b, x, y))
                  : Value(arith::MinSIOp::create(b, x, y));
  }
  llvm_unreachable("all combiners are covered");
}

/// Combines the lanes pairwise, always in the same order.
Value NodeEmitter::horizontal(nn::Combiner combiner, Value vector) {
  for (int64_t half = lanes / 2; half >= 1; half /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t i = 0; i < half; ++i) {
      low.push_back(i);
      high.push_back(half + i);
    }
    Value a = vector::ShuffleOp::create(b, vector, vector, low);
    Value c = vector::ShuffleOp::create(b, vector, vector, high);
    vector = combine(combiner, a, c);
  }
  return vector::ExtractOp::create(b, vector, 0);
}

/// Collects the sequential reductions that `node` depends on.
void NodeEmitter::collectSequential(
    const Node *node, llvm::SmallPtrSetImpl<const Node *> &seen,
    llvm::SetVector<const Reduction *> &found) const {
  if (!node || !seen.insert(node).second || bufferOf(node))
    return;
  if (node->reduction && !node->reduction->perRow()) {
    found.insert(node->reduction);
    return;
  }
  for (const Node *operand : node->operands)
    collectSequential(operand, seen, found);
  collectSequential(node->guard, seen, found);
  for (auto [var, factor] : node->index.terms())
    collectSequential(var->node, seen, found);
}

SmallVector<Value> NodeEmitter::stepSequence(const IndexVar *sequence,
                                             Value begin, Value end,
                                             int64_t stride,
                                             ArrayRef<Value> start,
                                             SequenceStep step) {
  auto loop =
      beginFor(begin, end, constantIndex(stride), sequence->loops, start);
  SmallVector<Value> sums(loop.getRegionIterArgs().begin(),
                          loop.getRegionIterArgs().end());
  endFor(loop, step(loop.getInductionVar(), sums));
  return SmallVector<Value>(loop.getResults().begin(), loop.getResults().end());
}

SmallVector<Value> NodeEmitter::runSequence(const IndexVar *sequence,
                                            ArrayRef<Value> start,
                                            SequenceStep step,
                                            SequenceJoin join) {
  Value size = constantIndex(sequence->size);
  if (sequence->size <= 2 * kSumBlock)
    return stepSequence(sequence, constantIndex(0), size, 1, start, step);
  auto blocks =
      beginFor(constantIndex(0), size, constantIndex(kSumBlock), 0, start);
  Value begin = blocks.getInductionVar();
  Value end = arith::MinSIOp::create(
      b, size, arith::AddIOp::create(b, begin, constantIndex(kSumBlock)));
  SmallVector<Value> sums(blocks.getRegionIterArgs().begin(),
                          blocks.getRegionIterArgs().end());
  SmallVector<Value> partial =
      stepSequence(sequence, begin, end, 1, start, step);
  endFor(blocks, join(sums, partial));
  return SmallVector<Value>(blocks.getResults().begin(),
                            blocks.getResults().end());
}

/// Emits one loop for all sequential reductions of the same extent that can
/// share it, and for all copies of the current vectors.
void NodeEmitter::emitSequential(const Reduction *wanted) {
  // Reductions that the inputs depend on are emitted first.
  auto missing = [&](const Reduction *reduction) {
    llvm::SmallPtrSet<const Node *, 16> seen;
    llvm::SetVector<const Reduction *> found;
    collectSequential(reduction->input, seen, found);
    SmallVector<const Reduction *> result;
    for (const Reduction *other : found)
      if (!scopeOf(other->outcome->loops).values.contains({other->outcome, 0}))
        result.push_back(other);
    return result;
  };
  for (const Reduction *other : missing(wanted))
    emitSequential(other);

  Scope &scope = scopeOf(wanted->outcome->loops);
  SmallVector<const Reduction *> group;
  for (const Reduction &reduction : plan.reductions)
    if (reduction.sequence == wanted->sequence &&
        reduction.outcome->loops == wanted->outcome->loops &&
        reduction.outcome->stage <= wanted->outcome->stage &&
        !scope.values.contains({reduction.outcome, 0}) &&
        !bufferOf(reduction.outcome) && missing(&reduction).empty())
      group.push_back(&reduction);

  bool vectors = isLane(wanted->outcome);
  int copies = differsByCopy(wanted->outcome->loops) ? copyCount : 1;
  OpBuilder::InsertionGuard guard(b);

  // Inner scopes must not see values that are emitted into an outer scope.
  std::vector<std::unique_ptr<Scope>> hidden;
  while (scopes.back().get() != &scope) {
    hidden.insert(hidden.begin(), std::move(scopes.back()));
    scopes.pop_back();
  }
  moveTo(scope);
  // The loop must precede the operation of the inner scopes.
  Block *block = scope.block;
  Block *rest = nullptr;
  for (auto &inner : hidden)
    if (inner->op) {
      rest = new Block();
      rest->getOperations().splice(rest->begin(), block->getOperations(),
                                   inner->op->getIterator(), block->end());
      break;
    }

  SmallVector<Value> start;
  for (const Reduction *reduction : group)
    for (int copy = 0; copy < copies; ++copy) {
      Type type = reduction->input->type;
      auto op = reduction->op;
      start.push_back(
          identity(op.getCombiner(), vectors ? Type(vectorOf(type)) : type));
    }
  auto combineAll = [&](ArrayRef<Value> into, auto valueOf) {
    SmallVector<Value> result;
    for (auto [number, reduction] : llvm::enumerate(group))
      for (int copy = 0; copy < copies; ++copy) {
        auto op = reduction->op;
        result.push_back(combine(op.getCombiner(), into[number * copies + copy],
                                 valueOf(number, copy)));
      }
    return result;
  };
  const IndexVar *sequence = wanted->sequence;
  auto step = [&](Value index, ArrayRef<Value> sums) {
    loopValues[sequence->loop] = index;
    return combineAll(sums, [&](size_t number, int copy) {
      const Node *input = group[number]->input;
      return vectors ? emitLanes(input, copy) : emit(input, copy);
    });
  };
  auto join = [&](ArrayRef<Value> sums, ArrayRef<Value> others) {
    return combineAll(sums, [&](size_t number, int copy) {
      return others[number * copies + copy];
    });
  };
  SmallVector<Value> totals = runSequence(sequence, start, step, join);
  joinSequence(group, copies, totals);
  for (auto [number, reduction] : llvm::enumerate(group))
    for (int copy = 0; copy < copies; ++copy)
      scope.values[{reduction->outcome, copy}] = totals[number * copies + copy];

  if (rest) {
    block->getOperations().splice(block->end(), rest->getOperations());
    delete rest;
  }
  for (auto &inner : hidden)
    scopes.push_back(std::move(inner));
}
