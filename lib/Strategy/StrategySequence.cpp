// strategy-sequence: positions split inside attention, heads or rings.

#include "Boundary.h"
#include "DimClasses.h"
#include "HeadSplit.h"
#include "Residuals.h"
#include "cleave/Dialect/NN/Transforms/PositionFlow.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Strategy/Passes.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/IR/IRMapping.h"

namespace cleave {
#define GEN_PASS_DEF_STRATEGYSEQUENCEPASS
#include "cleave/Strategy/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

namespace {

using List = SmallVector<dist::AxisRefAttr>;

/// One operation of attention, forward or backward, and where it has what.
struct Attention {
  Operation *op;
  ShardingRule rule;
  Value query, key;
  /// Factors of queries, keys, KV heads and the query heads of each.
  int64_t s = -1, t = -1, n = -1, g = -1;
  /// Operands that come from outside; of the backward pass the others were
  /// saved.
  SmallVector<unsigned> arriving = {}, saved = {};
  /// Results that leave; in the forward pass the first, which is saved, too.
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
         dist::AxisRefAttr ring, dist::AxisRefAttr ulysses,
         ArrayRef<dist::AxisRefAttr> features,
         llvm::SmallDenseSet<int64_t> &unsplit)
      : func(func), mesh(mesh), flow(flow), classes(func), ring(ring),
        ulysses(ulysses), features(features), unsplit(unsplit) {}

  LogicalResult run() {
    // Layouts of positions are read off before constraints stand in the way.
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
    // Queries that meet the keys of all positions are split without a word.
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
  /// Masks of a ring never count on the index in a tile.
  template <typename Op> void givePositions(Op op) {
    if (!ring || op.getQPositions() || (!op.getCausal() && !op.getWindow()))
      return;
    op.getQPositionsMutable().assign(indices(op.getQuery()));
    op.getKPositionsMutable().assign(indices(op.getKey()));
  }

  static int64_t length(Value value) {
    return cast<RankedTensorType>(value.getType()).getDimSize(1);
  }

  /// 0, 1, 2, ... for dimension 1.
  Value indices(Value like) {
    int64_t size = cast<RankedTensorType>(like.getType()).getDimSize(1);
    Value &known = iotas[size];
    if (!known) {
      auto builder = OpBuilder::atBlockBegin(&func.getBody().front());
      known = nn::IotaOp::create(
          builder, func.getLoc(),
          RankedTensorType::get({size}, builder.getI64Type()), 0);
    }
    return known;
  }

  /// The axes of each factor inside.
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
    // KV heads get the minor part of the axis: what is left of the positions
    // of keys and values is then contiguous when the copies are gathered.
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
      // What is wasted is worth a warning from a tenth on.
      (10 * (split.padded - n * g) > split.padded
           ? emitWarning(attention.op->getLoc())
           : emitRemark(attention.op->getLoc()))
          << n * g << " heads (" << n << " of keys, " << g
          << " queries each) do not divide by the " << ways * others
          << " ranks that split them: they are padded to " << split.padded;
    return success();
  }

