// Sharding rules of convolution, pooling and top-k. Samples, features and
// groups are independent, and channels are summed over. If a spatial dimension
// is split, a rank reads more of the input than its tile, so halos are
// exchanged. A halo may be longer than a tile.

#include "Joint.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

//===----------------------------------------------------------------------===//
// Factors
//===----------------------------------------------------------------------===//

/// Unit attribute of a per-rank convolution whose groups are split over ranks.
constexpr StringLiteral kGroupedAttrName = "nn.grouped";

/// The factors of the dimensions of a convolution's input, filter and result.
/// The size of a spatial factor is taken from the tensor in which the padding
/// of tiles may have to be masked.
struct ConvFactors {
  TensorFactors input, filter, result;
  std::optional<int64_t> group;
  SmallVector<int64_t> spatial;

  struct Kinds {
    Factor sample, feature, channel, spatial;
  };

  template <typename Op>
  ConvFactors(ShardingRule &rule, Op op, ArrayRef<int64_t> x,
              ArrayRef<int64_t> w, ArrayRef<int64_t> sizes, Kinds kinds) {
    int64_t groups = op.getGroups();
    auto add = [&](int64_t size, Factor like) {
      return rule.addFactor(size, like.kind, like.combiner);
    };
    int64_t n = add(x[0], kinds.sample), m = add(w[0] / groups, kinds.feature),
            c = add(w[1], kinds.channel);
    input = {{n}, {}};
    filter = {{}, {c}};
    result = {{n}, {}};
    // A convolution marked as grouped has a group factor even if groups = 1.
    if (groups > 1 || op->hasAttr(kGroupedAttrName)) {
      group = rule.addFactor(groups);
      input[1].push_back(*group);
      filter[0].push_back(*group);
      result[1].push_back(*group);
    }
    input[1].push_back(c);
    filter[0].push_back(m);
    result[1].push_back(m);
    for (auto [kernel, size] : llvm::zip_equal(w.drop_front(2), sizes)) {
      spatial.push_back(add(size, kinds.spatial));
      input.push_back({spatial.back()});
      filter.push_back({rule.addFactor(kernel, FactorKind::NeedReplication)});
      result.push_back({spatial.back()});
    }
  }
};

constexpr Factor passes = {1, FactorKind::PassThrough, FactorCombiner::None};
constexpr Factor summed = {1, FactorKind::Reduction, FactorCombiner::Sum};
constexpr Factor moved = {1, FactorKind::Permutation, FactorCombiner::None};

ShardingRule conv(nn::ConvOp op) {
  ShardingRule rule;
  ConvFactors f(rule, op, shapeOf(op.getInput()), shapeOf(op.getFilter()),
                shapeOf(op.getResult()).drop_front(2),
                {passes, passes, summed, moved});
  rule.operands = {f.input, f.filter};
  rule.results = {f.result};
  rule.linear = {{0}, {1}};
  return rule;
}

ShardingRule convInputGrad(nn::ConvInputGradOp op) {
  ShardingRule rule;
  ConvFactors f(rule, op, shapeOf(op.getResult()), shapeOf(op.getFilter()),
                shapeOf(op.getResult()).drop_front(2),
                {passes, summed, passes, moved});
  rule.operands = {f.result, f.filter};
  rule.results = {f.input};
  rule.linear = {{0}, {1}};
  return rule;
}

ShardingRule convFilterGrad(nn::ConvFilterGradOp op) {
  ShardingRule rule;
  ConvFactors f(rule, op, shapeOf(op.getInput()), shapeOf(op.getResult()),
                shapeOf(op.getCotangent()).drop_front(2),
                {summed, passes, passes, summed});
  rule.operands = {f.result, f.input};
  rule.results = {f.filter};
  rule.linear = {{0}, {1}};
  return rule;
}

