// Shardings of attention; see AttentionPins.h.

#include "AttentionPins.h"

#include "DimClasses.h"
#include "HeadSplit.h"
#include "Residuals.h"
#include "StrategyUtils.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

namespace {

using List = SmallVector<dist::AxisRefAttr>;

/// One attention operation, forward or backward, and the roles of its operands
/// and results.
struct Attention {
  Operation *op;
  ShardingRule rule;
  Value query, key;
  /// The factors of the sharding rule for query positions (s), key positions
  /// (t), KV heads (n), and query heads per KV head (g).
  int64_t s = -1, t = -1, n = -1, g = -1;
  /// `arriving` has the operands that come in the layout of the surrounding
  /// operations. `saved` has the other operands of a backward attention, which
  /// are values that the forward pass has saved.
  SmallVector<unsigned> arriving = {}, saved = {};
  /// The results that must be converted back to the layout of the surrounding
  /// operations. In the forward pass this is only the first result, the output
  /// of attention, which is also saved for the backward pass.
  SmallVector<unsigned> leaving = {};
  bool isForward = false;
};

template <typename Op> Attention describe(Op op) {
  Attention attention = {op, ShardingRule::of(op), op.getQuery(), op.getKey()};
  const auto &query =
      attention.rule.operands[op.getQueryMutable().getOperandNumber()];
  const auto &key =
      attention.rule.operands[op.getKeyMutable().getOperandNumber()];
  attention.s = query[1][0];
  attention.n = query[2][0];
  attention.g = query[3][0];
  attention.t = key[1][0];
  SmallVector<unsigned> heads = {op.getQueryMutable().getOperandNumber(),
                                 op.getKeyMutable().getOperandNumber(),
                                 op.getValueMutable().getOperandNumber()};
  if constexpr (std::is_same_v<Op, nn::AttentionOp>) {
    attention.isForward = true;
    attention.arriving = heads;
    attention.leaving = {0};
  } else {
    attention.isForward = false;
    attention.arriving = {op.getCotangentMutable().getOperandNumber()};
    attention.saved = heads;
    attention.saved.append({op.getOutputMutable().getOperandNumber(),
                            op.getLseMutable().getOperandNumber()});
    attention.leaving = {0, 1, 2};
  }
  return attention;
}

class Pinner {
public:
  Pinner(func::FuncOp func, dist::MeshOp mesh, const nn::PositionFlow &flow,
         const AttentionAxes &axes, llvm::SmallDenseSet<int64_t> &unsplit)
      : func(func), mesh(mesh), flow(flow), classes(func), ring(axes.ring),
        ulysses(axes.ulysses), features(axes.features), unsplit(unsplit) {}

  LogicalResult run() {
    // Attention gets explicit positions first, since they are derived from the
    // program, and constraints, inserted later, would hide where they come
    // from.
    std::vector<Attention> attentions;
    for (Operation &op : func.getBody().front().without_terminator()) {
      if (auto forward = dyn_cast<nn::AttentionOp>(op)) {
        givePositions(forward);
        attentions.push_back(describe(forward));
      } else if (auto backward = dyn_cast<nn::AttentionGradOp>(op)) {
        givePositions(backward);
        attentions.push_back(describe(backward));
      }
    }
    // A warning is only given for self-attention over positions that are not
    // split. Cross-attention is split without constraints.
    llvm::erase_if(attentions, [&](const Attention &attention) {
      bool isSplit = flow.isPosition(attention.query, 1) &&
                     flow.isPosition(attention.key, 1);
      if (!isSplit && attention.isForward && length(attention.query) > 1 &&
          length(attention.query) == length(attention.key) &&
          unsplit.insert(length(attention.query)).second)
        emitWarning(attention.op->getLoc())
            << "attention of " << length(attention.query)
            << " positions with themselves is not split: positions are the "
            << flow.size() << " of "
            << "the tokens, or of dimension 1 of the first input";
      return !isSplit;
    });
    for (Attention &attention : attentions) {
      FailureOr<SmallVector<List>> factors = factorsOf(attention);
      if (failed(factors))
        return failure();
      pin(attention, *factors);
    }
    for (Operation *save : replaced)
      if (save->use_empty())
        save->erase();
    return success();
  }

private:
  /// If an attention masks by position, gives it explicit positions: with ring
  /// attention, the index within a tile is not the position.
  template <typename Op> void givePositions(Op op) {
    if (!ring || op.getQPositions() || (!op.getCausal() && !op.getWindow()))
      return;
    op.getQPositionsMutable().assign(indices(op.getQuery()));
    op.getKPositionsMutable().assign(indices(op.getKey()));
  }

