// Rewrites a sum over all experts n to a sum over the choices k of each token
// t, where choice k is the k-th expert that the token chose (called a slot in
// code):
//
//   sum over experts n of sum over k of [ids[t, k] = n] * w[t, k] * f_n(x[t])
//     = sum over k of w[t, k] * f_ids[t, k](x[t])
//
// Here f_n is the function that expert n computes, and w are the weights of the
// token's choices. A frame is a list of numbers that identify the dimensions of
// a value on the left side (see Factor in ExpertProduct.h). Dimensions that the
// ids also have enumerate tokens or choices; all other dimensions are called
// features. A value on the right side has the dimensions [tokens..., choices,
// features...].

#include "ExpertSlots.h"

using namespace mlir;

namespace cleave::nn {

namespace {

class SlotBuilder {
public:
  SlotBuilder(OpBuilder &builder, Location loc, const ExpertProduct &product)
      : b(builder), loc(loc), product(product) {}

  Value run(ArrayRef<int64_t> shape);

private:
  bool arrangeIds();
  bool isFeature(int64_t dim) const {
    return dim != product.slot && !llvm::is_contained(tokens, dim);
  }
  /// Returns the indices in `frame` of the features, that is, of the dimensions
  /// that enumerate neither tokens nor a token's choices.
  Dims featuresOf(const Dims &frame) const {
    Dims features;
    for (auto [index, dim] : llvm::enumerate(frame))
      if (isFeature(dim))
        features.push_back(index);
    return features;
  }
  Dims slotShape(const Family &family, const Dims &frame) const {
    Dims shape(shapeOf(ids)), own = family.shape();
    for (int64_t index : featuresOf(frame))
      shape.push_back(own[index]);
    return shape;
  }

  Value slotsOf(const Family &family, const Dims &frame);
  Value build(const Family &family, const Dims &frame);
  Value broadcastOf(const FamilyStep &step, const Dims &frame,
                    const Dims &shape);
  Value transposeOf(const FamilyStep &step, const Dims &frame);
  Value spread(Value value, Dims frame);
  Value einsumOf(const FamilyStep &step, const Dims &frame);
  /// Returns the values of all experts in `family` as one tensor of shape
  /// [experts, dimensions of one expert's value...].
  Value stackOf(const Family &family);