  /// The axes of tensor parallelism that split a dimension of heads: those of
  /// the parameters that have it.
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
    Operation *op = attention.op;
    SmallVector<bool> closed(factors.size(), false);
    closed[attention.s] = closed[attention.t] = true;
    // Each rank meets the keys and values of all.
    SmallVector<List> meeting(factors);
    meeting[attention.t].clear();
    auto inner = [&](const TensorFactors &dims, ArrayRef<List> axes,
                     ArrayRef<dist::AxisRefAttr> partial = {}) {
      auto dimOf = [&](int64_t dim) {
        return dims[dim].size() == 1
                   ? std::pair(ArrayRef(axes[dims[dim][0]]),
                               bool(closed[dims[dim][0]]))
                   : std::pair(ArrayRef<dist::AxisRefAttr>(), false);
      };
      return sharding(dims.size(), dimOf, partial);
    };
    // Outside, positions lie as they do everywhere; a ring leaves them so.
    List positions;
    if (ring)
      positions.push_back(ring);
    if (ulysses)
      positions.push_back(ulysses);
    auto outer = [&](OpBuilder &builder, Value value) -> Value {
      if (!ulysses)
        return value;
      auto dims = [&](int64_t dim) {
        return dim == 1 ? std::pair(ArrayRef(positions), true)
                        : std::pair(ArrayRef<dist::AxisRefAttr>(), false);
      };
      int64_t rank = cast<RankedTensorType>(value.getType()).getRank();
      return constrain(builder, value, sharding(rank, dims));
    };
    OpBuilder builder(op);
    for (OpOperand &operand : op->getOpOperands()) {
      unsigned index = operand.getOperandNumber();
      Value value = operand.get();
      if (Operation *def = value.getDefiningOp();
          def && def->getNumOperands() == 0)
        continue; // made in any layout
      const TensorFactors &dims = attention.rule.operands[index];
      // What goes by queries and keys lies as the queries do.
      bool meetsOwn = hasFactor(dims, attention.s);
      dist::ShardingAttr whole = inner(dims, meeting),
                         inside = meetsOwn ? whole : inner(dims, factors);
      if (SetVector<Operation *> chain = chainOfIndices(value);
          !chain.empty()) {
        // Indices need no exchange: each rank computes those that it reads.
        IRMapping copies;
        for (Operation *op : chain)
          builder.clone(*op, copies);
        operand.set(constrain(builder, copies.lookup(value), whole));
        continue;
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
    builder.setInsertionPointAfter(op);
    for (OpResult result : op->getResults()) {
      unsigned index = result.getResultNumber();
      // Gradients of keys and values are addends where query heads that share
      // them are split.
      bool isSum = !attention.isForward && index > 0;
      dist::ShardingAttr layout = inner(attention.rule.results[index], factors,
                                        isSum ? ArrayRef(factors[attention.g])
                                              : ArrayRef<dist::AxisRefAttr>());
      Value inside = constrain(builder, result, layout), outside = inside;
      if (llvm::is_contained(attention.leaving, index))
        outside = outer(builder, inside);
      pinned[{outside, layout}] = inside;
      SmallPtrSet<Operation *, 2> own = {inside.getDefiningOp(),
                                         outside.getDefiningOp()};
      result.replaceAllUsesExcept(outside, own);
    }
  }

  static bool hasFactor(const TensorFactors &dims, int64_t factor) {
    return llvm::is_contained(dims, DimFactors{factor});
  }

  /// What computes it from indices alone, so that any part of it can be
  /// computed anywhere; else nothing.
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

  /// A saved value in the layout of `inside`: what lay so in the forward pass
  /// is saved in place of what was.
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
    replaced.push_back(value.getDefiningOp());
    return save;
  }

  dist::ConstrainOp constrain(OpBuilder &builder, Value value,
                              dist::ShardingAttr sharding) {
    return dist::ConstrainOp::create(builder, value.getLoc(), value.getType(),
                                     value, sharding);
  }

  /// `dimOf(dim)`: its axes, and whether it has no others.
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
  llvm::SmallDenseSet<int64_t> &unsplit; // lengths of which that was told
  DenseMap<int64_t, Value> iotas;
  /// By value outside and layout inside: the value inside.
  DenseMap<std::pair<Value, Attribute>, Value> pinned;
  DenseMap<Value, Value> saves;
  SmallVector<Operation *> replaced;
  llvm::SmallDenseSet<std::pair<int64_t, int64_t>> remarked;
};

/// Gradients of tables that have a row for each position, as sums over
/// positions: what a rank adds to a table that every rank has.
class TableGradients {
public:
  TableGradients(func::FuncOp func, const nn::PositionFlow &flow)
      : func(func), flow(flow) {}

  void run() {
    Operation *terminator = func.getBody().front().getTerminator();
    for (OpOperand &result : terminator->getOpOperands()) {
      if (roleOf(func.getResultAttrDict(result.getOperandNumber())) !=
          "gradient")
        continue;
      OpOperand &sum = addendOf(result);
      auto pad = sum.get().getDefiningOp<nn::PadOp>();
      Value rows = pad ? pad.getInput() : sum.get();
      std::optional<int64_t> dim = flow.dimOf(rows);
      if (!dim || !rows.getDefiningOp() || (pad && !padsOnly(pad, *dim)))
        continue;
      sum.set(placed(rows, sum.get(), *dim, pad ? pad.getLow()[*dim] : 0));
      if (pad && pad->use_empty())
        pad.erase();
    }
  }

private:
  /// The microbatch's own part of a gradient that is added up.
  static OpOperand &addendOf(OpOperand &result) {
    if (auto add = result.get().getDefiningOp<arith::AddFOp>())
      for (OpOperand &operand : add->getOpOperands())
        if (isa<BlockArgument>(operand.get()))
          return add->getOpOperand(1 - operand.getOperandNumber());
    return result;
  }