/// Samples and channels pass through; spatial dimensions need a halo exchange.
ShardingRule poolRule(ArrayRef<int64_t> x, ArrayRef<int64_t> sizes,
                      unsigned operands) {
  ShardingRule rule;
  TensorFactors dims = addFactors(rule, x.take_front(2));
  for (int64_t size : sizes)
    dims.push_back({rule.addFactor(size, FactorKind::Permutation)});
  rule.operands.assign(operands, dims);
  rule.results = {dims};
  return rule;
}

ShardingRule pool(nn::PoolOp op) {
  ShardingRule rule = poolRule(shapeOf(op.getInput()),
                               shapeOf(op.getResult()).drop_front(2), 1);
  if (op.getKind() == nn::PoolKind::Sum)
    rule.linear = {{0}};
  return rule;
}

ShardingRule poolGrad(nn::PoolGradOp op) {
  ShardingRule rule =
      poolRule(shapeOf(op.getInput()), shapeOf(op.getInput()).drop_front(2), 2);
  rule.linear = {{0}};
  return rule;
}

//===----------------------------------------------------------------------===//
// Per-rank code
//===----------------------------------------------------------------------===//

/// Attributes of the per-rank operation, whose input includes the padding.
struct WindowAttrs {
  SmallVector<int64_t> strides, dilations, low, high;

  template <typename Op>
  explicit WindowAttrs(Op op)
      : strides(op.getStrides()), dilations(op.getDilations()),
        low(op.getLow()), high(op.getHigh()) {}

  /// The distance over which a dilated window of `kernel` elements extends.
  int64_t reach(size_t dim, int64_t kernel) const {
    return (kernel - 1) * dilations[dim] + 1;
  }
};

int64_t localGroups(LocalPlan &plan, const TensorFactors &input,
                    int64_t groups) {
  return groups > 1 ? plan.tile(input[1][0]) : groups;
}

/// Marks the per-rank convolution if the unsplit one has several groups.
template <typename Op> Value grouped(Op local, int64_t groups) {
  if (groups > 1)
    local->setAttr(kGroupedAttrName, UnitAttr::get(local.getContext()));
  return local.getResult();
}

/// Sets the elements of a dist.window with a global index along `dim` outside
/// of [0, size) to `identity`. The window of rank r begins at base + r * step.
Value maskOutside(LocalPlan &plan, Value window, int64_t dim, int64_t factor,
                  int64_t size, int64_t base, int64_t step,
                  FactorCombiner combiner) {
  OpBuilder &b = plan.builder();
  auto type = cast<RankedTensorType>(window.getType());
  auto indexType = type.clone(b.getI64Type());
  auto scalar = RankedTensorType::get({}, b.getI64Type());
  Value begin = plan.constant(scalar, base);
  if (step != 0)
    begin = arith::AddIOp::create(
        b, plan.loc(), begin,
        dist::TileOffsetOp::create(
            b, plan.loc(), scalar, b.getI64IntegerAttr(step),
            plan.mesh().name(), plan.mesh().list(plan.axesOf(factor))));
  Value index = arith::AddIOp::create(
      b, plan.loc(), nn::IotaOp::create(b, plan.loc(), indexType, dim),
      plan.splat(begin, indexType));
  // The comparison is unsigned, so that negative indices are large numbers.
  Value inside = arith::CmpIOp::create(b, plan.loc(), arith::CmpIPredicate::ult,
                                       index, plan.constant(indexType, size));
  Value identity =
      arith::ConstantOp::create(b, plan.loc(), identityOf(combiner, type));
  return arith::SelectOp::create(b, plan.loc(), inside, window, identity);
}

