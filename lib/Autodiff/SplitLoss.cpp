// Splits a loss into partial sums, one for each microbatch. The split follows
// the values that depend on samples.

#include "SplitLoss.h"

#include "BuildFunctions.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Support/Constants.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

/// Returns the value from which `value` is computed by reshapes alone.
static Value beforeReshapes(Value value) {
  while (auto reshape = value ? value.getDefiningOp<nn::ReshapeOp>() : nullptr)
    value = reshape.getInput();
  return value;
}

/// Returns the name of a value for messages: its operation, or "an input".
static std::string spell(Value value) {
  if (Operation *op = value.getDefiningOp())
    return "'" + op->getName().getStringRef().str() + "'";
  return "an input";
}

/// Returns whether a and b are the same value or equal constants.
static bool isSame(Value a, Value b) {
  DenseElementsAttr x, y;
  return a == b || (matchPattern(a, m_Constant(&x)) &&
                    matchPattern(b, m_Constant(&y)) && x == y);
}

bool autodiff::areTwins(Operation *op, Operation *other) {
  // If locations are names of ONNX nodes, equal operations have equal names.
  // Other locations are line numbers in a text, which may differ between equal
  // operations.
  bool isNamed = isa<NameLoc>(op->getLoc());
  return op->getName() == other->getName() &&
         op->getNumOperands() == other->getNumOperands() &&
         (!isNamed || op->getLoc() == other->getLoc());
}

LossSplitter::LossSplitter(func::FuncOp func, func::FuncOp step,
                           func::FuncOp other, int64_t microbatches)
    : func(func), step(step ? step : func), microbatches(microbatches),
      flow(nn::BatchFlow::ofArguments(this->step)),
      builder(func.getBody().front().getTerminator()), where(func.getLoc()) {
  if (auto own = hasStep() ? nn::BatchFlow::ofArguments(func) : std::nullopt)
    oneSample = flow && flow->size() > 1 && own->size() == 1;
  isAlike = !hasStep() || succeeded(findVarying(other));
}

FailureOr<LossSplitter::Part> LossSplitter::split(Value whole, Value part) {
  countsOnly = false;
  if (!isAlike)
    return LogicalResult(
        fail(whole, "the graph has other operations for other numbers of "
                    "samples"));
  return visit(whole, part);
}

bool LossSplitter::addsUp(Value whole, Value part) {
  // A count may be an integer sum that is then converted to a float, so
  // conversions and reshapes are skipped.
  while (isa_and_present<arith::SIToFPOp, arith::UIToFPOp, nn::ReshapeOp>(
             whole.getDefiningOp()) &&
         part.getDefiningOp() &&
         part.getDefiningOp()->getName() == whole.getDefiningOp()->getName()) {
    whole = whole.getDefiningOp()->getOperand(0);
    part = part.getDefiningOp()->getOperand(0);
  }
  if (!isAlike || !isBatched(whole) || nn::dependsOnParameter(whole))
    return false;
  countsOnly = true;
  std::swap(parts, countParts);
  FailureOr<Part> found = visit(whole, part);
  std::swap(parts, countParts);
  countsOnly = false;
  // `part` adds up over microbatches only if it is the value that the split
  // returns. If the split had to build another value, `part` itself is not a
  // partial sum.
  return succeeded(found) && found->kind == Kind::Sum &&
         beforeReshapes(found->value) == beforeReshapes(part);
}

LogicalResult LossSplitter::fail(Value value, const Twine &reason) {
  why = reason.str();
  where = value.getLoc();
  return failure();
}

LogicalResult LossSplitter::failTwins(Value value) {
  return fail(value, spell(value) +
                         " is another operation in the graph of a microbatch "
                         "than in that of the batch");
}

LogicalResult LossSplitter::failLayout(Value value) {
  return fail(value, spell(value) +
                         " has another layout of samples in the graph of a "
                         "microbatch than in that of the batch");
}

bool LossSplitter::isBatched(Value value) const {
  return flow && flow->isBatched(value);
}

