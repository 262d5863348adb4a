// A family is a group of values, one per expert, that are computed in the same
// way. This file finds families, and the comparisons of expert ids with expert
// numbers that tell which expert a token chose.

#include "ExpertFamily.h"

#include <limits>

using namespace mlir;

namespace cleave::nn {

Family Family::of(ArrayRef<Value> members) {
  if (llvm::all_equal(members))
    return shared(members.front());
  return {SmallVector<Value>(members), -1};
}

Dims Family::shape() const {
  Dims shape(shapeOf(first()));
  if (dim >= 0)
    shape.erase(shape.begin() + dim);
  return shape;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

static std::optional<FamilyStep::Kind> kindOf(Operation *op) {
  if (isElementwise(op))
    return FamilyStep::Elementwise;
  if (isa<BroadcastOp>(op))
    return FamilyStep::Broadcast;
  if (isa<TransposeOp>(op))
    return FamilyStep::Transpose;
  if (isa<SliceOp>(op))
    return FamilyStep::Slice;
  if (isa<EinsumOp>(op))
    return FamilyStep::Einsum;
  if (auto reduce = dyn_cast<ReduceOp>(op);
      reduce && reduce.getCombiner() == Combiner::Sum)
    return FamilyStep::Reduce;
  return std::nullopt;
}

/// Fills in the fields of `step` that refer to dimensions, such as `dims` and
/// `labels`, from the attributes of the operation `step.op`.
static void readDims(FamilyStep &step) {
  if (auto broadcast = dyn_cast<BroadcastOp>(step.op))
    step.dims = Dims(broadcast.getDims());
  if (auto transpose = dyn_cast<TransposeOp>(step.op))
    step.dims = Dims(transpose.getPermutation());
  if (auto reduce = dyn_cast<ReduceOp>(step.op))
    step.dims = Dims(reduce.getDims());
  if (auto slice = dyn_cast<SliceOp>(step.op)) {
    step.offsets = Dims(slice.getOffsets());
    step.sizes = Dims(slice.getSizes());
    step.strides = Dims(slice.getStrides());
  }
  if (auto einsum = dyn_cast<EinsumOp>(step.op))
    step.labels = einsum.getLabels();
}

std::optional<FamilyStep> stepOf(Value value) {
  Operation *op = value.getDefiningOp();
  std::optional<FamilyStep::Kind> kind = op ? kindOf(op) : std::nullopt;
  if (!kind)
    return std::nullopt;
  FamilyStep step;
  step.op = op;
  step.kind = *kind;
  for (Value operand : op->getOperands())
    step.operands.push_back(Family::shared(operand));
  readDims(step);
  return step;
}

/// Returns whether two values are computed in the same way. Compares only a few
/// operations before each of them (`depth`).
static bool lookAlike(Value a, Value b, unsigned depth) {
  if (a == b || depth == 0)
    return a.getType() == b.getType();
  Operation *x = a.getDefiningOp(), *y = b.getDefiningOp();
  if (!x || !y)
    return x == y && a.getType() == b.getType();
  if (x->getName() != y->getName() || a.getType() != b.getType() ||
      x->getNumOperands() != y->getNumOperands())
    return false;
  auto alike = [&](unsigned i, unsigned j) {
    return lookAlike(x->getOperand(i), y->getOperand(j), depth - 1);
  };
  if (x->getNumOperands() == 2 && x->hasTrait<OpTrait::IsCommutative>() &&
      alike(0, 1) && alike(1, 0))
    return true;
  return llvm::all_of(llvm::seq<unsigned>(0, x->getNumOperands()),
                      [&](unsigned i) { return alike(i, i); });
}

/// A family has one value per expert. For each expert, returns the operands of
/// the operation that computes its value. The two operands of a commutative
/// operation are swapped if necessary, so that corresponding operands of all
/// experts have the same index.
static SmallVector<SmallVector<Value>> operandsOf(const Family &family) {
  SmallVector<SmallVector<Value>> operands;
  Operation *first = family.first().getDefiningOp();
  for (Value member : family.members) {
    Operation *op = member.getDefiningOp();
    SmallVector<Value> &own = operands.emplace_back(op->getOperands());
    auto alike = [&](unsigned i, unsigned j) {
      return lookAlike(first->getOperand(i), own[j], 4);
    };
    if (own.size() == 2 && op->hasTrait<OpTrait::IsCommutative>() &&
        !(alike(0, 0) && alike(1, 1)) && alike(0, 1) && alike(1, 0))
      std::swap(own[0], own[1]);
  }
  return operands;
}

static std::optional<FamilyStep> stepOfMembers(const Family &family) {
  FamilyStep step;
  step.op = family.first().getDefiningOp();
  if (!step.op) {
    bool allArguments = llvm::all_of(family.members, [&](Value member) {
      return isa<BlockArgument>(member) &&
             member.getType() == family.first().getType();
    });
    return allArguments ? std::optional(step) : std::nullopt;
  }
  std::optional<FamilyStep::Kind> kind = kindOf(step.op);
  if (!kind)
    return std::nullopt;
  step.kind = *kind;
  for (Value member : family.members) {
    Operation *other = member.getDefiningOp();
    if (!other || other->getName() != step.op->getName() ||
        other->getAttrDictionary() != step.op->getAttrDictionary() ||
        other->getNumOperands() != step.op->getNumOperands() ||
        member.getType() != family.first().getType())
      return std::nullopt;
  }
  SmallVector<SmallVector<Value>> all = operandsOf(family);
  for (unsigned i = 0; i < step.op->getNumOperands(); ++i) {
    SmallVector<Value> operands;
    for (ArrayRef<Value> own : all)
      operands.push_back(own[i]);
    if (!llvm::all_equal(
            llvm::map_range(operands, [](Value v) { return v.getType(); })))
      return std::nullopt;
    step.operands.push_back(Family::of(operands));
  }
  readDims(step);
  return step;
}

/// Returns how a family (the values of all experts) is computed if it is stored
/// as one value, with the experts along dimension `family.dim`. The dimension
/// numbers in the result are those of the value of a single expert, which does
/// not have this dimension.
static std::optional<FamilyStep> stepAlong(const Family &family) {
  FamilyStep step;
  int64_t dim = family.dim;
  step.op = family.first().getDefiningOp();
  if (!step.op)
    return step;
  std::optional<FamilyStep::Kind> kind = kindOf(step.op);
  if (!kind)
    return std::nullopt;
  step.kind = *kind;
  readDims(step);
  auto without = [](Dims list, int64_t at) {
    list.erase(list.begin() + at);
    return list;
  };
  auto shifted = [](Dims list, int64_t past) {
    for (int64_t &entry : list)
      entry -= entry > past;
    return list;
  };
  auto single = [&](Value operand, int64_t at) {
    step.operands = {at < 0 ? Family::shared(operand)
                            : Family::along(operand, at)};
  };
  Value input = step.op->getOperand(0);
  switch (step.kind) {
  case FamilyStep::Leaf:
    break;
  case FamilyStep::Elementwise:
    for (Value operand : step.op->getOperands())
      step.operands.push_back(Family::along(operand, dim));
    break;
  case FamilyStep::Broadcast: {
    auto at = llvm::find(step.dims, dim);
    int64_t inner = at == step.dims.end() ? -1 : at - step.dims.begin();
    single(input, inner);
    step.dims = shifted(inner < 0 ? step.dims : without(step.dims, inner), dim);
    break;
  }
  case FamilyStep::Transpose: {
    int64_t inner = step.dims[dim];
    single(input, inner);
    step.dims = shifted(without(step.dims, dim), inner);
    break;
  }
  case FamilyStep::Reduce: {
    int64_t inner = dim;
    for (int64_t reduced : step.dims) // in increasing order
      inner += reduced <= inner;
    single(input, inner);
    step.dims = shifted(step.dims, inner);
    break;
  }
  case FamilyStep::Slice:
    if (step.sizes[dim] != shapeOf(input)[dim] || step.strides[dim] != 1)
      return std::nullopt;
    single(input, dim);
    step.offsets = without(step.offsets, dim);
    step.sizes = without(step.sizes, dim);
    step.strides = without(step.strides, dim);
    break;
  case FamilyStep::Einsum: {
    char letter = step.labels.result[dim];
    step.labels.result.erase(dim, 1);
    for (auto [operand, letters] :
         {std::pair(step.op->getOperand(0), &step.labels.lhs),
          std::pair(step.op->getOperand(1), &step.labels.rhs)}) {
      size_t at = letters->find(letter);
      step.operands.push_back(at == std::string::npos
                                  ? Family::shared(operand)
                                  : Family::along(operand, at));
      if (at != std::string::npos)
        letters->erase(at, 1);
    }
    break;
  }
  }
  return step;
}

std::optional<FamilyStep> stepOf(const Family &family) {
  if (family.isShared())
    return std::nullopt;
  return family.dim < 0 ? stepOfMembers(family) : stepAlong(family);
}

//===----------------------------------------------------------------------===//
// Tests
//===----------------------------------------------------------------------===//

namespace {

/// The index of an element along one dimension of a value, which is a part of
/// the terms in a sum over experts. If `isFixed`, the index is the number
/// `value`. Otherwise it is the element's index along the dimension number
/// `value` of the sum over experts (see Factor in ExpertProduct.h).
struct At {
  bool isFixed = false;
  int64_t value = 0;
};
using Place = SmallVector<At, 6>;

/// The number of the dimension over which a sum over experts runs. It is larger
/// than the numbers of the sum's other dimensions (see Factor in
/// ExpertProduct.h).
constexpr int64_t kExpert = std::numeric_limits<int64_t>::max();

/// If `value` is the result of a data movement, and `place` the position of an
/// element in it, returns the operand of the data movement and changes `place`
/// to the position of the same element in the operand. Returns nullopt for
/// other operations.
std::optional<Value> stepBack(Value value, Place &place) {
  Operation *op = value.getDefiningOp();
  if (auto broadcast = dyn_cast_if_present<BroadcastOp>(op)) {
    Place inner;
    for (int64_t dim : broadcast.getDims())
      inner.push_back(place[dim]);
    place = inner;
    return broadcast.getInput();
  }
  if (auto transpose = dyn_cast_if_present<TransposeOp>(op)) {
    Place inner(place.size());
    for (auto [to, from] : llvm::enumerate(transpose.getPermutation()))
      inner[from] = place[to];
    place = inner;
    return transpose.getInput();
  }
  if (auto slice = dyn_cast_if_present<SliceOp>(op)) {
    for (auto [dim, at] : llvm::enumerate(place)) {
      int64_t offset = slice.getOffsets()[dim], step = slice.getStrides()[dim];
      if (at.isFixed)
        at.value = offset + at.value * step;
      else if (slice.getSizes()[dim] == 1)
        at = {true, offset};
      else if (offset != 0 || step != 1 ||
               slice.getSizes()[dim] != shapeOf(slice.getInput())[dim])
        return std::nullopt;
    }
    return slice.getInput();
  }
  if (auto reshape = dyn_cast_if_present<ReshapeOp>(op)) {
    // Only reshapes that add or remove dimensions of size 1 are supported.
    Place inner;
    ArrayRef<int64_t> to = shapeOf(value), from = shapeOf(reshape.getInput());
    size_t next = 0;
    for (int64_t size : from) {
      if (size == 1) {
        inner.push_back({true, 0});
        continue;
      }
      while (next < to.size() && to[next] == 1)
        ++next;
      if (next == to.size() || to[next] != size)
        return std::nullopt;
      inner.push_back(place[next++]);
    }
    place = inner;
    return reshape.getInput();
  }
  if (isa_and_present<arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp>(op) &&
      !cast<RankedTensorType>(op->getOperand(0).getType())
           .getElementType()
           .isInteger(1))
    return op->getOperand(0);
  return std::nullopt;
}

/// Returns the integer that `value` has at position `place`, if it is known at
/// compile time. Returns kExpert if the integer is the index along the
/// dimension of experts, that is, the number of each expert.
std::optional<int64_t> numberAt(Value value, Place place) {
  for (;;) {
    if (!isa<IntegerType>(typeOf(value).getElementType()))
      return std::nullopt;
    if (auto iota = value.getDefiningOp<IotaOp>()) {
      At at = place[iota.getDim()];
      if (at.isFixed || at.value == kExpert)
        return at.value;
      return std::nullopt;
    }
    if (auto constant = value.getDefiningOp<arith::ConstantOp>()) {
      auto elements = dyn_cast<DenseIntElementsAttr>(constant.getValue());
      if (!elements)
        return std::nullopt;
      if (elements.isSplat())
        return elements.getSplatValue<APInt>().getSExtValue();
      if (place.size() != 1)
        return std::nullopt;
      SmallVector<APInt> all(elements.getValues<APInt>());
      if (place[0].isFixed)
        return all[place[0].value].getSExtValue();
      if (place[0].value != kExpert)
        return std::nullopt;
      for (auto [index, element] : llvm::enumerate(all))
        if (element.getSExtValue() != int64_t(index))
          return std::nullopt;
      return kExpert;
    }
    std::optional<Value> source = stepBack(value, place);
    if (!source)
      return std::nullopt;
    value = *source;
  }
}

std::optional<std::pair<ExpertTest, int64_t>> testAt(Value value, Place place) {
  for (;;) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return std::nullopt;
    if (isa<arith::UIToFPOp, arith::SIToFPOp, arith::ExtUIOp>(op)) {
      value = op->getOperand(0);
      continue;
    }
    if (auto select = dyn_cast<arith::SelectOp>(op)) {
      if (!isSplat(select.getTrueValue(), 1) ||
          !isSplat(select.getFalseValue(), 0) ||
          !isa<RankedTensorType>(select.getCondition().getType()))
        return std::nullopt;
      value = select.getCondition();
      continue;
    }
    if (auto compare = dyn_cast<arith::CmpFOp>(op)) {
      if (compare.getPredicate() != arith::CmpFPredicate::UNE ||
          !isSplat(compare.getRhs(), 0))
        return std::nullopt;
      value = compare.getLhs();
      continue;
    }
    auto compare = dyn_cast<arith::CmpIOp>(op);
    if (compare && compare.getPredicate() == arith::CmpIPredicate::ne &&
        isSplat(compare.getRhs(), 0)) {
      value = compare.getLhs();
      continue;
    }
    if (compare && compare.getPredicate() == arith::CmpIPredicate::eq) {
      for (auto [ids, number] :
           {std::pair(compare.getLhs(), compare.getRhs()),
            std::pair(compare.getRhs(), compare.getLhs())}) {
        std::optional<int64_t> expert = numberAt(number, place);
        if (!expert)
          continue;
        Place inner = place;
        while (std::optional<Value> source = stepBack(ids, inner))
          ids = *source;
        ExpertTest test{ids, {}};
        for (auto [dim, at] : llvm::enumerate(inner)) {
          if (at.isFixed ? shapeOf(ids)[dim] != 1 : at.value == kExpert)
            return std::nullopt;
          test.frame.push_back(at.isFixed ? -1 : at.value);
        }
        return std::pair(test, *expert);
      }
      return std::nullopt;
    }
    std::optional<Value> source = stepBack(value, place);
    if (!source)
      return std::nullopt;
    value = *source;
  }
}

Place placeOf(const Dims &frame) {
  Place place;
  for (int64_t dim : frame)
    place.push_back({false, dim});
  return place;
}

} // namespace

std::optional<std::pair<ExpertTest, int64_t>> testOf(Value value, Dims frame) {
  return testAt(value, placeOf(frame));
}

std::optional<ExpertTest> testOf(const Family &family, Dims frame) {
  if (family.isShared())
    return std::nullopt;
  if (family.dim >= 0) {
    frame.insert(frame.begin() + family.dim, kExpert);
    auto found = testAt(family.first(), placeOf(frame));
    return found && found->second == kExpert ? std::optional(found->first)
                                             : std::nullopt;
  }
  std::optional<ExpertTest> test;
  for (auto [index, member] : llvm::enumerate(family.members)) {
    auto found = testOf(member, frame);
    if (!found || found->second != int64_t(index) ||
        (test && !(*test == found->first)))
      return std::nullopt;
    test = found->first;
  }
  return test;
}

} // namespace cleave::nn
