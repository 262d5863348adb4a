// strategy-zigzag: reorders positions so that causal attention takes equally
// long on every rank of a ring.

#include "DimClasses.h"
#include "cleave/Dialect/NN/Transforms/PositionFlow.h"
#include "cleave/Interfaces/Streaming.h"
#include "cleave/Interfaces/TensorExpr.h"
#include "cleave/Strategy/Passes.h"
#include "cleave/Support/ValueUtils.h"

#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/StringSet.h"

namespace cleave {
#define GEN_PASS_DEF_STRATEGYZIGZAGPASS
#include "cleave/Strategy/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

namespace {

/// The zigzag order of positions. Each rank's tile begins with a run of `early`
/// positions from the first half of the sequence, and ends with a run of `late`
/// ones from the second half. Early runs descend from tile to tile, late runs
/// ascend. So the last positions, and padding after them, end the last tile.
struct ZigZag {
  int64_t size, ranks, tile;

  int64_t early() const { return llvm::divideCeil(tile, 2); }
  int64_t late() const { return tile - early(); }
  /// Returns whether the order is possible. Padding may replace only late
  /// positions of the last tile; all other runs of positions must be full.
  bool fits() const { return tile > 1 && tile * ranks - size <= late(); }

  /// Returns the original position of each position `at` of the new order.
  Value order(TensorExpr &e, Value at) const {
    Value rank = div(e, at, tile), within = rem(e, at, tile);
    Value earlyIndex =
        add(e, mul(e, rank, -early()), within, (ranks - 1) * early());
    Value lateIndex =
        add(e, mul(e, rank, late()), within, ranks * early() - early());
    return e.select(less(e, within, early()), earlyIndex, lateIndex);
  }
  /// The inverse of `order`.
  Value inverse(TensorExpr &e, Value at) const {
    int64_t border = ranks * early();
    Value before = div(e, at, early()), beyond = add(e, at, -border);
    Value earlyIndex =
        add(e, mul(e, before, -tile), rem(e, at, early()), (ranks - 1) * tile);
    Value lateIndex = add(e, mul(e, div(e, beyond, late()), tile),
                          rem(e, beyond, late()), early());
    return e.select(less(e, at, border), earlyIndex, lateIndex);
  }

private:
  static Value number(TensorExpr &e, Value like, int64_t value) {
    return e.splatInt(typeOf(like), value);
  }
  static Value div(TensorExpr &e, Value a, int64_t b) {
    return e.make<arith::DivSIOp>(a, number(e, a, b));
  }
  static Value rem(TensorExpr &e, Value a, int64_t b) {
    return e.make<arith::RemSIOp>(a, number(e, a, b));
  }
  static Value mul(TensorExpr &e, Value a, int64_t b) {
    return e.make<arith::MulIOp>(a, number(e, a, b));
  }
  static Value add(TensorExpr &e, Value a, int64_t b) {
    return e.make<arith::AddIOp>(a, number(e, a, b));
  }
  static Value add(TensorExpr &e, Value a, Value b, int64_t c) {
    return add(e, e.make<arith::AddIOp>(a, b), c);
  }
  static Value less(TensorExpr &e, Value a, int64_t b) {
    return e.compare(arith::CmpIPredicate::slt, a, number(e, a, b));
  }
};

/// One function whose positions may be reordered.
class Function {
public:
  /// `said` has the reasons against zigzag that were reported already.
  Function(func::FuncOp func, int64_t ranks, llvm::StringSet<> &said)
      : func(func), ranks(ranks), said(said) {}

  void run() {
    if (!givePositions())
      return;
    DimClasses classes(func);
    if (!findPositions(classes))
      return;
    std::string why;
    Operation *who = nullptr;
    if (!isFree(classes, who, why)) {
      if (said.insert(why).second)
        emitWarning(who ? who->getLoc() : func.getLoc())
            << "positions stay in order, so that causal attention costs the "
               "last of "
            << ranks << " ranks the most: " << why;
      return;
    }
    rewrite(classes);
  }

private:
  /// Adds operands with positions to causal attention, which otherwise compares
  /// indices. Returns false if the function has no attention to balance.
  bool givePositions() {
    bool any = false;
    func.walk([&](Operation *op) {
      if (auto attention = dyn_cast<nn::AttentionOp>(op))
        any |= give(attention);
      else if (auto grad = dyn_cast<nn::AttentionGradOp>(op))
        give(grad);
    });
    return any;
  }

