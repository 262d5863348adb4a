// Lowers grouped products to library calls on strided views. A grouped product
// multiplies each row by one of several matrices, which the id of the row
// selects. A row that is broadcast (the token of several token-expert pairs) is
// not copied. Also lowers the operation that computes the position of each
// token-expert pair among the pairs with the same expert.

#include "SelectLibrary.h"
#include "Views.h"
#include "cleave/Interfaces/Condition.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;

static SmallVector<int64_t> readView(Value &value) {
  StridedView view = traceView(value, /*throughBroadcasts=*/true);
  value = view.base;
  return viewEntries(view);
}

/// Replaces `op` by a library call. `left` and `other` are the operands of
/// `op`, and `ids` has the number of a matrix for each row of `left`.
/// `otherView` and `resultView` describe the matrices, [e, k, n], and the
/// result.
static LogicalResult select(Operation *op, Value left, Value other, Value ids,
                            bool outer, ArrayRef<int64_t> otherView,
                            ArrayRef<int64_t> resultView, int64_t e, int64_t k,
                            int64_t n) {
  SmallVector<int64_t> rows(typeOf(ids).getShape());
  if (llvm::is_contained(rows, 0) || e == 0 || k == 0 || n == 0)
    return op->emitOpError("has a dimension of size 0");
  OpBuilder b(op);
  if (RankedTensorType type = typeOf(ids); !type.getElementType().isInteger(64))
    ids = arith::ExtSIOp::create(b, op->getLoc(), type.clone(b.getI64Type()),
                                 ids);
  SmallVector<int64_t> leftView = readView(left), idsView = readView(ids);
  auto command = rt::GroupedGemmOp::create(
      b, op->getLoc(), op->getResultTypes(), left, other, ids, leftView,
      otherView, idsView, resultView, rows, e, k, n, outer);
  if (Attribute when = op->getAttr(kWhenAttrName))
    command->setAttr(kWhenAttrName, when);
  op->replaceAllUsesWith(command->getResults());
  op->erase();
  return success();
}

LogicalResult cleave::selectGroupedDot(nn::GroupedDotOp op) {
  Value matrices = op.getMatrices();
  ArrayRef<int64_t> sizes = typeOf(matrices).getShape();
  SmallVector<int64_t> view = readView(matrices);
  int64_t k = sizes[1], n = sizes[2];
  if (op.getTransposed()) {
    std::swap(k, n);
    std::swap(view[2], view[3]);
  }
  return select(op, op.getInput(), matrices, op.getIds(), /*outer=*/false, view,
                viewEntries(denseView(op.getResult())), sizes[0], k, n);
}

LogicalResult cleave::selectGroupedOuter(nn::GroupedOuterOp op) {
  Value right = op.getRight();
  SmallVector<int64_t> view = readView(right);
  ArrayRef<int64_t> sizes = typeOf(op.getResult()).getShape();
  return select(op, op.getLeft(), right, op.getIds(), /*outer=*/true, view,
                viewEntries(denseView(op.getResult())), sizes[0], sizes[1],
                sizes[2]);
}

/// All integers of the command are i64.
LogicalResult cleave::selectPositionInExpert(nn::PositionInExpertOp op) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  auto wide = [&](Value value) -> Value {
    if (!value || typeOf(value).getElementType().isInteger(64))
      return value;
    return arith::ExtSIOp::create(b, loc, typeOf(value).clone(b.getI64Type()),
                                  value);
  };
  RankedTensorType type = op.getType();
  int64_t scratch = 2 * int64_t(op.getExperts()) + type.getDimSize(1);
  auto command = rt::PositionInExpertOp::create(
      b, loc, type.clone(b.getI64Type()),
      RankedTensorType::get({scratch}, b.getI64Type()), wide(op.getIds()),
      wide(op.getPositions()), wide(op.getLoads()), wide(op.getSamples()),
      op.getExperts());
  if (Attribute when = op->getAttr(kWhenAttrName))
    command->setAttr(kWhenAttrName, when);
  Value result = command.getResult();
  if (type != result.getType())
    result = arith::TruncIOp::create(b, loc, type, result);
  op.replaceAllUsesWith(result);
  op.erase();
  return success();
}