/// Returns whether the value has a batch dimension, possibly merged with other
/// dimensions.
bool LossSplitter::hasSamples(Value value) const {
  return flow && flow->hasDim(value);
}

bool LossSplitter::isTile(Value value) const {
  return isBatched(value) && !flow->isMixed(value) &&
         !varying.contains(value) && flow->majorDimOf(value);
}

/// Returns whether a value is known before the microbatches are computed: it
/// depends on no samples, or only on inputs of the whole step and not on
/// parameters, and has no batch dimension.
bool LossSplitter::isKnownBefore(Value value) const {
  return !isBatched(value) || (!countsOnly && hasStep() && !hasSamples(value) &&
                               !nn::dependsOnParameter(value));
}

FailureOr<LossSplitter::Part> LossSplitter::visit(Value whole, Value part) {
  if (auto found = parts.find(whole); found != parts.end())
    return found->second;
  FailureOr<Part> result = failure();
  if (isKnownBefore(whole)) {
    FailureOr<Value> copy = copyWhole(whole);
    if (succeeded(copy))
      result = Part{Kind::Whole, *copy};
  } else if (isTile(whole)) {
    if (succeeded(checkTwins(whole, part)))
      result = Part{Kind::Tile, part};
  } else if (auto made = dyn_cast<OpResult>(whole)) {
    result = visitOperation(made.getOwner(), made, part);
  } else {
    (void)fail(whole, "an input has no single dimension of samples");
  }
  if (succeeded(result))
    parts[whole] = *result;
  return result;
}

/// Returns whether the operation only sums over the batch dimension. If a
/// microbatch has one sample, its graph has neither this dimension nor this
/// sum.
bool LossSplitter::isSumOverSamplesAlone(Operation *op) const {
  auto reduce = dyn_cast<nn::ReduceOp>(op);
  if (!oneSample || !reduce || reduce.getCombiner() != nn::Combiner::Sum ||
      reduce.getDims().size() != 1)
    return false;
  return flow->dimOrUnit(reduce.getInput()) == reduce.getDims().front();
}

FailureOr<LossSplitter::Part>
LossSplitter::visitOperation(Operation *op, OpResult whole, Value part) {
  // Operations in `unlike` have the batch in different dimensions of the result
  // for different numbers of samples. If the result of such an operation should
  // be split by samples, this is an error. If several of them follow each
  // other, the error is reported on the first one.
  if (unlike.contains(op) && flow->majorDimOf(whole) && !flow->isMixed(whole) &&
      llvm::none_of(op->getOperands(), [&](Value operand) {
        return unlike.contains(operand.getDefiningOp());
      }))
    return failLayout(whole);
  // The corresponding operation in the function for a microbatch; null if there
  // is none.
  Operation *twin = nullptr;
  if (!isSumOverSamplesAlone(op)) {
    Value at = isa<nn::ReshapeOp>(op) ? part : beforeReshapes(part);
    if (Operation *made = at ? at.getDefiningOp() : nullptr;
        made && areTwins(op, made)) {
      twin = made;
      if (!isa<nn::ReshapeOp>(op))
        part = at;
    }
  }
  bool anySum = false, anyTile = false;
  int64_t unknown = llvm::count_if(op->getOperands(), [&](Value operand) {
    return !isKnownBefore(operand);
  });
  if (!twin && unknown > 1)
    return failTwins(whole);
  SmallVector<Part> operands;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    FailureOr<Part> made =
        visit(operand, twin ? twin->getOperand(index) : part);
    if (failed(made))
      return failure();
    anySum |= made->kind == Kind::Sum;
    anyTile |= made->kind == Kind::Tile;
    operands.push_back(*made);
  }
  if (anySum && anyTile)
    return fail(whole,
                spell(whole) +
                    " reads a sum over samples together with single samples");
  if (anySum)
    return ofSums(op, whole, operands);
  if (anyTile)
    return ofTiles(op, whole, twin, part, operands);
  return ofWhole(op, whole, twin, part, operands);
}

