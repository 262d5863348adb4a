// Derivatives of convolution, pooling and top-k.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::derivative;

namespace {

LogicalResult conv(nn::ConvOp op, VJPContext &c) {
  Value cotangent = c.cotangent(0);
  if (!cotangent)
    return success();
  if (c.wanted(0))
    c.set(0, nn::ConvInputGradOp::create(
                 c.builder(), c.loc(), op.getInput().getType(), cotangent,
                 c.residual(op.getFilter()), op.getStrides(), op.getDilations(),
                 op.getLow(), op.getHigh(), op.getGroups()));
  if (c.wanted(1))
    c.set(1, nn::ConvFilterGradOp::create(
                 c.builder(), c.loc(), op.getFilter().getType(), cotangent,
                 c.residual(op.getInput()), op.getStrides(), op.getDilations(),
                 op.getLow(), op.getHigh(), op.getGroups()));
  return success();
}

LogicalResult pool(nn::PoolOp op, VJPContext &c) {
  Value cotangent = c.cotangent(0);
  if (cotangent && c.wanted(0))
    c.set(0,
          nn::PoolGradOp::create(
              c.builder(), c.loc(), op.getInput().getType(), op.getKind(),
              cotangent, c.residual(op.getInput()), op.getWindow(),
              op.getStrides(), op.getDilations(), op.getLow(), op.getHigh()));
  return success();
}

/// The derivative of top-k with respect to its input: each selected value's
/// cotangent is added at the position from which the value was selected. This
/// is computed as a sum of one-hot rows.
LogicalResult topK(nn::TopKOp op, VJPContext &c) {
  Value cotangent = c.cotangent(0);
  if (!cotangent || !c.wanted(0))
    return success();
  OpBuilder &b = c.builder();
  auto input = cast<RankedTensorType>(op.getInput().getType());
  auto values = cast<RankedTensorType>(op.getValues().getType());
  int64_t rank = input.getRank();
  SmallVector<int64_t> shape(values.getShape()), dims;
  shape.push_back(input.getShape().back());
  for (int64_t dim = 0; dim < rank; ++dim)
    dims.push_back(dim);
  auto wide = input.clone(shape);
  auto indices = cast<RankedTensorType>(op.getIndices().getType());
  auto wideIndex = wide.clone(indices.getElementType());
  Value place = nn::BroadcastOp::create(b, c.loc(), wideIndex,
                                        c.residual(op.getIndices()), dims);
  Value here =
      arith::CmpIOp::create(b, c.loc(), arith::CmpIPredicate::eq, place,
                            nn::IotaOp::create(b, c.loc(), wideIndex, rank));
  Value spread = nn::BroadcastOp::create(b, c.loc(), wide, cotangent, dims);
  Value placed = arith::SelectOp::create(
      b, c.loc(), here, spread, nn::createSplat(b, c.loc(), wide, 0.0));
  c.set(0, nn::ReduceOp::create(b, c.loc(), nn::Combiner::Sum, placed,
                                b.getDenseI64ArrayAttr({rank - 1})));
  return success();
}

} // namespace

void cleave::derivative::attachConvolution(MLIRContext *context) {
  attach<nn::ConvOp, conv>(context);
  attach<nn::PoolOp, pool>(context);
  attach<nn::TopKOp, topK>(context);
}