  OpBuilder &b;
  Location loc;
  const ExpertProduct &product;
  Value ids;
  Dims tokens;        // numbers of the dimensions of tokens, in the ids' order
  int64_t fresh = -1; // the last number given to a contracted dimension
  SmallVector<std::tuple<Family, Dims, Value>> known;
};

/// Reshapes the ids to [tokens..., choices], where a choice is one of the
/// experts that a token chose.
bool SlotBuilder::arrangeIds() {
  ids = product.test->ids;
  Dims order, shape;
  int64_t slot = -1;
  for (auto [dim, name] : llvm::enumerate(product.test->frame)) {
    if (name < 0)
      continue; // a dimension of size 1
    if (name == product.slot) {
      if (slot >= 0)
        return false;
      slot = dim;
      continue;
    }
    if (llvm::is_contained(tokens, name))
      return false;
    tokens.push_back(name);
    order.push_back(dim);
    shape.push_back(shapeOf(ids)[dim]);
  }
  shape.push_back(slot < 0 ? 1 : shapeOf(ids)[slot]);
  for (auto [dim, name] : llvm::enumerate(product.test->frame))
    if (name < 0)
      order.push_back(dim);
  if (slot >= 0)
    order.push_back(slot);
  ids = reshapeTo(b, loc, transposeTo(b, loc, ids, order), shape);
  return true;
}

/// Broadcasts a value that all experts share to the dimensions [tokens...,
/// choices, features...].
Value SlotBuilder::spread(Value value, Dims frame) {
  Dims shape = slotShape(Family::shared(value), frame), features;
  if (Value number = reshapedSplat(b, loc, value, shape))
    return number;
  for (int64_t index : featuresOf(frame))
    features.push_back(frame[index]);
  // Operands of broadcasts are broadcast directly to the final shape.
  while (auto broadcast = value.getDefiningOp<BroadcastOp>()) {
    Dims inner;
    for (int64_t dim : broadcast.getDims())
      inner.push_back(frame[dim]);
    value = broadcast.getInput();
    frame = inner;
  }
  Dims order, dims, names = tokens;
  names.push_back(product.slot);
  llvm::append_range(names, features);
  for (auto [to, name] : llvm::enumerate(names))
    if (auto at = llvm::find(frame, name); at != frame.end()) {
      order.push_back(at - frame.begin());
      dims.push_back(to);
    }
  return broadcastTo(b, loc, transposeTo(b, loc, value, order), shape, dims);
}

Value SlotBuilder::stackOf(const Family &family) {
  if (family.dim >= 0) {
    Dims order = {family.dim};
    for (int64_t dim = 0; dim < rankOf(family.first()); ++dim)
      if (dim != family.dim)
        order.push_back(dim);
    return transposeTo(b, loc, family.first(), order);
  }
  Dims shape = family.shape();
  shape.insert(shape.begin(), 1);
  SmallVector<Value> parts;
  for (Value member : family.members)
    parts.push_back(reshapeTo(b, loc, member, shape));
  return ConcatOp::create(b, loc, parts, 0);
}

Value SlotBuilder::einsumOf(const FamilyStep &step, const Dims &frame) {
  const EinsumOp::Labels &labels = step.labels;
  SmallVector<std::pair<char, int64_t>> names;
  auto frameOf = [&](StringRef letters) {
    Dims inner;
    for (char letter : letters) {
      size_t at = labels.result.find(letter);
      auto known =
          llvm::find_if(names, [&](auto &n) { return n.first == letter; });
      if (at != std::string::npos)
        inner.push_back(frame[at]);
      else if (known != names.end())
        inner.push_back(known->second);
      else
        inner.push_back(names.emplace_back(letter, --fresh).second);
    }
    return inner;
  };
  Dims sides[] = {frameOf(labels.lhs), frameOf(labels.rhs)};
  StringRef letters[] = {labels.lhs, labels.rhs};
  for (int matrix : {0, 1}) {
    const Family &weights = step.operands[matrix],
                 &input = step.operands[1 - matrix];
    StringRef own = letters[matrix], other = letters[1 - matrix];
    bool isMatrix = own.size() == 2 &&
                    llvm::all_of(sides[matrix],
                                 [&](int64_t dim) { return isFeature(dim); });
    if (!isMatrix || featuresOf(sides[1 - matrix]).size() != 1)
      continue;
    // The contraction must be over one dimension of the expert's matrix, and
    // the other one must be in the result.
    size_t contracted = other.contains(own[0]) ? 0 : 1;
    if (!other.contains(own[contracted]) ||
        StringRef(labels.result).contains(own[contracted]) ||
        !StringRef(labels.result).contains(own[1 - contracted]))
      continue;
    Value rows = slotsOf(input, sides[1 - matrix]);
    if (!rows)
      return nullptr;
    int64_t columns = weights.shape()[1 - contracted];
    Dims shape(shapeOf(ids));
    shape.push_back(columns);
    auto type = typeOf(rows).clone(shape);
    if (!weights.isShared())
      return GroupedDotOp::create(b, loc, type, rows, stackOf(weights), ids,
                                  /*transposed=*/contracted == 1);
    // All experts share the matrix.
    std::string slots;
    for (size_t dim = 0; dim < tokens.size() + 1; ++dim)
      slots.push_back('A' + dim);
    std::string equation = slots + own[contracted] + "," + own.str() + "->" +
                           slots + own[1 - contracted];
    return EinsumOp::create(b, loc, b.getStringAttr(equation), rows,
                            weights.first());
  }
  return nullptr;
}

Value SlotBuilder::broadcastOf(const FamilyStep &step, const Dims &frame,
                               const Dims &shape) {
  int64_t front = tokens.size() + 1;
  Dims inner, dims = allDims(front);
  for (int64_t dim : step.dims)
    inner.push_back(frame[dim]);
  Value input = slotsOf(step.operands[0], inner);
  int64_t next = front;
  for (int64_t index : featuresOf(frame)) {
    if (llvm::is_contained(inner, frame[index]))
      dims.push_back(next);
    ++next;
  }
  return input ? broadcastTo(b, loc, input, shape, dims) : nullptr;
}

Value SlotBuilder::transposeOf(const FamilyStep &step, const Dims &frame) {
  int64_t front = tokens.size() + 1;
  Dims inner(frame.size()), order = allDims(front);
  for (auto [to, from] : llvm::enumerate(step.dims))
    inner[from] = frame[to];
  Value input = slotsOf(step.operands[0], inner);
  Dims features = featuresOf(inner);
  for (int64_t index : featuresOf(frame)) {
    auto at = llvm::find_if(
        features, [&](int64_t i) { return inner[i] == frame[index]; });
    order.push_back(front + (at - features.begin()));
  }
  return input ? transposeTo(b, loc, input, order) : nullptr;
}

Value SlotBuilder::build(const Family &family, const Dims &frame) {
  if (family.isShared())
    return spread(family.first(), frame);
  std::optional<FamilyStep> step = stepOf(family);
  if (!step)
    return nullptr;
  Dims shape = slotShape(family, frame);
  int64_t front = tokens.size() + 1;
  auto operand = [&](Dims inner) { return slotsOf(step->operands[0], inner); };
  switch (step->kind) {
  case FamilyStep::Leaf:
    // The values are function arguments, one per expert. If they have no
    // dimension of tokens, such as biases of the experts, each choice of a
    // token gets its expert's value: stack the values and gather them by expert
    // id.
    if (featuresOf(frame).size() != frame.size())
      return nullptr;
    return GatherOp::create(b, loc, stackOf(family), ids, 0);
  case FamilyStep::Elementwise: {
    SmallVector<Value> operands;
    for (const Family &part : step->operands) {
      operands.push_back(slotsOf(part, frame));
      if (!operands.back())
        return nullptr;
    }
    return cloneElementwise(b, step->op, operands, shape);
  }
  case FamilyStep::Broadcast:
    return broadcastOf(*step, frame, shape);
  case FamilyStep::Transpose:
    return transposeOf(*step, frame);
  case FamilyStep::Reduce: {
    Dims inner = frame, reduced;
    for (int64_t dim : step->dims) // ascending, so indices stay valid
      inner.insert(inner.begin() + dim, --fresh);
    Value input = operand(inner);
    for (auto [place, index] : llvm::enumerate(featuresOf(inner)))
      if (llvm::is_contained(step->dims, index))
        reduced.push_back(front + place);
    return input ? ReduceOp::create(b, loc, Combiner::Sum, input, reduced)
                 : Value();
  }
  case FamilyStep::Slice: {
    Dims whole = step->operands[0].shape(), offsets(front, 0),
         sizes(shapeOf(ids)), strides(front, 1);
    for (auto [index, dim] : llvm::enumerate(frame)) {
      if (!isFeature(dim)) {
        if (step->sizes[index] != whole[index] || step->strides[index] != 1)
          return nullptr;
        continue;
      }
      offsets.push_back(step->offsets[index]);
      sizes.push_back(step->sizes[index]);
      strides.push_back(step->strides[index]);
    }
    Value input = operand(frame);
    return input ? SliceOp::create(b, loc, input, offsets, sizes, strides)
                 : Value();
  }
  case FamilyStep::Einsum:
    return einsumOf(*step, frame);
  }
  return nullptr;
}

Value SlotBuilder::slotsOf(const Family &family, const Dims &frame) {
  for (auto &[other, otherFrame, value] : known)
    if (other.members == family.members && other.dim == family.dim &&
        otherFrame == frame)
      return value;
  Value value = build(family, frame);
  if (value)
    known.push_back({family, frame, value});
  return value;
}

Value SlotBuilder::run(ArrayRef<int64_t> shape) {
  if (!arrangeIds())
    return nullptr;
  Value weights, result;
  Dims features; // numbers of the feature dimensions
  for (bool ofWeights : {false, true})
    for (const Factor &factor : product.factors) {
      Dims own;
      for (int64_t index : featuresOf(factor.frame))
        own.push_back(factor.frame[index]);
      if (own.empty() != ofWeights)
        continue;
      // The factors that have features (dimensions of neither tokens nor
      // choices) are multiplied elementwise. So they must all have the same
      // features in the same order. If not, the sum over experts is not
      // rewritten.
      if (!ofWeights && result && own != features)
        return nullptr;
      Value value = slotsOf(factor.family, factor.frame);
      if (!value)
        return nullptr;
      Value &into = ofWeights ? weights : result;
      into =
          into ? arith::MulFOp::create(b, loc, into, value).getResult() : value;
      if (!ofWeights)
        features = own;
    }
  if (!result)
    return nullptr;
  int64_t slot = tokens.size();
  if (weights) {
    std::string rows, sums;
    for (int64_t dim = 0; dim < rankOf(result); ++dim) {
      rows.push_back('a' + dim);
      if (dim != slot)
        sums.push_back('a' + dim);
    }
    std::string equation = rows + "," + rows.substr(0, slot + 1) + "->" + sums;
    result =
        EinsumOp::create(b, loc, b.getStringAttr(equation), result, weights);
  } else {
    result = ReduceOp::create(b, loc, Combiner::Sum, result,
                              ArrayRef<int64_t>{slot});
  }
  // Transposes the result from [tokens..., features...] to the dimension order
  // of the original sum.
  Dims have = tokens, order;
  llvm::append_range(have, features);
  for (int64_t dim = 0; dim < int64_t(shape.size()); ++dim) {
    auto at = llvm::find(have, dim);
    if (at == have.end())
      return nullptr;
    order.push_back(at - have.begin());
  }
  if (have.size() != shape.size())
    return nullptr;
  return transposeTo(b, loc, result, order);
}

} // namespace

Value sumBySlots(OpBuilder &builder, Location loc, const ExpertProduct &product,
                 ArrayRef<int64_t> shape) {
  return SlotBuilder(builder, loc, product).run(shape);
}

} // namespace cleave::nn