/// Exchanges the input's halos along each split spatial dimension, so that a
/// rank has all elements that its outputs read. `outputs` is the shape of the
/// rank's result tile, `whole` that of the unsplit result.
Value inputWindows(LocalPlan &plan, Value input, ArrayRef<int64_t> global,
                   ArrayRef<int64_t> outputs, ArrayRef<int64_t> whole,
                   ArrayRef<int64_t> kernel, WindowAttrs &attrs,
                   const TensorFactors &dims, FactorCombiner outside) {
  for (size_t s = 0; s < kernel.size(); ++s) {
    int64_t dim = s + 2, factor = dims[dim][0], count = outputs[dim];
    if (!plan.isSplit(factor))
      continue;
    int64_t step = count * attrs.strides[s],
            length = (count - 1) * attrs.strides[s] + attrs.reach(s, kernel[s]);
    input = plan.window(input, dim, factor, global[dim], -attrs.low[s], step, 1,
                        length, whole[dim]);
    if (outside != FactorCombiner::Sum) // halos beyond the ends are zeros
      input = maskOutside(plan, input, dim, factor, global[dim], -attrs.low[s],
                          step, outside);
    attrs.low[s] = attrs.high[s] = 0;
  }
  return input;
}

LogicalResult planConv(nn::ConvOp op, LocalPlan &plan) {
  const ShardingRule &rule = plan.rule();
  const TensorFactors &x = rule.operands[0], &w = rule.operands[1];
  Value input = plan.masked(plan.operand(0), x, w[1][0], FactorCombiner::Sum);
  Value filter = plan.masked(plan.operand(1), w, w[1][0], FactorCombiner::Sum);
  WindowAttrs attrs(op);
  RankedTensorType type = plan.resultType(0);
  input = inputWindows(plan, input, shapeOf(op.getInput()), type.getShape(),
                       shapeOf(op.getResult()),
                       shapeOf(op.getFilter()).drop_front(2), attrs, x,
                       FactorCombiner::Sum);
  plan.setResults(grouped(
      nn::ConvOp::create(plan.builder(), plan.loc(), type, input, filter,
                         attrs.strides, attrs.dilations, attrs.low, attrs.high,
                         localGroups(plan, x, op.getGroups())),
      op.getGroups()));
  return success();
}

LogicalResult planConvFilterGrad(nn::ConvFilterGradOp op, LocalPlan &plan) {
  const ShardingRule &rule = plan.rule();
  const TensorFactors &y = rule.operands[0], &x = rule.operands[1];
  Value cotangent =
      plan.masked(plan.operand(0), y, y[0][0], FactorCombiner::Sum);
  Value input = plan.masked(plan.operand(1), x, x[0][0], FactorCombiner::Sum);
  for (size_t dim = 2; dim < y.size(); ++dim)
    cotangent = plan.masked(cotangent, y, y[dim][0], FactorCombiner::Sum);
  WindowAttrs attrs(op);
  input = inputWindows(
      plan, input, shapeOf(op.getInput()), plan.operandType(0).getShape(),
      shapeOf(op.getCotangent()), shapeOf(op.getResult()).drop_front(2), attrs,
      x, FactorCombiner::Sum);
  plan.setResults(
      grouped(nn::ConvFilterGradOp::create(
                  plan.builder(), plan.loc(), plan.resultType(0), cotangent,
                  input, attrs.strides, attrs.dilations, attrs.low, attrs.high,
                  localGroups(plan, x, op.getGroups())),
              op.getGroups()));
  return success();
}

/// A rank's tile of an input gradient. The rank computes the gradient of all
/// inputs in the windows that overlap the tile, and then cuts the tile out.
struct CoveredTile {
  Value cotangent;
  /// For each dimension, the per-rank operation computes a range of `length`
  /// input elements, which begins at the global index base + rank * step. The
  /// rank's tile begins at element `begin` of this range.
  SmallVector<int64_t> base, step, length, begin;
  /// Why each rank needs the whole cotangent, by dimension; "" if it does not.
  SmallVector<std::string> whole;
  bool any = false;

