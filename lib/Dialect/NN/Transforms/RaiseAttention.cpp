// Recognizes attention by its two contractions:
//
//   scores  = einsum(query, key) * scale, capped, + bias, masked
//   result  = einsum(softmax(scores), value)
//
// The letters of the einsums determine the role of each dimension. Letters that
// query, key and scores have are the batch and the KV heads. Letters that only
// query and scores have are the queries and the query heads per KV head. The
// letter that the second einsum contracts is the keys. The order of dimensions
// is arbitrary, except that keys are last in the scores, since softmax runs
// along them, and that queries follow their heads. Heads and features may be
// several dimensions each, if projections are fused or if rotary embeddings
// rotate pairs of features; in nn.attention they are one dimension each.

#include "AttentionScores.h"
#include "MaskAnalysis.h"

#include "cleave/Dialect/NN/IR/Batch.h"

#include <array>
#include <cmath>
#include <limits>

using namespace mlir;

namespace cleave::nn {

namespace {

/// If `value` is a product with a constant, multiplies `scale` by the constant
/// and returns the other factor.
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

/// Returns the softmax that computes `value`; null if there is none. A guard
/// may follow the softmax, which replaces the NaN in rows without any key by
/// zero.
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

/// The dimensions of the scores that have each role. A role that no dimension
/// has is -1 or an empty list.
struct Roles {
  int64_t batch = -1, query = -1, key = -1;
  /// The dimensions of KV heads, and those of the query heads that share a KV
  /// head (`group`).
  Dims heads, group;