/// Handles an operation that reads partial sums. If it is linear in them, its
/// result is a partial sum, too. If it adds an operand that is the same in
/// every microbatch (kind Whole), this operand is divided by the number of
/// microbatches, since each microbatch adds it once.
FailureOr<LossSplitter::Part>
LossSplitter::ofSums(Operation *op, OpResult whole, ArrayRef<Part> operands) {
  auto isLinearIn = [&](ArrayRef<unsigned> group) {
    for (auto [index, operand] : llvm::enumerate(operands))
      if (operand.kind == Kind::Sum &&
          !llvm::is_contained(group, unsigned(index)))
        return false;
    return true;
  };
  // A cast to a narrower type rounds the partial sum of each microbatch instead
  // of the total, which is as accurate.
  if (isa<arith::TruncFOp>(op))
    return Part{Kind::Sum, cloneWith(op, whole.getResultNumber(), operands)};
  ShardingRule rule = ShardingRule::of(op);
  auto group = llvm::find_if(rule.linear, isLinearIn);
  if (group == rule.linear.end())
    return fail(whole, spell(whole) +
                           " is not linear in a sum over samples that depends "
                           "on parameters");
  SmallVector<Part> terms(operands);
  for (unsigned index : *group) {
    Part &term = terms[index];
    if (term.kind == Kind::Sum)
      continue;
    RankedTensorType type = typeOf(term.value);
    if (!isa<FloatType>(type.getElementType()))
      return fail(whole,
                  spell(whole) + " adds an integer to a sum over samples");
    Location loc = whole.getLoc();
    term.value = arith::MulFOp::create(
        builder, loc, term.value,
        nn::createSplat(builder, loc, type, 1.0 / microbatches));
  }
  return Part{Kind::Sum, cloneWith(op, whole.getResultNumber(), terms)};
}

FailureOr<LossSplitter::Part> LossSplitter::ofTiles(Operation *op,
                                                    OpResult whole,
                                                    Operation *twin, Value part,
                                                    ArrayRef<Part> operands) {
  ShardingRule rule = ShardingRule::of(op);
  std::optional<int64_t> samples;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    if (operands[index].kind != Kind::Tile)
      continue;
    std::optional<int64_t> dim = flow->majorDimOf(operand);
    const DimFactors *made = dim ? &rule.operands[index][*dim] : nullptr;
    if (!made || made->empty() || (samples && *samples != made->front()))
      return fail(whole, spell(whole) + " compares samples with each other");
    samples = made->front();
  }
  SmallVector<Part> own(operands);
  for (auto [index, operand] : llvm::enumerate(own)) {
    for (auto [dim, made] : llvm::enumerate(rule.operands[index])) {
      if (operand.kind != Kind::Whole || !llvm::is_contained(made, *samples))
        continue;
      FailureOr<Value> repeated = repeat(
          op->getOperand(index), twin ? twin->getOperand(index) : Value(), dim);
      if (failed(repeated))
        return fail(
            whole,
            spell(whole) +
                " reads single samples together with an order of samples, or "
                "with a value that depends on several of them");
      operand.value = *repeated;
      break;
    }
  }
  const Factor &factor = rule.factors[*samples];
  bool isSum = factor.kind == FactorKind::Reduction &&
               factor.combiner == FactorCombiner::Sum;
  // A gather along the batch dimension sums no samples, although its sharding
  // rule has a sum. That sum only combines the masked gathers of the ranks.
  if ((!isSum && factor.kind != FactorKind::PassThrough) || factor.indexed)
    return fail(whole,
                spell(whole) + " depends on several samples, and adds none up");
  if (unlike.contains(op))
    return failLayout(whole);
  Value value = part;
  bool isOwn =
      !twin || llvm::all_of(llvm::zip(twin->getOperands(), own), [](auto pair) {
        return isSame(std::get<0>(pair), std::get<1>(pair).value);
      });
  if (!twin) // the sum over a single sample does not exist in `func`
    for (const Part &operand : own)
      if (operand.kind == Kind::Tile)
        value = operand.value;
  if (!isOwn) {
    for (auto [operand, made] : llvm::zip(twin->getOperands(), own))
      if (operand.getType() != made.value.getType())
        return failTwins(whole);
    value = cloneWith(twin, whole.getResultNumber(), own);
  }
  if (!isSum)
    return Part{Kind::Tile, value};
  FailureOr<Value> sum = withType(value, whole.getType(), whole);
  if (failed(sum))
    return failure();
  return Part{Kind::Sum, *sum};
}

