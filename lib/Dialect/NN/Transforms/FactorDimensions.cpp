// Finds equivalence classes of dimensions that must be split in the same way,
// and the factors into which they are split.

#include "FactorDimensions.h"

#include <numeric>

using namespace mlir;

namespace cleave::nn {

int FactorAnalysis::node(Value value, int64_t dim) {
  auto [it, isNew] = firstNode.try_emplace(value, int(parent.size()));
  if (isNew)
    for (int64_t size : shapeOf(value)) {
      parent.push_back(parent.size());
      classes.push_back({size, false, {}});
    }
  return it->second + dim;
}

int FactorAnalysis::find(int node) const {
  while (parent[node] != node)
    node = parent[node] = parent[parent[node]];
  return node;
}

void FactorAnalysis::unite(Value a, int64_t dimA, Value b, int64_t dimB) {
  int left = find(node(a, dimA)), right = find(node(b, dimB));
  if (left == right)
    return;
  classes[left].atomic |= classes[right].atomic;
  parent[right] = left;
}

void FactorAnalysis::uniteAll(Value a, Value b) {
  for (int64_t dim = 0; dim < rankOf(a); ++dim)
    unite(a, dim, b, dim);
}

void FactorAnalysis::makeAtomic(Value value, int64_t dim) {
  classes[find(node(value, dim))].atomic = true;
}

void FactorAnalysis::makeAtomic(Value value) {
  if (isa<RankedTensorType>(value.getType()))
    for (int64_t dim = 0; dim < rankOf(value); ++dim)
      makeAtomic(value, dim);
}

//===----------------------------------------------------------------------===//
// Constraints of the operations on their dimensions
//===----------------------------------------------------------------------===//

void FactorAnalysis::visitEinsum(EinsumOp op) {
  EinsumOp::Labels labels = op.getLabels();
  llvm::SmallDenseMap<char, std::pair<Value, int64_t>> seen;
  auto walk = [&](StringRef letters, Value value) {
    for (auto [dim, letter] : llvm::enumerate(letters)) {
      auto [it, isNew] =
          seen.try_emplace(letter, std::pair(value, int64_t(dim)));
      if (!isNew)
        unite(it->second.first, it->second.second, value, dim);
    }
  };
  walk(labels.lhs, op.getLhs());
  walk(labels.rhs, op.getRhs());
  walk(labels.result, op.getResult());
}

void FactorAnalysis::visitReshape(ReshapeOp op) {
  Value input = op.getInput(), result = op.getResult();
  if (typeOf(input).getNumElements() == 0) {
    makeAtomic(input);
    makeAtomic(result);
    return;
  }
  // Divides the dimensions of the reshape's operand and result into groups of
  // consecutive dimensions. A group has as many elements in the operand as in
  // the result, and is as small as possible. Dimensions of size 1 belong to no
  // group.
  auto next = [](ArrayRef<int64_t> shape, size_t &at) {
    while (at < shape.size() && shape[at] == 1)
      ++at;
    return at < shape.size();
  };
  ArrayRef<int64_t> from = shapeOf(input), to = shapeOf(result);
  size_t i = 0, j = 0;
  while (next(from, i) && next(to, j)) {
    Dims left = {int64_t(i)}, right = {int64_t(j)};
    int64_t a = from[i++], b = to[j++];
    while (a != b) {
      if (a < b && next(from, i)) {
        left.push_back(i);
        a *= from[i++];
      } else if (a > b && next(to, j)) {
        right.push_back(j);
        b *= to[j++];
      } else {
        break;
      }
    }
    if (left.size() == 1 && right.size() == 1) {
      unite(input, left[0], result, right[0]);
      continue;
    }
    Group group;
    group.size = a;
    auto add = [&](Value value, ArrayRef<int64_t> dims) {
      int64_t stride = 1;
      for (int64_t dim : llvm::reverse(dims)) {
        group.parts.push_back({node(value, dim), stride});
        stride *= shapeOf(value)[dim];
      }
    };
    add(input, left);
    add(result, right);
    groups.push_back(group);
  }
}

void FactorAnalysis::visitSlice(SliceOp op) {
  Value input = op.getInput(), result = op.getResult();
  for (int64_t dim = 0; dim < rankOf(input); ++dim) {
    int64_t size = shapeOf(input)[dim], kept = op.getSizes()[dim];
    int64_t offset = op.getOffsets()[dim], stride = op.getStrides()[dim];
    if (stride != 1 || kept == 0) {
      makeAtomic(input, dim);
      makeAtomic(result, dim);
    } else if (kept == size) {
      unite(input, dim, result, dim);
    } else {
      int64_t grain = std::gcd(std::gcd(size, kept), offset);
      slices.push_back({node(input, dim), node(result, dim), grain, offset});
    }
  }
}

void FactorAnalysis::visit(Operation *op) {
  if (isElementwise(op)) {
    for (Value operand : op->getOperands())
      uniteAll(operand, op->getResult(0));
    return;
  }
  if (auto einsum = dyn_cast<EinsumOp>(op))
    return visitEinsum(einsum);
  if (auto reshape = dyn_cast<ReshapeOp>(op))
    return visitReshape(reshape);
  if (auto slice = dyn_cast<SliceOp>(op))
    return visitSlice(slice);
  if (isa<arith::ConstantOp, func::ReturnOp>(op))
    return; // they support every shape
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    for (auto [index, dim] : llvm::enumerate(broadcast.getDims()))
      unite(broadcast.getInput(), index, broadcast.getResult(), dim);
    return;
  }
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    for (auto [index, dim] : llvm::enumerate(transpose.getPermutation()))
      unite(transpose.getInput(), dim, transpose.getResult(), index);
    return;
  }
  if (auto reduce = dyn_cast<ReduceOp>(op)) {
    int64_t kept = 0;
    for (int64_t dim = 0; dim < rankOf(reduce.getInput()); ++dim)
      if (!llvm::is_contained(reduce.getDims(), dim))
        unite(reduce.getInput(), dim, reduce.getResult(), kept++);
    return;
  }
  if (auto concat = dyn_cast<ConcatOp>(op)) {
    int64_t joined = concat.getDim();
    for (Value input : concat.getInputs())
      for (int64_t dim = 0; dim < rankOf(input); ++dim)
        if (dim != joined)
          unite(input, dim, concat.getResult(), dim);
        else
          makeAtomic(input, dim);
    return makeAtomic(concat.getResult(), joined);
  }
  if (auto gather = dyn_cast<GatherOp>(op)) {
    int64_t dim = gather.getDim(), count = rankOf(gather.getIndices());
    for (int64_t d = 0; d < rankOf(gather.getTable()); ++d)
      if (d != dim)
        unite(gather.getTable(), d, gather.getResult(),
              d < dim ? d : d + count - 1);
    for (int64_t d = 0; d < count; ++d)
      unite(gather.getIndices(), d, gather.getResult(), dim + d);
    return makeAtomic(gather.getTable(), dim);
  }
  // An operation on rows, such as softmax, needs its last dimension as a whole.
  // So this dimension is atomic: only the other dimensions may be split.
  auto rows = [&](Value input, Value result, ValueRange features,
                  ValueRange statistics) {
    int64_t last = rankOf(input) - 1;
    uniteAll(input, result);
    for (Value feature : features)
      unite(input, last, feature, 0);
    for (Value statistic : statistics)
      for (int64_t dim = 0; dim < last; ++dim)
        unite(input, dim, statistic, dim);
    makeAtomic(input, last);
  };
  if (auto softmax = dyn_cast<SoftmaxOp>(op))
    return rows(softmax.getInput(), softmax.getResult(), {}, {});
  if (auto top = dyn_cast<TopKOp>(op)) {
    int64_t last = rankOf(top.getInput()) - 1;
    for (Value result : op->getResults()) {
      for (int64_t dim = 0; dim < last; ++dim)
        unite(top.getInput(), dim, result, dim);
      makeAtomic(result, last);
    }
    return makeAtomic(top.getInput(), last);
  }
  if (auto argmax = dyn_cast<ArgMaxOp>(op)) {
    int64_t kept = 0;
    for (int64_t dim = 0; dim < rankOf(argmax.getInput()); ++dim)
      if (dim != int64_t(argmax.getDim()))
        unite(argmax.getInput(), dim, argmax.getResult(), kept++);
    return makeAtomic(argmax.getInput(), argmax.getDim());
  }
  if (auto dot = dyn_cast<GroupedDotOp>(op)) {
    int64_t rows = rankOf(dot.getIds());
    for (Value value : {dot.getInput(), dot.getResult()}) {
      for (int64_t dim = 0; dim < rows; ++dim)
        unite(dot.getIds(), dim, value, dim);
      makeAtomic(value, rows);
    }
    return makeAtomic(dot.getMatrices());
  }
  if (auto norm = dyn_cast<LayerNormOp>(op))
    return rows(norm.getInput(), norm.getResult(),
                {norm.getScale(), norm.getShift()},
                {norm.getMean(), norm.getRstd()});
  if (auto norm = dyn_cast<RmsNormOp>(op))
    return rows(norm.getInput(), norm.getResult(), norm.getScale(),
                norm.getRstd());
  if (auto rotary = dyn_cast<RotaryOp>(op)) {
    uniteAll(rotary.getInput(), rotary.getResult());
    for (int64_t dim : {int64_t(0), int64_t(1), rankOf(rotary.getInput()) - 1})
      makeAtomic(rotary.getInput(), dim);
    makeAtomic(rotary.getCos());
    return makeAtomic(rotary.getSin());
  }
  for (Value operand : op->getOperands())
    makeAtomic(operand);
  for (Value result : op->getResults())
    makeAtomic(result);
}