  /// `value` is the tile of the cotangent, `global` the cotangent's shape;
  /// `input` is the type of the input gradient's tile, `covered` its shape.
  CoveredTile(LocalPlan &plan, Value value, ArrayRef<int64_t> global,
              RankedTensorType input, ArrayRef<int64_t> covered,
              ArrayRef<int64_t> kernel, WindowAttrs &attrs,
              const TensorFactors &dims)
      : cotangent(value), base(input.getRank(), 0), step(input.getRank(), 0),
        length(input.getShape()), begin(input.getRank(), 0),
        whole(input.getRank()) {
    for (size_t s = 0; s < kernel.size(); ++s) {
      int64_t dim = s + 2, factor = dims[dim][0];
      if (!plan.isSplit(factor))
        continue;
      any = true;
      int64_t tile = input.getDimSize(dim), stride = attrs.strides[s],
              low = attrs.low[s];
      int64_t count = global[dim], first = 0, outputStep = 0;
      int64_t reach = attrs.reach(s, kernel[s]);
      if (tile % stride == 0) {
        // Output o reads [o * stride - low, o * stride - low + reach).
        first = llvm::divideFloorSigned(low - (reach - 1), stride);
        int64_t last = llvm::divideCeilSigned(tile - 1 + low, stride);
        count = last - first + 1;
        outputStep = tile / stride;
      } else {
        // Every rank computes the whole dimension, and then takes its tile.
        whole[dim] = "stride " + std::to_string(stride) +
                     " does not divide the tiles of " + std::to_string(tile) +
                     " elements of its result";
      }
      cotangent = plan.window(cotangent, dim, factor, global[dim], first,
                              outputStep, 1, count, covered[dim]);
      noteWhole(plan, 0, dim, factor, cotangent);
      base[dim] = first * stride - low;
      step[dim] = outputStep * stride;
      length[dim] = (count - 1) * stride + reach;
      begin[dim] = -base[dim];
      attrs.low[s] = attrs.high[s] = 0;
    }
  }

  /// `value` is the gathered operand along `dim`.
  void noteWhole(LocalPlan &plan, unsigned operand, int64_t dim, int64_t factor,
                 Value value) {
    if (!whole[dim].empty())
      plan.noteGather(operand, dim, factor, value, whole[dim]);
  }

  /// Extracts the tile from the covered range.
  Value tileOf(LocalPlan &plan, Value covered, RankedTensorType tile,
               const TensorFactors &dims) {
    OpBuilder &b = plan.builder();
    for (int64_t dim = 2; dim < tile.getRank(); ++dim) {
      auto type = cast<RankedTensorType>(covered.getType());
      if (!plan.isSplit(dims[dim][0]))
        continue;
      auto i64 = RankedTensorType::get({tile.getDimSize(dim)}, b.getI64Type());
      SmallVector<int64_t> shape(type.getShape());
      shape[dim] = tile.getDimSize(dim);
      auto cut = type.clone(shape);
      if (step[dim] != 0 && begin[dim] + shape[dim] <= type.getDimSize(dim)) {
        SmallVector<int64_t> offsets(type.getRank(), 0),
            ones(type.getRank(), 1);
        offsets[dim] = begin[dim];
        covered = nn::SliceOp::create(b, plan.loc(), cut, covered, offsets,
                                      shape, ones);
        continue;
      }
      // Outside of the covered range, nn.gather reads zero gradients.
      Value index = nn::IotaOp::create(b, plan.loc(), i64, 0);
      index = arith::AddIOp::create(b, plan.loc(), index,
                                    plan.constant(i64, begin[dim]));
      if (step[dim] == 0) {
        Value mine = plan.offset(dims[dim][0]);
        index =
            arith::AddIOp::create(b, plan.loc(), index, plan.splat(mine, i64));
      }
      covered = nn::GatherOp::create(b, plan.loc(), cut, covered, index, dim);
    }
    return covered;
  }
};