  template <typename Op> bool give(Op op) {
    if (!op.getCausal() && !op.getWindow())
      return false;
    if (!op.getQPositions()) {
      OpBuilder b(op);
      auto index = [&](Value value) -> Value {
        auto type = RankedTensorType::get({typeOf(value).getDimSize(1)},
                                          b.getI64Type());
        return nn::IotaOp::create(b, op.getLoc(), type, 0);
      };
      op.getQPositionsMutable().assign(index(op.getQuery()));
      op.getKPositionsMutable().assign(index(op.getKey()));
    }
    return op.getCausal() && !op.getWindow();
  }

  bool findPositions(const DimClasses &classes) {
    func.walk([&](nn::AttentionOp op) {
      if (!op.getCausal() || op.getWindow())
        return;
      for (Value value : {op.getQuery(), op.getKey()})
        if (auto index = classes.indexOf(value, 1))
          positions.insert(*index);
      zigzag.size = typeOf(op.getQuery()).getDimSize(1);
    });
    zigzag.ranks = ranks;
    zigzag.tile = llvm::divideCeil(zigzag.size, ranks);
    return !positions.empty() && zigzag.size > 1;
  }

  bool isPosition(const DimClasses &classes, Value value, int64_t dim) const {
    std::optional<unsigned> index = classes.indexOf(value, dim);
    return index && positions.contains(*index) &&
           typeOf(value).getDimSize(dim) != 1;
  }

  /// Returns whether all operations can run on positions in the new order. If
  /// not, sets the operation `who` that prevents this, and the reason `why`.
  bool isFree(const DimClasses &classes, Operation *&who, std::string &why) {
    if (!zigzag.fits()) {
      why = std::to_string(zigzag.size) + " positions are too few for it";
      return false;
    }
    findJoined(classes);
    auto refuse = [&](Operation *op) {
      who = op;
      why = "'" + op->getName().getStringRef().str() +
            "' depends on their order or joins them with another dimension";
      return false;
    };
    for (Operation &op : func.getBody().front().without_terminator()) {
      if (op.hasTrait<OpTrait::ConstantLike>())
        continue;
      // Only inputs and iotas may introduce positions.
      if (op.getNumOperands() == 0 && hasJoined(classes, op.getResult(0)))
        return refuse(&op);
      if (isa<nn::IotaOp>(op) || takesRows(classes, &op) ||
          padsRows(classes, &op))
        continue;
      if (!isFree(classes, &op))
        return refuse(&op);
    }
    for (BlockArgument argument : func.getArguments())
      if (hasJoined(classes, argument) && !argument.use_empty())
        return refuse(*argument.user_begin());
    Operation *end = func.getBody().front().getTerminator();
    for (Value value : end->getOperands())
      if (hasJoined(classes, value))
        return refuse(value.getDefiningOp() ? value.getDefiningOp() : end);
    return true;
  }

  bool isFree(const DimClasses &classes, Operation *op) const {
    ShardingRule rule = ShardingRule::of(op);
    llvm::SmallBitVector ordered = orderedFactors(classes, op, rule);
    bool fits = true;
    auto look = [&](Value value, const TensorFactors &dims) {
      Operation *def = value.getDefiningOp();
      auto dense = def && def->hasTrait<OpTrait::ConstantLike>()
                       ? def->getAttrOfType<DenseElementsAttr>("value")
                       : DenseElementsAttr();
      for (auto [dim, made] : llvm::enumerate(dims)) {
        if (llvm::none_of(made,
                          [&](int64_t factor) { return ordered.test(factor); }))
          continue;
        // A constant can be reordered only if its dimension of positions is not
        // merged with other dimensions.
        if (dense && !dense.isSplat())
          fits &= made.size() == 1 &&
                  (typeOf(value).getDimSize(dim) == 1 ||
                   rule.factors[made[0]].size == zigzag.size) &&
                  !joinedFactors(classes, op, rule).test(made[0]);
        if (made.size() == 1 && typeOf(value).getDimSize(dim) != 1)
          fits &= isSymmetric(op, rule, made[0]);
        if (isPosition(classes, value, dim))
          fits &=
              made.size() == 1 && typeOf(value).getDimSize(dim) == zigzag.size;
      }
    };
    for (auto [value, dims] : llvm::zip(op->getOperands(), rule.operands))
      look(value, dims);
    for (auto [value, dims] : llvm::zip(op->getResults(), rule.results))
      look(value, dims);
    return fits;
  }