//===----------------------------------------------------------------------===//
// Cuts
//===----------------------------------------------------------------------===//

/// Returns whether the cuts (sizes of the minor part of a dimension, ascending)
/// divide a dimension of size `size` into factors: each cut must divide the
/// next one, and the last cut must divide `size`.
static bool isChain(const std::set<int64_t> &cuts, int64_t size) {
  int64_t inner = 1;
  for (int64_t cut : cuts) {
    if (cut % inner)
      return false;
    inner = cut;
  }
  return size % inner == 0;
}

/// For each pair (dimension, cut), splits the dimension, and all dimensions
/// that must be split in the same way (its class), into two factors, of which
/// the minor one has the size `cut`. Returns whether anything changed. If one
/// of the cuts is impossible, changes nothing.
bool FactorAnalysis::addCuts(ArrayRef<std::pair<int, int64_t>> cuts) {
  std::map<int, std::set<int64_t>> wanted;
  for (auto [node, cut] : cuts) {
    int root = find(node);
    auto [it, isNew] = wanted.try_emplace(root, classes[root].cuts);
    it->second.insert(cut);
  }
  for (auto &[root, all] : wanted)
    if (all.size() != classes[root].cuts.size() &&
        (classes[root].atomic || !isChain(all, classes[root].size)))
      return false;
  bool changed = false;
  for (auto &[root, all] : wanted) {
    changed |= all.size() != classes[root].cuts.size();
    classes[root].cuts = all;
  }
  return changed;
}