LogicalResult planConvInputGrad(nn::ConvInputGradOp op, LocalPlan &plan) {
  const ShardingRule &rule = plan.rule();
  const TensorFactors &y = rule.operands[0], &w = rule.operands[1],
                      &x = rule.results[0];
  int64_t feature = w[0].back();
  Value cotangent =
      plan.masked(plan.operand(0), y, feature, FactorCombiner::Sum);
  Value filter = plan.masked(plan.operand(1), w, feature, FactorCombiner::Sum);
  WindowAttrs attrs(op);
  RankedTensorType type = plan.resultType(0);
  CoveredTile tile(plan, cotangent, shapeOf(op.getCotangent()), type,
                   shapeOf(op.getResult()),
                   shapeOf(op.getFilter()).drop_front(2), attrs, x);
  Value covered =
      grouped(nn::ConvInputGradOp::create(
                  plan.builder(), plan.loc(), type.clone(tile.length),
                  tile.cotangent, filter, attrs.strides, attrs.dilations,
                  attrs.low, attrs.high, localGroups(plan, x, op.getGroups())),
              op.getGroups());
  plan.setResults(tile.tileOf(plan, covered, type, x));
  return success();
}

LogicalResult planPool(nn::PoolOp op, LocalPlan &plan) {
  WindowAttrs attrs(op);
  RankedTensorType type = plan.resultType(0);
  Value input = inputWindows(
      plan, plan.operand(0), shapeOf(op.getInput()), type.getShape(),
      shapeOf(op.getResult()), op.getWindow(), attrs, plan.rule().operands[0],
      op.getKind() == nn::PoolKind::Max ? FactorCombiner::Max
                                        : FactorCombiner::Sum);
  plan.setResults(nn::PoolOp::create(plan.builder(), plan.loc(), type,
                                     op.getKind(), input, op.getWindow(),
                                     attrs.strides, attrs.dilations, attrs.low,
                                     attrs.high)
                      ->getResults());
  return success();
}

LogicalResult planPoolGrad(nn::PoolGradOp op, LocalPlan &plan) {
  const TensorFactors &dims = plan.rule().results[0];
  WindowAttrs attrs(op);
  RankedTensorType type = plan.resultType(0);
  CoveredTile tile(plan, plan.operand(0), shapeOf(op.getCotangent()), type,
                   shapeOf(op.getInput()), op.getWindow(), attrs, dims);
  Value input = plan.operand(1);
  for (int64_t dim = 2; dim < type.getRank(); ++dim) {
    int64_t factor = dims[dim][0], size = shapeOf(op.getInput())[dim];
    if (!plan.isSplit(factor))
      continue;
    input = plan.window(input, dim, factor, size, tile.base[dim],
                        tile.step[dim], 1, tile.length[dim], size);
    tile.noteWhole(plan, 1, dim, factor, input);
    if (op.getKind() == nn::PoolKind::Max)
      input = maskOutside(plan, input, dim, factor, size, tile.base[dim],
                          tile.step[dim], FactorCombiner::Max);
  }
  Value covered = nn::PoolGradOp::create(
      plan.builder(), plan.loc(), input.getType(), op.getKind(), tile.cotangent,
      input, op.getWindow(), attrs.strides, attrs.dilations, attrs.low,
      attrs.high);
  plan.setResults(tile.tileOf(plan, covered, type, dims));
  return success();
}

//===----------------------------------------------------------------------===//
// Top-k
//===----------------------------------------------------------------------===//

/// Unit attribute: marks the top-k of a rank's tile, which finds candidates.
constexpr StringLiteral kCandidatesAttrName = "nn.candidates";