/// Handles an operation whose operands are all of kind Whole (the same in all
/// microbatches). Its result is then the same as well, unless it is a broadcast
/// that repeats a value for each sample.
FailureOr<LossSplitter::Part> LossSplitter::ofWhole(Operation *op,
                                                    OpResult whole,
                                                    Operation *twin, Value part,
                                                    ArrayRef<Part> operands) {
  if (!hasSamples(whole))
    return Part{Kind::Whole, cloneWith(op, whole.getResultNumber(), operands)};
  std::optional<int64_t> dim = flow->majorDimOf(whole);
  ShardingRule rule = ShardingRule::of(op);
  bool repeats =
      dim && isa<nn::BroadcastOp>(op) && !rule.results[0][*dim].empty();
  for (const TensorFactors &dims : rule.operands)
    for (const DimFactors &made : dims)
      repeats &=
          dim && !llvm::is_contained(made, rule.results[0][*dim].front());
  if (!repeats)
    return fail(whole, spell(whole) + " depends on the order of samples");
  if (unlike.contains(op))
    return failLayout(whole);
  if (twin && twin->getOperand(0).getType() == operands[0].value.getType())
    return Part{Kind::Tile, cloneWith(twin, 0, operands)};
  FailureOr<Value> value = withType(operands[0].value, part.getType(), whole);
  if (failed(value))
    return failure();
  return Part{Kind::Tile, *value};
}

/// `whole` repeats the same elements for every sample along `dim`. Returns the
/// same value for the number of samples of `twin`, the corresponding value of a
/// microbatch. Fails if `whole` is neither a splat nor such a broadcast.
FailureOr<Value> LossSplitter::repeat(Value whole, Value twin, unsigned dim) {
  if (!twin)
    return failure();
  Location loc = whole.getLoc();
  if (Attribute element = splatElementOf(whole)) {
    Attribute other = splatElementOf(twin);
    if (element == other)
      return twin;
    return Value(arith::ConstantOp::create(
        builder, loc, DenseElementsAttr::get(typeOf(twin), element)));
  }
  auto broadcast = whole.getDefiningOp<nn::BroadcastOp>();
  auto own = twin.getDefiningOp<nn::BroadcastOp>();
  if (!broadcast || !own || llvm::is_contained(broadcast.getDims(), dim) ||
      broadcast.getInput().getType() != own.getInput().getType())
    return failure();
  FailureOr<Value> source = copyWhole(broadcast.getInput());
  if (failed(source))
    return failure();
  return cloneWith(own, 0, Part{Kind::Whole, *source});
}

Value LossSplitter::cloneWith(Operation *op, unsigned result,
                              ArrayRef<Part> operands) {
  IRMapping mapping;
  for (auto [operand, made] : llvm::zip(op->getOperands(), operands))
    mapping.map(operand, made.value);
  return builder.clone(*op, mapping)->getResult(result);
}

/// Reshapes a value to a type that differs only in dimensions of size 1.
FailureOr<Value> LossSplitter::withType(Value value, Type type, Value whole) {
  auto wanted = cast<RankedTensorType>(type);
  if (value.getType() == type)
    return value;
  if (typeOf(value).getElementType() != wanted.getElementType() ||
      typeOf(value).getNumElements() != wanted.getNumElements())
    return LogicalResult(failTwins(whole));
  return Value(nn::ReshapeOp::create(builder, whole.getLoc(), wanted, value));
}