  /// In the order of nn.attention's bias.
  std::array<Dims, 5> inOrder() const {
    auto single = [](int64_t dim) { return dim < 0 ? Dims() : Dims{dim}; };
    return {single(batch), heads, group, single(query), single(key)};
  }
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
  int64_t sizeOf(ArrayRef<int64_t> dims) {
    int64_t size = 1;
    for (int64_t dim : dims)
      size *= sizeOf(dim);
    return size;
  }
  Value arrange(Value value, StringRef labels, StringRef order,
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
  /// The letters that query and key contract, and the letters that only the
  /// value has.
  std::string features, valueFeatures;
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
  for (char letter : q)
    if (!StringRef(scoreLabels).contains(letter)) {
      if (!k.contains(letter))
        return false;
      features.push_back(letter);
    }
  for (char letter : v)
    if (!p.contains(letter)) {
      if (!result.contains(letter))
        return false;
      valueFeatures.push_back(letter);
    }
  if (features.empty() || valueFeatures.empty() || queries.empty() ||
      k.size() != shared.size() + 1 + features.size())
    return false;
  roles.key = last;
  roles.query = queries.pop_back_val();
  roles.group = Dims(queries);
  // In a batch of one sample, the batch may have no letter.
  if (!shared.empty() && (shared.size() > 1 || !isOneSample())) {
    roles.batch = shared.front();
    shared.erase(shared.begin());
  }
  roles.heads = Dims(shared);
  return true;
}

/// Returns whether the function is called with one sample at a time.
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

/// Transposes a value with the letters `labels` to the order `order`, and
/// reshapes it to `shape`. The reshape merges the letters of each role (batch,
/// heads, ...) into one dimension; a role without letters gets size 1.
Value Raiser::arrange(Value source, StringRef labels, StringRef order,
                      ArrayRef<int64_t> shape) {
  Dims permutation;
  for (char letter : order)
    permutation.push_back(labels.find(letter));
  return reshapeTo(rewriter, loc,
                   transposeTo(rewriter, loc, source, permutation), shape);
}

/// Adds `term`, of shape [batch, heads, group, queries, keys], to the attention
/// bias. The first three dimensions may have size 1.
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
  Dims places;
  for (const Dims &dims : roles.inOrder())
    llvm::append_range(places, dims);
  auto placeOf = [&](int64_t dim) {
    return llvm::find(places, dim) - places.begin();
  };
  Dims order = allDims(term.dims.size());
  llvm::sort(order, [&](int64_t a, int64_t b) {
    return placeOf(term.dims[a]) < placeOf(term.dims[b]);
  });
  Value sorted = transposeTo(rewriter, loc, term.source, order);
  // nn.attention needs a bias with all queries and keys, so these dimensions
  // are broadcast to their full size; the others may have size 1.
  Dims wide, dims, shape;
  int64_t next = 0;
  for (const Dims &role : roles.inOrder()) {
    auto isPresent = [&](int64_t dim) {
      return llvm::is_contained(term.dims, dim);
    };
    bool needed = llvm::any_of(role, [&](int64_t dim) {
      return isPresent(dim) || dim == roles.query || dim == roles.key;
    });
    shape.push_back(needed ? sizeOf(role) : 1);
    for (int64_t dim : role) {
      if (!needed)
        continue;
      if (isPresent(dim))
        dims.push_back(next);
      wide.push_back(sizeOf(dim));
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

/// Returns the ids of the segments of queries or keys in the dimension order
/// that nn.attention requires: [s] or [b, s].
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
  // nn.attention has no derivative with respect to its bias. So attention with
  // a bias that may be trained is not recognized, and stays a chain of
  // operations.
  if (llvm::any_of(scores.biases, [](const Bias &term) {
        return dependsOnParameter(term.value.source);
      }))
    return failure();

  // The softcap softcap * tanh(x), with x = product * scale, is that of
  // nn.attention for scores of softcap * x.
  double scale =
      scores.softcap != 0 ? scores.scale * scores.softcap : scores.scale;
  query = peelScale(query, scale);
  key = peelScale(key, scale);
  int64_t b = sizeOf(roles.batch), n = sizeOf(roles.heads),
          g = sizeOf(roles.group), s = sizeOf(roles.query),
          t = sizeOf(roles.key);
  int64_t d = 1, e = 1;
  for (char letter : features)
    d *= shapeOf(query)[queryLabels.find(letter)];
  Dims valueSizes;
  for (char letter : valueFeatures) {
    valueSizes.push_back(shapeOf(value)[valueLabels.find(letter)]);
    e *= valueSizes.back();
  }
  auto letters = [&](StringRef labels, std::initializer_list<Dims> roles) {
    std::string order;
    for (const Dims &dims : roles)
      for (int64_t dim : dims)
        order.push_back(labels[dim]);
    return order;
  };
  auto [batch, heads, group, queries, keys] = roles.inOrder();
  StringRef sl = scoreLabels, wl = weightLabels;
  query = arrange(query, queryLabels,
                  letters(sl, {batch, queries, heads, group}) + features,
                  {b, s, n, g, d});
  key = arrange(key, keyLabels, letters(sl, {batch, keys, heads}) + features,
                {b, t, n, d});
  value =
      arrange(value, valueLabels,
              letters(wl, {batch, keys, heads}) + valueFeatures, {b, t, n, e});

  // Masks and biases.
  RankedTensorType scoreType = typeOf(softmax.getInput());
  MaskParts parts;
  for (const Mask &mask : scores.masks)
    splitMask(mask.condition.source, mask.negated, mask.condition.dims,
              {roles.batch, roles.query, roles.key}, parts);
  BandRule rule = sayBand(parts, s, t);
  auto seenBy = [&](const MaskPart &part) -> Narrow {
    Value condition = part.value.source;
    if (!part.negated)
      return part.value;
    Value truth = createSplat(rewriter, loc, typeOf(condition), 1);
    return {arith::XOrIOp::create(rewriter, loc, condition, truth),
            part.value.dims};
  };
  for (const Bias &term : scores.biases) {
    Narrow source = term.value;
    if (term.factor != 1)
      source.source = arith::MulFOp::create(
          rewriter, loc, source.source,
          createSplat(rewriter, loc, typeOf(source.source), term.factor));
    addBias(toBias(source));
  }
  for (const MaskPart &part : parts.rest) {
    Narrow mask = seenBy(part);
    auto type = typeOf(mask.source).clone(scoreType.getElementType());
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
  for (const Dims &dims : {batch, queries, heads, group})
    for (int64_t dim : dims)
      shape.push_back(sizeOf(dim));
  shape.append(valueSizes);
  std::string have =
      letters(wl, {batch, queries, heads, group}) + valueFeatures;
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