  /// Returns the factors of an operation that are positions, or whose dimension
  /// merges positions with another dimension.
  llvm::SmallBitVector orderedFactors(const DimClasses &classes, Operation *op,
                                      const ShardingRule &rule) const {
    llvm::SmallBitVector found = joinedFactors(classes, op, rule);
    forEachFactor(op, rule, [&](Value value, int64_t dim, int64_t factor) {
      if (isPosition(classes, value, dim))
        found.set(factor);
    });
    return found;
  }

  llvm::SmallBitVector joinedFactors(const DimClasses &classes, Operation *op,
                                     const ShardingRule &rule) const {
    llvm::SmallBitVector found(rule.factors.size());
    forEachFactor(op, rule, [&](Value value, int64_t dim, int64_t factor) {
      std::optional<unsigned> index = classes.indexOf(value, dim);
      if (index && joined.contains(*index))
        found.set(factor);
    });
    return found;
  }

  /// Calls visit(value, dim, factor) for each dimension of operands and results
  /// that consists of a single factor.
  static void
  forEachFactor(Operation *op, const ShardingRule &rule,
                llvm::function_ref<void(Value, int64_t, int64_t)> visit) {
    auto all = [&](ValueRange values, ArrayRef<TensorFactors> tensors) {
      for (auto [value, dims] : llvm::zip(values, tensors))
        for (auto [dim, made] : llvm::enumerate(dims))
          if (made.size() == 1 && typeOf(value).getDimSize(dim) != 1)
            visit(value, dim, made[0]);
    };
    all(op->getOperands(), rule.operands);
    all(op->getResults(), rule.results);
  }

  /// Finds dimensions that merge positions with another dimension, as in [b *
  /// s, h]. They must be reordered like the positions.
  void findJoined(const DimClasses &classes) {
    for (bool more = true; std::exchange(more, false);)
      for (Operation &op : func.getBody().front().without_terminator()) {
        ShardingRule rule = ShardingRule::of(&op);
        llvm::SmallBitVector ordered = orderedFactors(classes, &op, rule);
        auto look = [&](Value value, const TensorFactors &dims) {
          for (auto [dim, made] : llvm::enumerate(dims))
            if (made.size() > 1 && llvm::any_of(made, [&](int64_t factor) {
                  return ordered.test(factor);
                }))
              if (auto index = classes.indexOf(value, dim))
                more |= joined.insert(*index).second;
        };
        for (auto [value, dims] : llvm::zip(op.getOperands(), rule.operands))
          look(value, dims);
        for (auto [value, dims] : llvm::zip(op.getResults(), rule.results))
          look(value, dims);
      }
  }

  bool hasJoined(const DimClasses &classes, Value value) const {
    return llvm::any_of(llvm::seq<int64_t>(0, typeOf(value).getRank()),
                        [&](int64_t dim) {
                          auto index = classes.indexOf(value, dim);
                          return index && joined.contains(*index);
                        });
  }

  /// Whether a dimension of the value is exactly the sequence dimension.
  bool hasPositions(const DimClasses &classes, Value value) const {
    return llvm::any_of(llvm::seq<int64_t>(0, typeOf(value).getRank()),
                        [&](int64_t dim) {
                          return isPosition(classes, value, dim) &&
                                 typeOf(value).getDimSize(dim) == zigzag.size;
                        });
  }

  /// Returns whether `op` slices a parameter that has one row per position, for
  /// more positions than the sequence has (such as position embeddings).
  bool takesRows(const DimClasses &classes, Operation *op) const {
    auto slice = dyn_cast<nn::SliceOp>(op);
    return slice && isParameter(slice.getInput()) &&
           !hasPositions(classes, slice.getInput());
  }

