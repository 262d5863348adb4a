//===- SortRows.cpp - dist-sort-rows --------------------------------------===//
//
// On per-rank programs: sorts the rows of grouped products (grouped GEMM) by
// expert, and computes elementwise operations between these products on the
// sorted rows.
//
//===----------------------------------------------------------------------===//

#include "Barriers.h"
#include "ExpertRows.h"

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/RowShare.h"
#include "cleave/Interfaces/TensorExpr.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/MapVector.h"

#include <deque>

namespace cleave {
#define GEN_PASS_DEF_DISTSORTROWSPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using cleave::partition::isElementwise;
using cleave::partition::kept;

namespace {

/// Returns whether the operation saves its operand, or computes each row
/// independently.
bool isOfRows(Operation *op) {
  return isa<nn::SaveOp, nn::RematerializeOp>(op) || isElementwise(op);
}

/// One assignment of rows, which have the dimensions [r...], to experts, and
/// the order in which the rows are sorted by expert.
struct Choice {
  Value ids; // unsorted
  int64_t matrices = 0;
  Attribute when; // the condition under which it is read
  /// The sorted order. `order` has the row at each sorted position, [rows];
  /// `places` has the sorted position of each row, [r...]; `sorted` has the
  /// sorted expert ids, [rows].
  Value order, places, sorted;
  /// For values in which each token has n consecutive rows (one for each of its
  /// top-k experts): the index of the token at each sorted position. The key of
  /// the map is n.
  llvm::SmallDenseMap<int64_t, Value> tokens;
  /// Maps unsorted values [r..., ...] to the same values with sorted rows,
  /// [rows, ...].
  llvm::DenseMap<Value, Value> known;

  ArrayRef<int64_t> rowSizes() const { return typeOf(ids).getShape(); }
  int64_t rows() const { return typeOf(ids).getNumElements(); }
  bool hasRows(Value value) const {
    ArrayRef<int64_t> shape = typeOf(value).getShape();
    size_t rank = rowSizes().size();
    return shape.size() >= rank && shape.take_front(rank) == rowSizes();
  }
};

/// Sorts the rows of one block.
class Sorter {
public:
  explicit Sorter(Block &block) : block(block), builder(block.getParentOp()) {}

  void run() {
    SmallVector<Operation *> ops;
    for (Operation &op : block)
      ops.push_back(&op);
    for (Operation *op : llvm::reverse(ops))
      if (isOfRows(op) && llvm::any_of(op->getUsers(), [&](Operation *user) {
            return isa<nn::GroupedDotOp, nn::GroupedOuterOp, nn::ScatterAddOp>(
                       user) ||
                   forProducts.contains(user);
          }))
        forProducts.insert(op);
    for (Operation *op : ops) {
      anchor = op;
      builder.setInsertionPoint(op);
      if (auto dot = dyn_cast<nn::GroupedDotOp>(op))
        visit(dot);
      else if (auto outer = dyn_cast<nn::GroupedOuterOp>(op))
        visit(outer);
      else if (auto add = dyn_cast<nn::ScatterAddOp>(op))
        visit(add);
      else if (forProducts.contains(op))
        visitElementwise(op);
    }
  }

private:
  void visit(nn::GroupedDotOp op) {
    Choice &choice =
        choiceOf(op.getIds(), typeOf(op.getMatrices()).getDimSize(0));
    Value input = inOrder(choice, op.getInput());
    Value product = make<nn::GroupedDotOp>(
        sortedType(choice, typeOf(op.getResult())), input, op.getMatrices(),
        choice.sorted, op.getTransposed());
    replace(choice, op, product);
  }

  void visit(nn::GroupedOuterOp op) {
    Choice &choice =
        choiceOf(op.getIds(), typeOf(op.getResult()).getDimSize(0));
    Value left = inOrder(choice, op.getLeft()),
          right = inOrder(choice, op.getRight());
    op.getResult().replaceAllUsesWith(
        make<nn::GroupedOuterOp>(op.getType(), left, right, choice.sorted));
  }

  /// Per-expert sums over rows.
  void visit(nn::ScatterAddOp op) {
    Choice *choice = choiceWith(op.getUpdates());
    if (!choice || op.getDim() != 0 || typeOf(op.getResult()).getRank() != 2 ||
        typeOf(op.getResult()).getDimSize(0) != choice->matrices ||
        kept(op.getIndices()) != kept(choice->ids) ||
        op->getAttr(kWhenAttrName) != choice->when)
      return;
    Value updates = choice->known.lookup(op.getUpdates());
    op.getResult().replaceAllUsesWith(make<nn::ScatterAddOp>(
        op.getType(), choice->sorted, updates, uint64_t(0)));
  }

