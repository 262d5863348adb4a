// Emits the reductions of a kernel: combiners, and sequential reductions (loops
// over the terms in one thread).

#include "cleave/Codegen/NodeEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::kernels;

/// Sums of more than twice as many terms are computed in blocks of this many
/// terms, which keeps their rounding error small.
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

/// Combines all lanes of a vector into one value. The lanes are combined
/// pairwise, always in the same order.
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

/// Appends to `found` the sequential reductions that `node` depends on.
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

NodeEmitter::InnermostScope::InnermostScope(NodeEmitter &emitter, Scope &scope)
    : emitter(emitter), guard(emitter.b), block(scope.block) {
  std::vector<std::unique_ptr<Scope>> &scopes = emitter.scopes;
  while (scopes.back().get() != &scope) {
    hidden.insert(hidden.begin(), std::move(scopes.back()));
    scopes.pop_back();
  }
  emitter.moveTo(scope);
  // The loop of the reduction must be inserted before the loops and branches of
  // the nested scopes. So these operations are moved to the block `rest`
  // meanwhile, and the destructor moves them back.
  for (auto &inner : hidden)
    if (inner->op) {
      rest = std::make_unique<Block>();
      rest->getOperations().splice(rest->begin(), block->getOperations(),
                                   inner->op->getIterator(), block->end());
      break;
    }
}

NodeEmitter::InnermostScope::~InnermostScope() {
  if (rest)
    block->getOperations().splice(block->end(), rest->getOperations());
  for (auto &inner : hidden)
    emitter.scopes.push_back(std::move(inner));
}

/// Returns the sequential reductions that the input of `reduction` depends on
/// and that are not yet emitted.
SmallVector<const Reduction *>
NodeEmitter::missingInputs(const Reduction *reduction) {
  llvm::SmallPtrSet<const Node *, 16> seen;
  llvm::SetVector<const Reduction *> found;
  collectSequential(reduction->input, seen, found);
  SmallVector<const Reduction *> result;
  for (const Reduction *other : found)
    if (!scopeOf(other->outcome->loops).values.contains({other->outcome, 0}))
      result.push_back(other);
  return result;
}

/// Returns the reductions that are computed in one loop with `wanted`: they
/// have the same terms and outer loops, and their inputs are computed.
NodeEmitter::SequenceGroup NodeEmitter::groupOf(const Reduction *wanted) {
  const Scope &scope = scopeOf(wanted->outcome->loops);
  SequenceGroup group;
  group.sequence = wanted->sequence;
  for (const Reduction &reduction : plan.reductions)
    if (reduction.sequence == wanted->sequence &&
        reduction.outcome->loops == wanted->outcome->loops &&
        reduction.outcome->stage <= wanted->outcome->stage &&
        !scope.values.contains({reduction.outcome, 0}) &&
        !bufferOf(reduction.outcome) && missingInputs(&reduction).empty())
      group.reductions.push_back(&reduction);
  group.vectors = isLane(wanted->outcome);
  group.copies = differsByCopy(wanted->outcome->loops) ? copyCount : 1;
  return group;
}

/// Returns the results of one step for each reduction of the group and each
/// copy (vector that unrolling emits): combines the value in `into` with the
/// value that `valueOf` returns.
SmallVector<Value> NodeEmitter::combineAll(
    const SequenceGroup &group, ArrayRef<Value> into,
    llvm::function_ref<Value(size_t number, int copy)> valueOf) {
  SmallVector<Value> result;
  for (auto [number, reduction] : llvm::enumerate(group.reductions))
    for (int copy = 0; copy < group.copies; ++copy) {
      auto op = reduction->op;
      result.push_back(combine(op.getCombiner(),
                               into[group.indexOf(number, copy)],
                               valueOf(number, copy)));
    }
  return result;
}

SmallVector<Value> NodeEmitter::emitSequence(const SequenceGroup &group) {
  SmallVector<Value> start;
  for (const Reduction *reduction : group.reductions)
    for (int copy = 0; copy < group.copies; ++copy) {
      Type type = reduction->input->type;
      auto op = reduction->op;
      start.push_back(identity(op.getCombiner(),
                               group.vectors ? Type(vectorOf(type)) : type));
    }
  auto step = [&](Value index, ArrayRef<Value> sums) {
    loopValues[group.sequence->loop] = index;
    return combineAll(group, sums, [&](size_t number, int copy) {
      const Node *input = group.reductions[number]->input;
      return group.vectors ? emitLanes(input, copy) : emit(input, copy);
    });
  };
  auto join = [&](ArrayRef<Value> sums, ArrayRef<Value> others) {
    return combineAll(group, sums, [&](size_t number, int copy) {
      return others[group.indexOf(number, copy)];
    });
  };
  SmallVector<Value> totals = runSequence(group.sequence, start, step, join);
  joinSequence(group.reductions, group.copies, totals);
  return totals;
}

/// Emits one loop that computes `wanted` and all other sequential reductions
/// that groupOf returns, for all vectors that unrolling emits.
void NodeEmitter::emitSequential(const Reduction *wanted) {
  // Reductions that the input of `wanted` depends on are emitted first.
  for (const Reduction *other : missingInputs(wanted))
    emitSequential(other);

  Scope &scope = scopeOf(wanted->outcome->loops);
  SequenceGroup group = groupOf(wanted);
  InnermostScope innermost(*this, scope);
  SmallVector<Value> totals = emitSequence(group);
  for (auto [number, reduction] : llvm::enumerate(group.reductions))
    for (int copy = 0; copy < group.copies; ++copy)
      scope.values[{reduction->outcome, copy}] =
          totals[group.indexOf(number, copy)];
}