  static int64_t length(Value value) { return typeOf(value).getDimSize(1); }

  /// Returns the values 0, 1, 2, ... along dimension 1 of `like`.
  Value indices(Value like) {
    int64_t size = typeOf(like).getDimSize(1);
    Value &known = iotas[size];
    if (!known) {
      auto builder = OpBuilder::atBlockBegin(&func.getBody().front());
      known = nn::IotaOp::create(
          builder, func.getLoc(),
          RankedTensorType::get({size}, builder.getI64Type()), 0);
    }
    return known;
  }

  /// The axes of each factor inside attention.
  FailureOr<SmallVector<List>> factorsOf(const Attention &attention) {
    SmallVector<List> factors(attention.rule.factors.size());
    if (ring)
      factors[attention.s] = factors[attention.t] = {ring};
    List &n = factors[attention.n], &g = factors[attention.g];
    n = featuresOf(attention.query, 2);
    g = featuresOf(attention.query, 3);
    if (!ulysses)
      return factors;
    auto size = [&](int64_t factor) {
      return attention.rule.factors[factor].size;
    };
    int64_t ways = dist::axisSize(mesh.getMesh(), ulysses);
    HeadSplit split = splitHeads(
        {size(attention.n), dist::axesSize(mesh.getMesh(), n)},
        {size(attention.g), dist::axesSize(mesh.getMesh(), g)}, ways);
    if (failed(check(attention, size(attention.n), size(attention.g), n, g)))
      return failure();
    // The minor part of the Ulysses axis splits the KV heads; the major part
    // splits the query heads that share a KV head. Copies of keys and values
    // are then gathered over the major part, so that each rank's positions are
    // contiguous.
    auto part = [&](int64_t pre, int64_t size) {
      return size == ways
                 ? ulysses
                 : dist::AxisRefAttr::get(func.getContext(), ulysses.getName(),
                                          pre, size);
    };
    if (split.n > 1)
      n.push_back(part(split.g, split.n));
    if (split.g > 1)
      g.push_back(part(1, split.g));
    return factors;
  }

  LogicalResult check(const Attention &attention, int64_t n, int64_t g,
                      ArrayRef<dist::AxisRefAttr> ofN,
                      ArrayRef<dist::AxisRefAttr> ofG) {
    dist::MeshAttr axes = mesh.getMesh();
    int64_t ways = dist::axisSize(axes, ulysses);
    int64_t others = dist::axesSize(axes, ofN) * dist::axesSize(axes, ofG);
    if (n * g < ways * others) {
      InFlightDiagnostic error = attention.op->emitOpError("has ");
      error << n << " KV heads of " << g << (g == 1 ? " query" : " queries")
            << " each, " << n * g << " heads, which kind ulysses cannot split "
            << "over the " << ways << " ranks of axis '"
            << ulysses.getName().getValue() << "'";
      if (others > 1)
        error << " beside the " << others << " of tensor parallelism";
      error << ": it needs a head for every rank; use fewer ranks, or kind "
               "ring";
      return error;
    }
    HeadSplit split = splitHeads({n, dist::axesSize(axes, ofN)},
                                 {g, dist::axesSize(axes, ofG)}, ways);
    if (split.padded > n * g && remarked.insert({n, g}).second)
      // A waste of 10 % or more is worth a warning.
      (10 * (split.padded - n * g) > split.padded
           ? emitWarning(attention.op->getLoc())
           : emitRemark(attention.op->getLoc()))
          << n * g << " heads (" << n << " of keys, " << g
          << " queries each) do not divide by the " << ways * others
          << " ranks that split them: they are padded to " << split.padded;
    return success();
  }