ShardingRule topK(nn::TopKOp op) {
  ShardingRule rule;
  TensorFactors input = addFactors(rule, shapeOf(op.getInput()));
  rule.operands = {input};
  if (op->hasAttr(kCandidatesAttrName)) {
    rule.factors.back().kind = FactorKind::Permutation;
    rule.factors.back().combiner =
        FactorCombiner::Max; // padding with the least is never chosen
    rule.results = {input, input};
    return rule;
  }
  rule.factors.back().kind = FactorKind::Reduction; // combined over ranks
  TensorFactors result(input.begin(), input.end() - 1);
  result.push_back({rule.addFactor(op.getK(), FactorKind::NeedReplication)});
  rule.results = {result, result};
  return rule;
}

/// Gathers the k largest elements of each tile as candidates, and selects the k
/// largest of all candidates. Of equal candidates, the first in rank order has
/// the lowest index.
LogicalResult planTopK(nn::TopKOp op, LocalPlan &plan) {
  const TensorFactors &dims = plan.rule().operands[0];
  int64_t factor = dims.back()[0], k = op.getK();
  if (!plan.isSplit(factor)) {
    plan.setResults(plan.cloneLocal()->getResults());
    return success();
  }
  TensorExpr e(plan.builder(), plan.loc());
  Value input = plan.masked(plan.operand(0), dims, factor, FactorCombiner::Max);
  RankedTensorType values = plan.resultType(0), indices = plan.resultType(1);
  int64_t last = values.getRank() - 1, ways = plan.ways(factor);
  SmallVector<int64_t> shape(values.getShape());
  shape.back() = std::min(k, plan.tile(factor));
  auto local = nn::TopKOp::create(e.builder, e.loc, values.clone(shape),
                                  indices.clone(shape), input, shape.back());
  local->setAttr(kCandidatesAttrName, e.builder.getUnitAttr());
  auto scalar = RankedTensorType::get({}, indices.getElementType());
  Value offset = plan.offset(factor);
  if (offset.getType() != scalar)
    offset = e.make<arith::TruncIOp>(scalar, offset);
  Value places = e.make<arith::AddIOp>(
      local.getIndices(), plan.splat(offset, indices.clone(shape)));
  shape.back() *= ways;
  auto gather = dist::AllGatherOp::create(
      e.builder, e.loc, TypeRange{values.clone(shape), indices.clone(shape)},
      ValueRange{local.getValues(), places},
      e.builder.getDenseI64ArrayAttr({last, last}), plan.mesh().name(),
      plan.mesh().list(plan.axesOf(factor)),
      dist::PurposeAttr::get(e.builder.getContext(),
                             dist::Purpose::Activation));
  auto best = nn::TopKOp::create(e.builder, e.loc, values, indices,
                                 gather->getResult(0), k);
  // The index of a selected candidate is a sum in which all other terms are 0.
  SmallVector<int64_t> wide(values.getShape()), chosen, candidate;
  wide.push_back(shape.back());
  for (int64_t dim = 0; dim < last; ++dim) {
    chosen.push_back(dim);
    candidate.push_back(dim);
  }
  chosen.push_back(last);
  candidate.push_back(last + 1);
  auto wideType = indices.clone(wide);
  Value isChosen = e.compare(arith::CmpIPredicate::eq,
                             e.broadcast(best.getIndices(), wideType, chosen),
                             e.make<nn::IotaOp>(wideType, last + 1));
  Value picked =
      e.select(isChosen, e.broadcast(gather->getResult(1), wideType, candidate),
               e.splatInt(wideType, 0));
  plan.setResults(
      {best.getValues(), e.reduce(nn::Combiner::Sum, picked, last + 1)});
  return success();
}

} // namespace

void cleave::sharding::attachConvolution(MLIRContext *context) {
  attach<nn::ConvOp, conv, planConv>(context);
  attach<nn::ConvInputGradOp, convInputGrad, planConvInputGrad>(context);
  attach<nn::ConvFilterGradOp, convFilterGrad, planConvFilterGrad>(context);
  attach<nn::PoolOp, pool, planPool>(context);
  attach<nn::PoolGradOp, poolGrad, planPoolGrad>(context);
  attach<nn::TopKOp, topK, planTopK>(context);
}