  /// The gradient of such a slice (takesRows) pads its rows with zeros. If `op`
  /// is such a pad, returns the dimension of positions; otherwise nullopt.
  std::optional<int64_t> padsRows(const DimClasses &classes,
                                  Operation *op) const {
    auto pad = dyn_cast<nn::PadOp>(op);
    if (!pad || !pad.getValue().isZero() || hasPositions(classes, pad) ||
        !llvm::all_of(pad->getUsers(), [](Operation *user) {
          return isa<arith::AddFOp>(user) ||
                 user->hasTrait<OpTrait::IsTerminator>();
        }))
      return std::nullopt;
    std::optional<int64_t> rows;
    for (auto [dim, low, high] : llvm::enumerate(pad.getLow(), pad.getHigh())) {
      bool isRow = isPosition(classes, pad.getInput(), dim);
      if (low < 0 || high < 0 || ((low || high) && !isRow) || (isRow && rows))
        return std::nullopt;
      if (isRow)
        rows = dim;
    }
    return rows;
  }

  /// Returns whether permuting the operands along the factor permutes the
  /// results in the same way, or does not change them.
  static bool isSymmetric(Operation *op, const ShardingRule &rule,
                          int64_t factor) {
    const Factor &info = rule.factors[factor];
    if (auto streaming = dyn_cast<StreamingInterface>(op))
      return !info.indexed && (info.kind == FactorKind::PassThrough ||
                               streaming.getStreamedFactor() == factor);
    // In a gather or scatter, indices address the rows of the table, so the
    // table must keep its order.
    if (auto gather = dyn_cast<nn::GatherOp>(op))
      return rule.operands[0][gather.getDim()][0] != factor;
    if (auto scatter = dyn_cast<nn::ScatterAddOp>(op))
      return rule.results[0][scatter.getDim()][0] != factor;
    return !info.indexed &&
           (info.unordered || info.kind == FactorKind::PassThrough ||
            (info.kind == FactorKind::Reduction && !isJoint(info)));
  }

  void rewrite(const DimClasses &classes) {
    Block &body = func.getBody().front();
    Operation *terminator = body.getTerminator();
    SmallVector<std::pair<OpOperand *, int64_t>> leaving;
    for (OpOperand &operand : terminator->getOpOperands())
      for (int64_t dim = 0; dim < typeOf(operand.get()).getRank(); ++dim)
        if (isPosition(classes, operand.get(), dim) &&
            typeOf(operand.get()).getDimSize(dim) == zigzag.size)
          leaving.push_back({&operand, dim});
    SmallVector<Value> entering(body.getArguments());
    SmallVector<std::pair<nn::PadOp, int64_t>> padded;
    for (Operation &op : body) {
      if (isa<nn::IotaOp>(op) || takesRows(classes, &op))
        entering.push_back(op.getResult(0));
      if (std::optional<int64_t> dim = padsRows(classes, &op))
        padded.push_back({cast<nn::PadOp>(op), *dim});
    }
    SmallVector<std::pair<OpOperand *, int64_t>> constants;
    for (Operation &op : body.without_terminator())
      findConstants(classes, &op, constants);

    OpBuilder b = OpBuilder::atBlockBegin(&body);
    TensorExpr e(b, func.getLoc());
    auto type = RankedTensorType::get({zigzag.size}, b.getI64Type());
    Value count = e.make<nn::IotaOp>(type, 0);
    Value order = zigzag.order(e, count);
    Value back = leaving.empty() ? Value() : zigzag.inverse(e, count);
    for (Value source : entering)
      reorder(classes, source, order);
    for (auto [use, dim] : constants)
      gather(*use, order, dim);
    for (auto [use, dim] : leaving)
      gather(*use, back, dim);
    for (auto [pad, dim] : padded)
      scatter(pad, order, dim);
    for (Value source : entering)
      if (Operation *op = source.getDefiningOp(); op && op->use_empty())
        op->erase();
  }

