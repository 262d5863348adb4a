// Derivatives of data movement: the transpose of each operation.

#include "Model.h"

#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::derivative;

static LogicalResult broadcast(nn::BroadcastOp op, VJPContext &c) {
  SmallVector<int64_t> repeated;
  for (int64_t dim = 0; dim < op.getType().getRank(); ++dim)
    if (!llvm::is_contained(op.getDims(), dim))
      repeated.push_back(dim);
  c.set(0, c.builder().createOrFold<nn::ReduceOp>(c.loc(), nn::Combiner::Sum,
                                                  c.cotangent(0), repeated));
  return success();
}

static LogicalResult reshape(nn::ReshapeOp op, VJPContext &c) {
  c.set(0, nn::ReshapeOp::create(c.builder(), c.loc(), typeOf(op.getInput()),
                                 c.cotangent(0)));
  return success();
}

static LogicalResult transpose(nn::TransposeOp op, VJPContext &c) {
  SmallVector<int64_t> inverse(op.getPermutation().size());
  for (auto [index, dim] : llvm::enumerate(op.getPermutation()))
    inverse[dim] = index;
  c.set(0,
        nn::TransposeOp::create(c.builder(), c.loc(), c.cotangent(0), inverse));
  return success();
}

/// Slices `size` elements of dimension `dim` from `offset` on.
static Value sliceDim(VJPContext &c, Value value, int64_t dim, int64_t offset,
                      int64_t size, int64_t stride = 1) {
  RankedTensorType type = typeOf(value);
  SmallVector<int64_t> offsets(type.getRank(), 0), sizes(type.getShape()),
      strides(type.getRank(), 1);
  offsets[dim] = offset;
  sizes[dim] = size;
  strides[dim] = stride;
  return c.builder().createOrFold<nn::SliceOp>(c.loc(), value, offsets, sizes,
                                               strides);
}

static Value pad(VJPContext &c, Value value, ArrayRef<int64_t> low,
                 ArrayRef<int64_t> high) {
  RankedTensorType type = typeOf(value);
  SmallVector<int64_t> shape(type.getShape());
  for (size_t dim = 0; dim < shape.size(); ++dim)
    shape[dim] += low[dim] + high[dim];
  if (type.getShape() == ArrayRef<int64_t>(shape))
    return value;
  return nn::PadOp::create(c.builder(), c.loc(), type.clone(shape), value, low,
                           high, llvm::APFloat(0.0));
}

/// Inserts `stride - 1` zeros between adjacent elements along `dim`: [n] ->
/// [(n-1)*stride + 1].
static Value dilate(VJPContext &c, Value value, int64_t dim, int64_t stride) {
  RankedTensorType type = typeOf(value);
  SmallVector<int64_t> split(type.getShape());
  split.insert(split.begin() + dim + 1, 1);
  Value wide =
      nn::ReshapeOp::create(c.builder(), c.loc(), type.clone(split), value);
  SmallVector<int64_t> low(split.size(), 0), high(split.size(), 0);
  high[dim + 1] = stride - 1;
  wide = pad(c, wide, low, high);
  SmallVector<int64_t> merged(type.getShape());
  merged[dim] *= stride;
  wide = nn::ReshapeOp::create(c.builder(), c.loc(), type.clone(merged), wide);
  return sliceDim(c, wide, dim, 0, merged[dim] - stride + 1);
}

static LogicalResult slice(nn::SliceOp op, VJPContext &c) {
  Value value = c.cotangent(0);
  ArrayRef<int64_t> input = typeOf(op.getInput()).getShape();
  SmallVector<int64_t> low, high;
  for (auto [dim, inputSize] : llvm::enumerate(input)) {
    int64_t size = op.getSizes()[dim], stride = op.getStrides()[dim];
    int64_t first = op.getOffsets()[dim];
    if (size == 0) {
      // The slice is empty: the cotangent is zero.
      c.set(0, nn::createSplat(c.builder(), c.loc(), typeOf(op.getInput()), 0));
      return success();
    }
    if (stride < 0) {
      value = sliceDim(c, value, dim, size - 1, size, -1);
      first += (size - 1) * stride;
      stride = -stride;
    }
    if (stride > 1)
      value = dilate(c, value, dim, stride);
    int64_t covered = (size - 1) * stride + 1;
    low.push_back(first);
    high.push_back(inputSize - first - covered);
  }
  c.set(0, pad(c, value, low, high));
  return success();
}

static LogicalResult concat(nn::ConcatOp op, VJPContext &c) {
  int64_t dim = op.getDim(), offset = 0;
  for (auto [index, input] : llvm::enumerate(op.getInputs())) {
    int64_t size = typeOf(input).getDimSize(dim);
    if (c.wanted(index))
      c.set(index, sliceDim(c, c.cotangent(0), dim, offset, size));
    offset += size;
  }
  return success();
}

static LogicalResult padded(nn::PadOp op, VJPContext &c) {
  RankedTensorType type = typeOf(op.getInput());
  SmallVector<int64_t> ones(type.getRank(), 1);
  c.set(0, c.builder().createOrFold<nn::SliceOp>(
               c.loc(), c.cotangent(0), op.getLow(), type.getShape(), ones));
  return success();
}

/// Returns the indices at which the derivative of a gather adds cotangents. The
/// index of a row without gradient (nn.frozen_row) is replaced by -1, which is
/// outside of every table, also of a rank's tile.
static Value updatedRows(nn::GatherOp op, VJPContext &c) {
  Value indices = c.residual(op.getIndices());
  auto frozen = op->getAttrOfType<IntegerAttr>("nn.frozen_row");
  if (!frozen)
    return indices;
  OpBuilder &b = c.builder();
  auto splat = [&](int64_t value) {
    return nn::createSplat(b, c.loc(), typeOf(indices), double(value));
  };
  Value isFrozen = arith::CmpIOp::create(b, c.loc(), arith::CmpIPredicate::eq,
                                         indices, splat(frozen.getInt()));
  return arith::SelectOp::create(b, c.loc(), isFrozen, splat(-1), indices);
}

static LogicalResult gather(nn::GatherOp op, VJPContext &c) {
  c.set(0, nn::ScatterAddOp::create(c.builder(), c.loc(), typeOf(op.getTable()),
                                    updatedRows(op, c), c.cotangent(0),
                                    op.getDim()));
  return success();
}

static LogicalResult scatterAdd(nn::ScatterAddOp op, VJPContext &c) {
  c.set(1, nn::GatherOp::create(c.builder(), c.loc(), c.cotangent(0),
                                c.residual(op.getIndices()), op.getDim()));
  return success();
}

void cleave::derivative::attachShape(MLIRContext *context) {
  attach<nn::BroadcastOp, broadcast>(context);
  attach<nn::ReshapeOp, reshape>(context);
  attach<nn::TransposeOp, transpose>(context);
  attach<nn::SliceOp, slice>(context);
  attach<nn::ConcatOp, concat>(context);
  attach<nn::PadOp, padded>(context);
  attach<nn::GatherOp, gather>(context);
  attach<nn::ScatterAddOp, scatterAdd>(context);
}
