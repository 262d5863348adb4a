// Attention, told from its two contractions:
//
//   scores  = einsum(query, key) * scale, capped, + bias, masked
//   result  = einsum(softmax(scores), value)
//
// Letters of the einsums say which dimension is which: those of query, key and
// scores are batch and key heads, those of query and scores alone the queries
// and the query heads of a group, the one contracted in the second einsum the
// keys. No order of dimensions is assumed, except that keys are last in the
// scores, as softmax runs along them.

#include "AttentionScores.h"
#include "MaskAnalysis.h"

#include "cleave/Dialect/NN/IR/Batch.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace cleave::nn {

namespace {

/// A factor of an operand that can go into the scale.
Value peelScale(Value value, double &scale) {
  if (auto mul = value.getDefiningOp<arith::MulFOp>())
    for (auto [x, factor] : {std::pair(mul.getLhs(), mul.getRhs()),
                             std::pair(mul.getRhs(), mul.getLhs())})
      if (std::optional<double> splat = splatOf(factor)) {
        scale *= *splat;
        return peelScale(x, scale);
      }
  if (auto div = value.getDefiningOp<arith::DivFOp>())
    if (std::optional<double> splat = splatOf(div.getRhs());
        splat && *splat != 0) {
      scale /= *splat;
      return peelScale(div.getLhs(), scale);
    }
  return value;
}

/// softmax, perhaps guarded: a row of NaN, which has no keys, becomes zeros.
SoftmaxOp softmaxOf(Value value) {
  if (auto select = value.getDefiningOp<arith::SelectOp>()) {
    auto compare = select.getCondition().getDefiningOp<arith::CmpFOp>();
    Value kept = select.getFalseValue();
    if (compare && compare.getPredicate() == arith::CmpFPredicate::UNO &&
        compare.getLhs() == kept && compare.getRhs() == kept &&
        isSplat(select.getTrueValue(), 0))
      value = kept;
  }
  return value.getDefiningOp<SoftmaxOp>();
}

/// Which dimension of the scores is which; -1 where there is none.
struct Roles {
  int64_t batch = -1, heads = -1, group = -1, query = -1, key = -1;
};

class Raiser {
public:
  Raiser(EinsumOp op, PatternRewriter &rewriter)
      : op(op), rewriter(rewriter), loc(op.getLoc()) {}

  LogicalResult run(bool probabilitiesLeft);

private:
  bool findRoles();
  bool isOneSample();
  int64_t sizeOf(int64_t dim) {
    return dim < 0 ? 1 : shapeOf(scores.product.getResult())[dim];
  }
  Value arrange(Value value, StringRef labels, ArrayRef<char> order,
                ArrayRef<int64_t> shape);
  Value toBias(Narrow bias);
  Value toKeyMask(Narrow mask);
  Value toSegments(Narrow segments);
  Value positions(int64_t length, int64_t first);
  void addBias(Value term);