  /// Runs an elementwise operation on sorted rows if one of its operands is
  /// computed from sorted rows and grouped products read its result.
  void visitElementwise(Operation *op) {
    for (Value operand : op->getOperands())
      if (Choice *choice = choiceWith(operand)) {
        if (op->getAttr(kWhenAttrName) == choice->when &&
            choice->hasRows(op->getResult(0)))
          replace(*choice, op, copyInOrder(*choice, op));
        return;
      }
  }

  //===--------------------------------------------------------------------===//
  // Rows in order
  //===--------------------------------------------------------------------===//

  Choice &choiceOf(Value ids, int64_t matrices) {
    Attribute when = anchor->getAttr(kWhenAttrName);
    for (Choice &choice : choices)
      if (kept(choice.ids) == kept(ids) && choice.matrices == matrices &&
          choice.when == when)
        return choice;
    Choice &choice = choices.emplace_back();
    choice.ids = ids, choice.matrices = matrices, choice.when = when;
    Value wide = ids;
    auto i64 = builder.getI64Type();
    if (!typeOf(ids).getElementType().isInteger(64))
      wide = make<arith::ExtSIOp>(typeOf(ids).clone(i64), ids);
    auto list = RankedTensorType::get({choice.rows()}, i64);
    auto sort = SortRowsOp::create(
        builder, anchor->getLoc(), list,
        RankedTensorType::get(choice.rowSizes(), i64), list, wide, matrices);
    mark(sort);
    choice.order = sort.getOrder();
    choice.places = sort.getPlaces();
    choice.sorted = sort.getSorted();
    return choice;
  }

  /// If the operation that computes `value` works on sorted rows, returns the
  /// choice of experts by which they are sorted; otherwise null.
  Choice *choiceWith(Value value) {
    auto it = computed.find(value);
    return it == computed.end() ? nullptr : it->second;
  }

  RankedTensorType sortedType(const Choice &choice,
                              RankedTensorType type) const {
    SmallVector<int64_t> shape = {choice.rows()};
    llvm::append_range(shape,
                       type.getShape().drop_front(choice.rowSizes().size()));
    return type.clone(shape);
  }

  Value inOrder(Choice &choice, Value value) {
    if (Value known = choice.known.lookup(value))
      return known;
    return choice.known[value] = bringInOrder(choice, value);
  }

  Value bringInOrder(Choice &choice, Value value) {
    RankedTensorType type = sortedType(choice, typeOf(value));
    Operation *def = value.getDefiningOp();
    DenseElementsAttr constant;
    if (matchPattern(value, m_Constant(&constant)) && constant.isSplat())
      return make<arith::ConstantOp>(
          DenseElementsAttr::get(type, constant.getSplatValue<Attribute>()));
    if (auto broadcast = dyn_cast_if_present<nn::BroadcastOp>(def))
      if (Value sorted = ofTokens(choice, broadcast, type))
        return sorted;
    // A lookup by expert ids in a table with one row per expert is repeated
    // with the sorted ids.
    if (auto gather = dyn_cast_if_present<nn::GatherOp>(def);
        gather && gather.getDim() == 0 &&
        kept(gather.getIndices()) == kept(choice.ids) &&
        typeOf(gather.getTable()).getDimSize(0) == choice.matrices)
      return make<nn::GatherOp>(type, gather.getTable(), choice.sorted,
                                uint64_t(0));
    // An elementwise operation that only grouped products read is computed on
    // sorted rows.
    if (def && isElementwise(def) &&
        def->getAttr(kWhenAttrName) == choice.when &&
        llvm::all_of(value.getUsers(), [](Operation *user) {
          return isa<nn::GroupedDotOp, nn::GroupedOuterOp>(user);
        }))
      return copyInOrder(choice, def);
    return gathered(choice, value, type, choice.order);
  }

  /// If a value is the same for all rows of a token (one for each of its top-k
  /// experts), gathers the values of tokens in sorted order; returns null for
  /// other values.
  Value ofTokens(Choice &choice, nn::BroadcastOp op, RankedTensorType type) {
    int64_t rowDims = choice.rowSizes().size();
    ArrayRef<int64_t> dims = op.getDims();
    int64_t tokenDims = 0;
    while (tokenDims < std::min<int64_t>(dims.size(), rowDims) &&
           dims[tokenDims] == tokenDims)
      ++tokenDims;
    ArrayRef<int64_t> rest = dims.drop_front(tokenDims);
    if (!rest.empty() && rest[0] < rowDims)
      return {};
    if (tokenDims == 0 && rest.size() == dims.size()) // the same for all rows
      return spread(op.getInput(), type, rest, rowDims, /*hasRows=*/false);
    int64_t slots = 1;
    for (int64_t size : choice.rowSizes().drop_front(tokenDims))
      slots *= size;
    RankedTensorType source = typeOf(op.getInput());
    SmallVector<int64_t> shape = {choice.rows()};
    llvm::append_range(shape, source.getShape().drop_front(tokenDims));
    Value rows = gathered(choice, op.getInput(), source.clone(shape),
                          tokensOf(choice, slots));
    return spread(rows, type, rest, rowDims, /*hasRows=*/true);
  }