  /// Returns the axes of tensor parallelism that split a dimension of heads,
  /// which are those that split the parameters with this dimension.
  List featuresOf(Value value, int64_t dim) {
    List list;
    std::optional<unsigned> index = classes.indexOf(value, dim);
    if (!index)
      return list;
    for (auto [arg, paramDim] : classes.classes()[*index].parameterDims) {
      dist::ShardingAttr sharding = shardingOf(func.getArgAttrDict(arg));
      if (!sharding)
        continue;
      for (dist::AxisRefAttr axis : sharding.getDims()[paramDim].getAxes())
        if (llvm::is_contained(features, axis))
          list.push_back(axis);
      break;
    }
    return list;
  }

  void pin(const Attention &attention, ArrayRef<List> factors) {
    // In the layout `meeting`, positions of keys and values are not split, so
    // that each rank has all of them.
    SmallVector<List> meeting(factors);
    meeting[attention.t].clear();
    OpBuilder builder(attention.op);
    for (OpOperand &operand : attention.op->getOpOperands())
      if (Operation *def = operand.get().getDefiningOp();
          !def || def->getNumOperands() != 0) // values without operands are
                                              // made in any layout
        pinOperand(builder, attention, operand, factors, meeting);
    builder.setInsertionPointAfter(attention.op);
    for (OpResult result : attention.op->getResults())
      pinResult(builder, attention, result, factors);
  }

  void pinOperand(OpBuilder &builder, const Attention &attention,
                  OpOperand &operand, ArrayRef<List> factors,
                  ArrayRef<List> meeting) {
    unsigned index = operand.getOperandNumber();
    Value value = operand.get();
    const TensorFactors &dims = attention.rule.operands[index];
    // If a value has dimensions of both query and key positions, the query
    // positions are split and the key positions are not.
    bool meetsOwn = hasFactor(dims, attention.s);
    dist::ShardingAttr whole = inner(attention, dims, meeting),
                       inside =
                           meetsOwn ? whole : inner(attention, dims, factors);
    if (SetVector<Operation *> chain = chainOfIndices(value); !chain.empty()) {
      // A value that is computed from indices alone is not communicated: each
      // rank computes the elements that it reads.
      IRMapping copies;
      for (Operation *op : chain)
        builder.clone(*op, copies);
      operand.set(constrain(builder, copies.lookup(value), whole));
      return;
    }
    if (llvm::is_contained(attention.saved, index)) {
      value = restored(builder, value, inside);
    } else if (Value &known = pinned[{value, inside}]) {
      value = known;
    } else {
      bool arrives = llvm::is_contained(attention.arriving, index);
      value = known =
          constrain(builder, arrives ? outer(builder, value) : value, inside);
    }
    if (whole != inside) {
      Value &met = pinned[{value, whole}];
      if (!met)
        met = constrain(builder, value, whole);
      value = met;
    }
    operand.set(value);
  }

  void pinResult(OpBuilder &builder, const Attention &attention,
                 OpResult result, ArrayRef<List> factors) {
    unsigned index = result.getResultNumber();
    // The gradients of keys and values are partial sums if the query heads that
    // share a KV head are split over ranks.
    bool isSum = !attention.isForward && index > 0;
    dist::ShardingAttr layout = inner(
        attention, attention.rule.results[index], factors,
        isSum ? ArrayRef(factors[attention.g]) : ArrayRef<dist::AxisRefAttr>());
    Value inside = constrain(builder, result, layout), outside = inside;
    if (llvm::is_contained(attention.leaving, index))
      outside = outer(builder, inside);
    pinned[{outside, layout}] = inside;
    SmallPtrSet<Operation *, 2> own = {inside.getDefiningOp(),
                                       outside.getDefiningOp()};
    result.replaceAllUsesExcept(outside, own);
  }

  /// Returns the sharding of a tensor inside attention: `axes` has the axes
  /// that split each factor. Dimensions of positions are closed, so that
  /// propagation does not split them over further axes; all other dimensions
  /// are open.
  dist::ShardingAttr inner(const Attention &attention,
                           const TensorFactors &dims, ArrayRef<List> axes,
                           ArrayRef<dist::AxisRefAttr> partial = {}) {
    auto dimOf = [&](int64_t dim) {
      if (dims[dim].size() != 1)
        return std::pair(ArrayRef<dist::AxisRefAttr>(), false);
      int64_t factor = dims[dim][0];
      return std::pair(ArrayRef(axes[factor]),
                       factor == attention.s || factor == attention.t);
    };
    return sharding(dims.size(), dimOf, partial);
  }