  static bool padsOnly(nn::PadOp pad, int64_t dim) {
    for (auto [index, low, high] : llvm::enumerate(pad.getLow(), pad.getHigh()))
      if ((low || high) && int64_t(index) != dim)
        return false;
    return pad.getValue().isZero();
  }

  Value placed(Value rows, Value table, int64_t dim, int64_t first) {
    OpBuilder builder(rows.getContext());
    builder.setInsertionPointAfterValue(table);
    Location loc = table.getLoc();
    auto type = RankedTensorType::get({flow.size()}, builder.getI64Type());
    Value index = nn::IotaOp::create(builder, loc, type, 0);
    if (first)
      index = arith::AddIOp::create(
          builder, loc, index,
          arith::ConstantOp::create(
              builder, loc,
              DenseElementsAttr::get(type, builder.getI64IntegerAttr(first))));
    return nn::ScatterAddOp::create(builder, loc, table.getType(), index, rows,
                                    dim);
  }

  func::FuncOp func;
  const nn::PositionFlow &flow;
};

struct StrategySequencePass
    : cleave::impl::StrategySequencePassBase<StrategySequencePass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<dist::AxisRefAttr> ringAxis = axisOf(ring);
    FailureOr<dist::AxisRefAttr> ulyssesAxis = axisOf(ulysses);
    if (failed(ringAxis) || failed(ulyssesAxis))
      return signalPassFailure();
    if (!*ringAxis && !*ulyssesAxis)
      return;
    List features;
    for (const std::string &name : featureAxes)
      features.push_back(dist::AxisRefAttr::get(&getContext(), name));
    bool any = false;
    llvm::SmallDenseSet<int64_t> unsplit;
    for (auto func : module.getOps<func::FuncOp>()) {
      nn::PositionFlow flow(func);
      if (!flow.any())
        continue;
      any = true;
      Pinner pinner(func, mesh, flow, *ringAxis, *ulyssesAxis, features,
                    unsplit);
      if (failed(checkForm(func, flow)) || failed(pinner.run()))
        return signalPassFailure();
      TableGradients(func, flow).run();
    }
    std::optional<pipe::StageOf> stage = pipe::stageOf(module);
    // A stage may have none, as one that holds an encoder alone.
    if (any || (stage && stage->stage > 0) ||
        module->hasAttr(nn::kPositionsAttr))
      return;
    module.emitError("has no dimension of positions to split over axis '")
        << (ring.empty() ? ulysses : ring)
        << "': sequence parallelism needs tokens, or an input, of shape "
           "[batch, sequence, ...]; of several, data.tokens names the one";
    signalPassFailure();
  }

  /// Null where there is none, or where it splits nothing.
  FailureOr<dist::AxisRefAttr> axisOf(StringRef name) {
    if (name.empty())
      return dist::AxisRefAttr();
    FailureOr<dist::MeshOp> found = meshWithAxis(getOperation(), name);
    if (failed(found))
      return failure();
    mesh = *found;
    auto axis = dist::AxisRefAttr::get(&getContext(), name);
    return dist::axisSize(mesh.getMesh(), axis) > 1 ? axis
                                                    : dist::AxisRefAttr();
  }

  /// Attention must be one operation.
  LogicalResult checkForm(func::FuncOp func, const nn::PositionFlow &flow) {
    for (Operation &op : func.getBody().front().without_terminator()) {
      ShardingRule rule = ShardingRule::of(&op);
      for (auto [value, dims] : llvm::zip(op.getOperands(), rule.operands)) {
        bool isRow = false;
        int64_t positions = 0;
        for (auto [dim, made] : llvm::enumerate(dims)) {
          if (made.size() != 1 || !flow.isPosition(value, dim))
            continue;
          ++positions;
          isRow |= isJoint(rule.factors[made[0]]);
        }
        if (isRow && positions > 1)
          return op.emitOpError("combines the scores ")
                 << value.getType() << " of " << flow.size()
                 << " positions with each other: this attention is not of a "
                    "form that becomes one operation (a bias that is trained, "
                    "for example), and sequence kinds ring and ulysses split "
                    "no other; use kind megatron, or tensor parallelism alone";
      }
    }
    return success();
  }

  dist::MeshOp mesh;
};

} // namespace