/// Returns whether `part` has the shape that `whole` would have for the samples
/// of one microbatch. Dimensions of size 1 may be missing.
bool LossSplitter::isTileOf(Value part, Value whole) const {
  SmallVector<int64_t> wanted(typeOf(whole).getShape());
  if (std::optional<int64_t> dim = flow->majorDimOf(whole)) {
    if (wanted[*dim] % microbatches != 0)
      return false;
    wanted[*dim] /= microbatches;
  }
  SmallVector<int64_t> own(typeOf(part).getShape());
  llvm::erase(wanted, 1);
  llvm::erase(own, 1);
  return wanted == own;
}

/// Checks that `whole` in the function for a step and `part` in the function
/// for a microbatch are the same value of the model: results of the same ONNX
/// node, or the same input, whose sizes differ only in the number of samples.
LogicalResult LossSplitter::checkTwins(Value whole, Value part) {
  if (!hasStep())
    return success();
  if (!part || !isTileOf(part, whole))
    return failTwins(whole);
  Value a = beforeReshapes(whole), b = beforeReshapes(part);
  bool same =
      b && typeOf(a).getElementType() == typeOf(b).getElementType() &&
      typeOf(a).getNumElements() == typeOf(b).getNumElements() * microbatches;
  auto x = dyn_cast<BlockArgument>(a),
       y = dyn_cast_if_present<BlockArgument>(b);
  if (!same || bool(x) != bool(y))
    return failTwins(whole);
  if (x)
    same = nameOf(step, x.getArgNumber()) == nameOf(func, y.getArgNumber());
  else
    same = areTwins(a.getDefiningOp(), b.getDefiningOp()) &&
           cast<OpResult>(a).getResultNumber() ==
               cast<OpResult>(b).getResultNumber();
  return same ? success() : failTwins(whole);
}

FailureOr<Value> LossSplitter::copyWhole(Value whole) {
  if (!hasStep())
    return whole;
  if (Value known = wholes.lookupOrNull(whole))
    return known;
  if (auto argument = dyn_cast<BlockArgument>(whole)) {
    FailureOr<Value> own = copyArgument(argument);
    if (succeeded(own))
      wholes.map(whole, *own);
    return own;
  }
  Operation *op = whole.getDefiningOp();
  for (Value operand : op->getOperands())
    if (failed(copyWhole(operand)))
      return failure();
  builder.clone(*op, wholes);
  return wholes.lookup(whole);
}

/// Returns the argument of `func` (for one microbatch) that corresponds to an
/// argument of `step` (for the whole step). If the argument has the samples of
/// the whole step, a new argument of that size is added to `func`.
FailureOr<Value> LossSplitter::copyArgument(BlockArgument argument) {
  StringRef name = nameOf(step, argument.getArgNumber());
  Builder attributes(func.getContext());
  bool batched = isBatched(argument);
  std::string wanted = (batched ? name + ".step" : name).str();
  for (unsigned i = 0; i < func.getNumArguments(); ++i) {
    if (nameOf(func, i) != wanted)
      continue;
    if (batched) // the model already has an input with this name
      return LogicalResult(fail(argument, "the model has an input '" + wanted +
                                              "'; give it another name"));
    if (func.getArgument(i).getType() != argument.getType())
      return LogicalResult(failTwins(argument));
    return Value(func.getArgument(i));
  }
  if (!batched)
    return LogicalResult(failTwins(argument));
  NamedAttrList attrs(step.getArgAttrDict(argument.getArgNumber()));
  nn::setName(attrs, func.getContext(), wanted);
  nn::setRole(attrs, func.getContext(), nn::Role::Input);
  attrs.set(nn::kWholeStepAttr, attributes.getStringAttr(name));
  auto dim = nn::batchDimOf(step.getArgAttrDict(argument.getArgNumber()),
                            typeOf(argument).getRank());
  if (dim)
    attrs.set(nn::kBatchDimAttr, attributes.getI64IntegerAttr(*dim));
  unsigned index = func.getNumArguments();
  if (failed(func.insertArgument(index, argument.getType(),
                                 attrs.getDictionary(func.getContext()),
                                 argument.getLoc())))
    return failure();
  return Value(func.getArgument(index));
}