  /// Returns a value in the sharding outside of attention, where positions are
  /// split as in the rest of the model. Ring attention keeps this sharding
  /// inside attention, too.
  Value outer(OpBuilder &builder, Value value) {
    if (!ulysses)
      return value;
    List positions;
    if (ring)
      positions.push_back(ring);
    positions.push_back(ulysses);
    auto dims = [&](int64_t dim) {
      return dim == 1 ? std::pair(ArrayRef(positions), true)
                      : std::pair(ArrayRef<dist::AxisRefAttr>(), false);
    };
    int64_t rank = typeOf(value).getRank();
    return constrain(builder, value, sharding(rank, dims));
  }

  static bool hasFactor(const TensorFactors &dims, int64_t factor) {
    return llvm::is_contained(dims, DimFactors{factor});
  }

  /// Returns the operations that compute the value if it depends on indices
  /// alone, so that each rank can compute any elements of it; otherwise an
  /// empty set.
  static SetVector<Operation *> chainOfIndices(Value value) {
    SetVector<Operation *> chain;
    BackwardSliceOptions options;
    options.inclusive = true;
    if (!value.getDefiningOp() ||
        failed(getBackwardSlice(value, &chain, options)) ||
        !llvm::all_of(chain, [](Operation *op) {
          return isa<nn::IotaOp>(op) || op->hasTrait<OpTrait::ConstantLike>() ||
                 op->hasTrait<OpTrait::Elementwise>();
        }))
      chain.clear();
    return chain;
  }

  /// Returns a saved value in the layout `inside`. If the forward pass has a
  /// copy of the value in this layout, that copy is saved instead of the value.
  Value restored(OpBuilder &builder, Value value, dist::ShardingAttr inside) {
    Value source = savedFrom(value);
    auto forward = source ? pinned.find({source, inside}) : pinned.end();
    if (forward == pinned.end())
      return constrain(builder, value, inside);
    Value &save = saves[forward->second];
    if (!save) {
      OpBuilder after(builder.getContext());
      after.setInsertionPointAfterValue(forward->second);
      save = nn::SaveOp::create(after, value.getLoc(), forward->second);
    }
    replaced.insert(value.getDefiningOp());
    return save;
  }

  dist::ConstrainOp constrain(OpBuilder &builder, Value value,
                              dist::ShardingAttr sharding) {
    return dist::ConstrainOp::create(builder, value.getLoc(), value.getType(),
                                     value, sharding);
  }

  /// Builds a sharding. `dimOf(dim)` returns the axes that split a dimension,
  /// and whether the dimension is closed to further axes.
  dist::ShardingAttr sharding(
      int64_t rank,
      llvm::function_ref<std::pair<ArrayRef<dist::AxisRefAttr>, bool>(int64_t)>
          dimOf,
      ArrayRef<dist::AxisRefAttr> partial = {}) {
    SmallVector<dist::DimShardingAttr> dims;
    for (int64_t dim = 0; dim < rank; ++dim) {
      auto [axes, isClosed] = dimOf(dim);
      dims.push_back(
          dist::DimShardingAttr::get(func.getContext(), axes, !isClosed));
    }
    return dist::ShardingAttr::get(func.getContext(),
                                   FlatSymbolRefAttr::get(mesh), dims,
                                   dist::ReduceKind::Sum, partial, {}, 0);
  }

  func::FuncOp func;
  dist::MeshOp mesh;
  const nn::PositionFlow &flow;
  DimClasses classes;
  dist::AxisRefAttr ring, ulysses; // or null
  List features;
  llvm::SmallDenseSet<int64_t> &unsplit; // lengths that a warning was given for
  DenseMap<int64_t, Value> iotas;
  /// The values that constraints return, by the constrained value and the
  /// layout.
  DenseMap<std::pair<Value, Attribute>, Value> pinned;
  DenseMap<Value, Value> saves;
  SetVector<Operation *> replaced;
  llvm::SmallDenseSet<std::pair<int64_t, int64_t>> remarked;
};

} // namespace

LogicalResult strategy::pinAttention(func::FuncOp func, dist::MeshOp mesh,
                                     const nn::PositionFlow &flow,
                                     const AttentionAxes &axes,
                                     llvm::SmallDenseSet<int64_t> &unsplit) {
  return Pinner(func, mesh, flow, axes, unsplit).run();
}