  /// Finds constants with a dimension of positions. A constant has no dimension
  /// class, so the other operands and results of its reader tell its positions.
  void
  findConstants(const DimClasses &classes, Operation *op,
                SmallVectorImpl<std::pair<OpOperand *, int64_t>> &found) const {
    ShardingRule rule = ShardingRule::of(op);
    llvm::SmallBitVector ordered(rule.factors.size());
    auto look = [&](Value value, const TensorFactors &dims) {
      for (auto [dim, made] : llvm::enumerate(dims))
        if (isPosition(classes, value, dim))
          ordered.set(made[0]);
    };
    for (auto [value, dims] : llvm::zip(op->getOperands(), rule.operands))
      look(value, dims);
    for (auto [value, dims] : llvm::zip(op->getResults(), rule.results))
      look(value, dims);
    for (auto [use, dims] : llvm::zip(op->getOpOperands(), rule.operands)) {
      auto constant = use.get().getDefiningOp<arith::ConstantOp>();
      auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue())
                            : DenseElementsAttr();
      if (!dense || dense.isSplat())
        continue;
      for (auto [dim, made] : llvm::enumerate(dims))
        if (made.size() == 1 && ordered.test(made[0]) &&
            typeOf(use.get()).getDimSize(dim) != 1)
          found.push_back({&use, dim});
    }
  }

  static Value reordered(OpBuilder &b, Value value, Value indices,
                         int64_t dim) {
    auto gather = nn::GatherOp::create(b, value.getLoc(), value, indices, dim);
    gather->setAttr(nn::kReorderAttr, b.getUnitAttr());
    return gather;
  }

  /// Reorders an operand along `dim`: new element i is old element indices[i].
  static void gather(OpOperand &use, Value indices, int64_t dim) {
    OpBuilder b(use.getOwner());
    use.set(reordered(b, use.get(), indices, dim));
  }

  /// Replaces a pad of rows to a longer tensor by a scatter of reordered rows.
  static void scatter(nn::PadOp pad, Value order, int64_t dim) {
    OpBuilder b(pad);
    TensorExpr e(b, pad.getLoc());
    Value rows = e.make<arith::AddIOp>(
        order, e.splatInt(typeOf(order), pad.getLow()[dim]));
    pad.replaceAllUsesWith(Value(nn::ScatterAddOp::create(
        b, pad.getLoc(), pad.getType(), rows, pad.getInput(), dim)));
    pad.erase();
  }

  /// Puts an argument, sliced rows of a parameter, or an iota into the new
  /// order, if it has a dimension of positions.
  void reorder(const DimClasses &classes, Value source, Value order) {
    if (!hasPositions(classes, source))
      return;
    auto iota = source.getDefiningOp<nn::IotaOp>();
    OpBuilder b(func.getContext());
    b.setInsertionPointAfterValue(source.getDefiningOp() ? source : order);
    TensorExpr e(b, source.getLoc());
    SmallPtrSet<Operation *, 2> made;
    Value value = source;
    for (int64_t dim = 0; dim < typeOf(source).getRank(); ++dim) {
      if (!isPosition(classes, source, dim))
        continue;
      if (!iota)
        value = reordered(b, value, order, dim);
      else if (int64_t(iota.getDim()) == dim) // else constant along `dim`
        value = e.broadcast(castTo(e, order, typeOf(source).getElementType()),
                            typeOf(source), {dim});
      made.insert(value.getDefiningOp());
    }
    if (value != source)
      source.replaceAllUsesExcept(value, made);
  }

  static Value castTo(TensorExpr &e, Value value, Type element) {
    RankedTensorType type = typeOf(value).clone(element);
    if (isa<FloatType>(element))
      return e.make<arith::SIToFPOp>(type, value);
    if (type != value.getType())
      return e.make<arith::TruncIOp>(type, value);
    return value;
  }

  func::FuncOp func;
  int64_t ranks;
  llvm::StringSet<> &said;
  ZigZag zigzag{0, 1, 1};
  llvm::SmallDenseSet<unsigned> positions, joined;
};

struct StrategyZigzagPass
    : cleave::impl::StrategyZigzagPassBase<StrategyZigzagPass> {
  using Base::Base;

  void runOnOperation() override {
    llvm::StringSet<> said;
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isExternal() && ranks > 1)
        Function(func, ranks, said).run();
  }
};

} // namespace