bool FactorAnalysis::propagate(const Group &group) {
  std::set<int64_t> all;
  for (auto [node, stride] : group.parts) {
    if (stride > 1)
      all.insert(stride);
    for (int64_t cut : classes[find(node)].cuts)
      all.insert(cut * stride);
  }
  if (!isChain(all, group.size))
    return false;
  SmallVector<std::pair<int, int64_t>> cuts;
  for (auto [node, stride] : group.parts)
    for (int64_t cut : all)
      if (cut > stride && cut < stride * classes[find(node)].size)
        cuts.push_back({node, cut / stride});
  return addCuts(cuts);
}

bool FactorAnalysis::propagate(const Cut &slice) {
  std::set<int64_t> all;
  for (int node : {slice.input, slice.output})
    for (int64_t cut : classes[find(node)].cuts)
      if (slice.grain % cut == 0)
        all.insert(cut);
  if (all.empty())
    return false;
  all.insert(slice.grain);
  SmallVector<std::pair<int, int64_t>> cuts;
  for (int node : {slice.input, slice.output})
    for (int64_t cut : all)
      if (cut > 1 && cut < classes[find(node)].size)
        cuts.push_back({node, cut});
  return addCuts(cuts);
}

void FactorAnalysis::propagateAll() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const Group &group : groups)
      changed |= propagate(group);
    for (const Cut &slice : slices)
      changed |= propagate(slice);
  }
}

void FactorAnalysis::cutEqualSlices(func::FuncOp function) {
  std::set<int> ofParameters;
  for (BlockArgument argument : function.getArguments()) {
    if (roleOf(argument) == Role::Parameter)
      for (int64_t dim = 0; dim < rankOf(argument); ++dim)
        ofParameters.insert(find(node(argument, dim)));
  }
  // For each class of dimensions that the function slices, `parts` has the size
  // of the slices (0 if they have different sizes) and their offsets.
  std::map<int, std::pair<int64_t, std::set<int64_t>>> parts;
  for (const Cut &slice : slices) {
    auto &[size, offsets] =
        parts.try_emplace(find(slice.input), slice.grain, std::set<int64_t>())
            .first->second;
    if (slice.grain != size || classes[find(slice.output)].size != size)
      size = 0;
    offsets.insert(slice.offset);
  }
  for (const auto &[root, found] : parts) {
    const auto &[size, offsets] = found;
    bool all = int64_t(offsets.size()) * size == classes[root].size;
    if (size > 1 && all && ofParameters.count(root) &&
        classes[root].cuts.empty())
      addCuts({{root, size}});
  }
}

FactorAnalysis::FactorAnalysis(func::FuncOp function, bool views) {
  for (BlockArgument argument : function.getArguments())
    if (isa<RankedTensorType>(argument.getType()))
      node(argument, 0);
  for (Operation &op : function.front()) {
    for (Value result : op.getResults())
      if (isa<RankedTensorType>(result.getType()))
        node(result, 0);
    visit(&op);
  }
  propagateAll();
  if (views) {
    cutEqualSlices(function);
    propagateAll();
  }
  for (auto &[value, first] : firstNode)
    anyChange |= ArrayRef<int64_t>(shape(value)) != shapeOf(value);
}

Dims FactorAnalysis::factors(Value value, int64_t dim) const {
  const Class &whole = classes[find(firstNode.lookup(value) + dim)];
  Dims sizes;
  int64_t rest = whole.size;
  if (rest == 1)
    return sizes;
  for (int64_t cut : llvm::reverse(whole.cuts)) {
    sizes.push_back(rest / cut);
    rest = cut;
  }
  sizes.push_back(rest);
  return sizes;
}

Dims FactorAnalysis::shape(Value value) const {
  Dims all;
  for (int64_t dim = 0; dim < rankOf(value); ++dim)
    llvm::append_range(all, factors(value, dim));
  return all;
}

} // namespace cleave::nn