  EinsumOp op;
  PatternRewriter &rewriter;
  Location loc;
  Scores scores;
  Value query, key, value, bias;
  std::string queryLabels, keyLabels, valueLabels, weightLabels, scoreLabels;
  char feature = 0, valueFeature = 0;
  Roles roles;
};

bool Raiser::findRoles() {
  StringRef q = queryLabels, k = keyLabels, v = valueLabels, p = weightLabels;
  std::string resultText = op.getLabels().result;
  StringRef result = resultText;
  int64_t last = scoreLabels.size() - 1;
  SmallVector<int64_t> shared, queries;
  for (auto [dim, letter] : llvm::enumerate(scoreLabels)) {
    bool inQuery = q.contains(letter), inKey = k.contains(letter);
    bool inValue = v.contains(p[dim]), inResult = result.contains(p[dim]);
    if (int64_t(dim) == last) {
      if (inQuery || !inKey || !inValue || inResult)
        return false;
    } else if (inQuery && inKey && inValue && inResult) {
      shared.push_back(dim);
    } else if (inQuery && !inKey && !inValue && inResult) {
      queries.push_back(dim);
    } else {
      return false;
    }
  }
  // One contracted feature of query and key, one feature of the value.
  for (char letter : q)
    if (!StringRef(scoreLabels).contains(letter)) {
      if (feature)
        return false;
      feature = letter;
    }
  for (char letter : v)
    if (!p.contains(letter)) {
      if (valueFeature)
        return false;
      valueFeature = letter;
    }
  if (!feature || !valueFeature || queries.empty() || queries.size() > 2 ||
      shared.size() > 2 || k.size() != shared.size() + 2)
    return false;
  roles.key = last;
  roles.query = queries.back();
  if (queries.size() == 2)
    roles.group = queries[0];
  // A batch of one sample has no letter.
  if (shared.size() == 2 || !isOneSample())
    roles.batch = shared.empty() ? -1 : shared[0];
  if (shared.size() == 2 || roles.batch < 0)
    roles.heads = shared.empty() ? -1 : shared.back();
  return true;
}

/// Whether the function is given one sample at a time.
bool Raiser::isOneSample() {
  auto func = op->getParentOfType<func::FuncOp>();
  if (!func)
    return false;
  for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
    auto type = dyn_cast<RankedTensorType>(func.getArgumentTypes()[arg]);
    if (!type)
      continue;
    if (std::optional<int64_t> dim =
            batchDimOf(func.getArgAttrDict(arg), type.getRank()))
      return type.getDimSize(*dim) == 1;
  }
  return false;
}

/// Transposes to the letters of `order` that exist, and adds sizes of 1.
Value Raiser::arrange(Value source, StringRef labels, ArrayRef<char> order,
                      ArrayRef<int64_t> shape) {
  Dims permutation;
  for (char letter : order)
    if (size_t at = labels.find(letter); letter && at != StringRef::npos)
      permutation.push_back(at);
  return reshapeTo(rewriter, loc,
                   transposeTo(rewriter, loc, source, permutation), shape);
}

/// Adds a term [batch, heads, group, queries, keys] in which some of the first
/// three may be 1.
void Raiser::addBias(Value term) {
  if (!bias) {
    bias = term;
    return;
  }
  Dims joint;
  for (auto [a, b] : llvm::zip(shapeOf(bias), shapeOf(term)))
    joint.push_back(std::max(a, b));
  auto widen = [&](Value value) {
    Dims kept, sizes;
    for (auto [dim, size] : llvm::enumerate(shapeOf(value)))
      if (size == joint[dim]) {
        kept.push_back(dim);
        sizes.push_back(size);
      }
    return broadcastTo(rewriter, loc, reshapeTo(rewriter, loc, value, sizes),
                       joint, kept);
  };
  Value left = widen(bias), right = widen(term);
  bias = arith::AddFOp::create(rewriter, loc, left, right);
}

/// [b|1, n|1, g|1, s, t].
Value Raiser::toBias(Narrow term) {
  int64_t places[] = {roles.batch, roles.heads, roles.group, roles.query,
                      roles.key};
  auto placeOf = [&](int64_t dim) {
    return std::find(std::begin(places), std::end(places), dim) -
           std::begin(places);
  };
  Dims order = allDims(term.dims.size());
  llvm::sort(order, [&](int64_t a, int64_t b) {
    return placeOf(term.dims[a]) < placeOf(term.dims[b]);
  });
  Value sorted = transposeTo(rewriter, loc, term.source, order);
  // Queries and keys are spelled out; the other dimensions may repeat.
  Dims wide, dims, shape;
  int64_t next = 0;
  for (int64_t place : places) {
    bool present = place >= 0 && llvm::is_contained(term.dims, place);
    bool needed = place == roles.query || place == roles.key;
    shape.push_back(present || needed ? sizeOf(place) : 1);
    if (present)
      dims.push_back(next);
    if (present || needed) {
      wide.push_back(sizeOf(place));
      ++next;
    }
  }
  return reshapeTo(rewriter, loc,
                   broadcastTo(rewriter, loc, sorted, wide, dims), shape);
}

