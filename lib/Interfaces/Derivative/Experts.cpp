// Derivatives of grouped products (grouped GEMM), which multiply each row with
// the matrix that the row's id selects. The derivatives are grouped products,
// too: y = x W[id] gives dx = dy W[id]^T, and dW[m] is the sum of x^T dy over
// the rows with id m.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::derivative;

static Value dot(VJPContext &c, Value rows, Value matrices, Value ids,
                 bool transposed) {
  auto sizes = cast<RankedTensorType>(matrices.getType()).getShape();
  auto type = cast<RankedTensorType>(rows.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.back() = sizes[transposed ? 1 : 2];
  return nn::GroupedDotOp::create(c.builder(), c.loc(), type.clone(shape), rows,
                                  matrices, ids, transposed);
}

static LogicalResult groupedDot(nn::GroupedDotOp op, VJPContext &c) {
  Value cotangent = c.cotangent(0), ids = c.residual(op.getIds());
  if (c.wanted(0))
    c.set(0, dot(c, cotangent, c.residual(op.getMatrices()), ids,
                 !op.getTransposed()));
  if (c.wanted(1)) {
    Value left = c.residual(op.getInput()), right = cotangent;
    if (op.getTransposed())
      std::swap(left, right);
    c.set(1, nn::GroupedOuterOp::create(c.builder(), c.loc(),
                                        op.getMatrices().getType(), left, right,
                                        ids));
  }
  return success();
}

static LogicalResult groupedOuter(nn::GroupedOuterOp op, VJPContext &c) {
  Value cotangent = c.cotangent(0), ids = c.residual(op.getIds());
  if (c.wanted(0))
    c.set(0, dot(c, c.residual(op.getRight()), cotangent, ids,
                 /*transposed=*/true));
  if (c.wanted(1))
    c.set(1, dot(c, c.residual(op.getLeft()), cotangent, ids,
                 /*transposed=*/false));
  return success();
}

void cleave::derivative::attachExperts(MLIRContext *context) {
  attach<nn::GroupedDotOp, groupedDot>(context);
  attach<nn::GroupedOuterOp, groupedOuter>(context);
}