  /// Emits the counterpart of a broadcast for sorted rows: broadcasts `rows` to
  /// `type`. If `hasRows`, dimension 0 of `rows` is the sorted rows. For each
  /// other dimension of `rows`, `rest` has the dimension of the unsorted result
  /// to which it goes. The first `rowDims` dimensions of the unsorted result
  /// are the rows.
  Value spread(Value rows, RankedTensorType type, ArrayRef<int64_t> rest,
               int64_t rowDims, bool hasRows) {
    if (rows.getType() == type)
      return rows;
    SmallVector<int64_t> dims;
    if (hasRows)
      dims.push_back(0);
    for (int64_t dim : rest)
      dims.push_back(dim - rowDims + 1);
    return make<nn::BroadcastOp>(type, rows, dims);
  }

  Value tokensOf(Choice &choice, int64_t slots) {
    if (slots == 1)
      return choice.order;
    Value &tokens = choice.tokens[slots];
    if (!tokens) {
      auto type = typeOf(choice.order);
      Value count = make<arith::ConstantOp>(
          DenseElementsAttr::get(type, builder.getI64IntegerAttr(slots)));
      tokens = make<arith::DivUIOp>(choice.order, count);
    }
    return tokens;
  }

  /// Gathers the rows with the numbers `numbers` from a value of shape
  /// [r..., ...], or from a value with one row per token.
  Value gathered(Choice &choice, Value value, RankedTensorType type,
                 Value numbers) {
    ArrayRef<int64_t> row = type.getShape().drop_front();
    SmallVector<int64_t> flat = {typeOf(value).getNumElements() /
                                 std::max<int64_t>(1, llvm::product_of(row))};
    llvm::append_range(flat, row);
    auto listed = type.clone(flat);
    if (value.getType() != listed)
      value = make<nn::ReshapeOp>(listed, value);
    return make<nn::GatherOp>(type, value, numbers, uint64_t(0));
  }

  Value copyInOrder(Choice &choice, Operation *op) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(inOrder(choice, operand));
    Operation *copy = builder.clone(*op);
    copy->setOperands(operands);
    copy->getResult(0).setType(sortedType(choice, typeOf(op->getResult(0))));
    return copy->getResult(0);
  }

  /// Replaces `op` by `sorted`, which has the same rows in sorted order.
  /// Readers of the unsorted rows gather each row from its sorted position.
  void replace(Choice &choice, Operation *op, Value sorted) {
    Value result = op->getResult(0);
    Value back = make<nn::GatherOp>(result.getType(), sorted, choice.places,
                                    uint64_t(0));
    result.replaceAllUsesWith(back);
    choice.known[back] = sorted;
    computed[back] = &choice;
  }

  //===--------------------------------------------------------------------===//
  // Operations
  //===--------------------------------------------------------------------===//

  template <typename Op, typename... Args> Value make(Args &&...args) {
    Op op = Op::create(builder, anchor->getLoc(), std::forward<Args>(args)...);
    mark(op);
    return op->getResult(0);
  }

  /// Copies the discardable attributes of the replaced operation to `op`, which
  /// replaces it. Constants and views do not get the condition (kWhenAttrName)
  /// under which the replaced operation runs, since operations under other
  /// conditions may read them too.
  void mark(Operation *op) {
    auto lowering = dyn_cast<LoweringInterface>(op);
    bool shared = op->hasTrait<OpTrait::ConstantLike>() ||
                  (lowering && lowering.getKernelClass() == KernelClass::View);
    bool isProduct = isa<nn::GroupedDotOp, nn::GroupedOuterOp>(op);
    for (NamedAttribute attribute : anchor->getDiscardableAttrs())
      if ((attribute.getName() != kWhenAttrName || !shared) &&
          (attribute.getName() != kRowShareAttrName || isProduct))
        op->setAttr(attribute.getName(), attribute.getValue());
  }

  Block &block;
  OpBuilder builder;
  Operation *anchor = nullptr;
  std::deque<Choice> choices;
  llvm::DenseMap<Value, Choice *> computed;
  /// The elementwise operations on rows whose results grouped products read.
  llvm::SmallPtrSet<Operation *, 16> forProducts;
};

struct DistSortRowsPass : cleave::impl::DistSortRowsPassBase<DistSortRowsPass> {
  using Base::Base;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      SmallVector<Block *> blocks;
      func.walk([&](Operation *op) {
        if (isa<nn::GroupedDotOp, nn::GroupedOuterOp>(op) &&
            !llvm::is_contained(blocks, op->getBlock()))
          blocks.push_back(op->getBlock());
      });
      for (Block *block : blocks)
        Sorter(*block).run();
      partition::relaxBarriers(func);
      for (Block *block : blocks)
        for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*block)))
          if (isOpTriviallyDead(&op))
            op.erase();
    }
  }
};

} // namespace