/// [b, t].
Value Raiser::toKeyMask(Narrow mask) {
  Value source = mask.source;
  if (mask.dims.size() == 2 && mask.dims[0] == roles.key)
    source = transposeTo(rewriter, loc, source, {1, 0});
  Dims shape = {sizeOf(roles.batch), sizeOf(roles.key)};
  if (mask.dims.size() == 2)
    return source;
  return broadcastTo(rewriter, loc, source, shape, {1});
}

/// [s] or [b, s], of queries or keys.
Value Raiser::toSegments(Narrow segments) {
  bool swapped = segments.dims.size() == 2 && segments.dims[1] == roles.batch;
  return swapped ? transposeTo(rewriter, loc, segments.source, {1, 0})
                 : segments.source;
}

/// first, first + 1, ...
Value Raiser::positions(int64_t length, int64_t first) {
  auto type = RankedTensorType::get({length}, rewriter.getI64Type());
  Value index = IotaOp::create(rewriter, loc, type, 0);
  if (first == 0)
    return index;
  return arith::AddIOp::create(rewriter, loc, index,
                               createSplat(rewriter, loc, type, first));
}

LogicalResult Raiser::run(bool probabilitiesLeft) {
  Value weights = probabilitiesLeft ? op.getLhs() : op.getRhs();
  value = probabilitiesLeft ? op.getRhs() : op.getLhs();
  EinsumOp::Labels outer = op.getLabels();
  weightLabels = probabilitiesLeft ? outer.lhs : outer.rhs;
  valueLabels = probabilitiesLeft ? outer.rhs : outer.lhs;
  SoftmaxOp softmax = softmaxOf(weights);
  if (!softmax)
    return failure();
  std::optional<Scores> found = analyzeScores(softmax.getInput());
  if (!found)
    return failure();
  scores = *found;
  EinsumOp::Labels inner = scores.product.getLabels();
  scoreLabels = inner.result;
  bool keyRight = StringRef(inner.rhs).contains(scoreLabels.back());
  query = keyRight ? scores.product.getLhs() : scores.product.getRhs();
  key = keyRight ? scores.product.getRhs() : scores.product.getLhs();
  queryLabels = keyRight ? inner.lhs : inner.rhs;
  keyLabels = keyRight ? inner.rhs : inner.lhs;
  if (!findRoles())
    return failure();
  // nn.attention has no derivative for its bias: one that may be trained stays
  // outside.
  if (llvm::any_of(scores.biases, [](const Bias &term) {
        return dependsOnParameter(term.value.source);
      }))
    return failure();

  // softcap * tanh(x) is that of scores softcap * x.
  double scale =
      scores.softcap != 0 ? scores.scale * scores.softcap : scores.scale;
  query = peelScale(query, scale);
  key = peelScale(key, scale);
  auto letter = [&](StringRef labels, int64_t dim) {
    return dim < 0 ? char(0) : labels[dim];
  };
  int64_t b = sizeOf(roles.batch), n = sizeOf(roles.heads),
          g = sizeOf(roles.group), s = sizeOf(roles.query),
          t = sizeOf(roles.key);
  int64_t d = shapeOf(query)[queryLabels.find(feature)];
  int64_t e = shapeOf(value)[valueLabels.find(valueFeature)];
  StringRef sl = scoreLabels, wl = weightLabels;
  query = arrange(query, queryLabels,
                  {letter(sl, roles.batch), letter(sl, roles.query),
                   letter(sl, roles.heads), letter(sl, roles.group), feature},
                  {b, s, n, g, d});
  key = arrange(key, keyLabels,
                {letter(sl, roles.batch), letter(sl, roles.key),
                 letter(sl, roles.heads), feature},
                {b, t, n, d});
  value = arrange(value, valueLabels,
                  {letter(wl, roles.batch), letter(wl, roles.key),
                   letter(wl, roles.heads), valueFeature},
                  {b, t, n, e});

  // Masks and biases.
  RankedTensorType scoreType = tensorTypeOf(softmax.getInput());
  MaskParts parts;
  for (const Mask &mask : scores.masks)
    splitMask(mask.condition.source, mask.negated, mask.condition.dims,
              {roles.batch, roles.query, roles.key}, parts);
  BandRule rule = sayBand(parts, s, t);
  auto seenBy = [&](const MaskPart &part) -> Narrow {
    Value condition = part.value.source;
    if (!part.negated)
      return part.value;
    Value truth = createSplat(rewriter, loc, tensorTypeOf(condition), 1);
    return {arith::XOrIOp::create(rewriter, loc, condition, truth),
            part.value.dims};
  };
  for (const Bias &term : scores.biases) {
    Narrow source = term.value;
    if (term.factor != 1)
      source.source = arith::MulFOp::create(
          rewriter, loc, source.source,
          createSplat(rewriter, loc, tensorTypeOf(source.source), term.factor));
    addBias(toBias(source));
  }
  for (const MaskPart &part : parts.rest) {
    Narrow mask = seenBy(part);
    auto type = tensorTypeOf(mask.source).clone(scoreType.getElementType());
    Value seen = createSplat(rewriter, loc, type, 0);
    Value hidden = createSplat(rewriter, loc, type,
                               -std::numeric_limits<double>::infinity());
    addBias(toBias(
        {arith::SelectOp::create(rewriter, loc, mask.source, seen, hidden),
         mask.dims}));
  }
  Value keyMask;
  for (const MaskPart &part : parts.keyMasks) {
    Value next = toKeyMask(seenBy(part));
    keyMask = keyMask
                  ? Value(arith::AndIOp::create(rewriter, loc, keyMask, next))
                  : next;
  }
  Value queryPositions, keyPositions, querySegments, keySegments;
  if (rule.shift != 0) {
    queryPositions = positions(s, rule.shift);
    keyPositions = positions(t, 0);
  }
  if (parts.segments) {
    querySegments = toSegments(parts.segments->query);
    keySegments = toSegments(parts.segments->key);
  }
  auto attention = AttentionOp::create(
      rewriter, loc, scoreType.clone({b, s, n, g, e}),
      scoreType.clone({b, n, g, s}), query, key, value, queryPositions,
      keyPositions, querySegments, keySegments, keyMask, bias,
      /*dropout_keys=*/Value(),
      /*q_index=*/Value(), /*k_index=*/Value(), APFloat(scale), rule.causal,
      rule.window, APFloat(std::abs(scores.softcap)), APFloat(0.0));

  // Back to the einsum's order.
  Dims shape, order;
  std::string have;
  int64_t dims[] = {roles.batch, roles.query, roles.heads, roles.group};
  for (int64_t dim : dims)
    if (dim >= 0) {
      have.push_back(wl[dim]);
      shape.push_back(sizeOf(dim));
    }
  have.push_back(valueFeature);
  shape.push_back(e);
  for (char c : outer.result)
    order.push_back(have.find(c));
  Value result = reshapeTo(rewriter, loc, attention.getResult(), shape);
  rewriter.replaceOp(op, transposeTo(rewriter, loc, result, order));
  return success();
}

struct RaiseAttention : OpRewritePattern<EinsumOp> {
  RaiseAttention(MLIRContext *context) : OpRewritePattern(context, 2) {}
  LogicalResult matchAndRewrite(EinsumOp op,
                                PatternRewriter &rewriter) const override {
    for (bool left : {true, false})
      if (succeeded(Raiser(op, rewriter).run(left)))
        return success();
    return rewriter.notifyMatchFailure(op, "no attention");
  }
};

} // namespace

void populateRaiseAttentionPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseAttention>(patterns.getContext());
}

} // namespace cleave::nn
