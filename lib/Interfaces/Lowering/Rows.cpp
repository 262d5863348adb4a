// Row operations: norms, softmax, cross-entropy and their gradients, rotary.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::lowering;

namespace {

/// Slices [offset, offset + size) of the last dimension, with `stride`.
Value lastPart(TensorExpr &e, Value x, int64_t offset, int64_t size,
               int64_t stride = 1) {
  RankedTensorType type = e.typeOf(x);
  SmallVector<int64_t> offsets(type.getRank(), 0), sizes(type.getShape()),
      strides(type.getRank(), 1);
  offsets.back() = offset;
  sizes.back() = size;
  strides.back() = stride;
  auto array = [&](ArrayRef<int64_t> v) {
    return e.builder.getDenseI64ArrayAttr(v);
  };
  return e.make<nn::SliceOp>(x, array(offsets), array(sizes), array(strides));
}

Decomposed rotary(nn::RotaryOp op, TensorExpr &e) {
  Value x = op.getInput();
  RankedTensorType type = e.typeOf(x);
  int64_t rank = type.getRank(), half = type.getShape().back() / 2;
  bool interleaved = op.getInterleaved();
  Value a = lastPart(e, x, 0, half, interleaved ? 2 : 1);
  Value b = lastPart(e, x, interleaved ? 1 : half, half, interleaved ? 2 : 1);
  // cos and sin are [s, d/2] or [b, s, d/2].
  RankedTensorType halfType = e.typeOf(a);
  SmallVector<int64_t> dims{1, rank - 1};
  if (e.typeOf(op.getCos()).getRank() == 3)
    dims.insert(dims.begin(), 0);
  Value cos = e.broadcast(op.getCos(), halfType, dims);
  Value sin = e.broadcast(op.getSin(), halfType, dims);
  if (op.getInverse())
    sin = e.neg(sin);
  Value first = e.sub(e.mul(a, cos), e.mul(b, sin));
  Value second = e.add(e.mul(b, cos), e.mul(a, sin));
  if (!interleaved)
    return SmallVector<Value>{
        e.make<nn::ConcatOp>(ValueRange{first, second}, rank - 1)};
  // Interleaves the halves: [.., d/2, 2] -> [.., d].
  SmallVector<int64_t> single(halfType.getShape());
  single.push_back(1);
  first = e.make<nn::ReshapeOp>(halfType.clone(single), first);
  second = e.make<nn::ReshapeOp>(halfType.clone(single), second);
  Value pairs = e.make<nn::ConcatOp>(ValueRange{first, second}, rank);
  return SmallVector<Value>{e.make<nn::ReshapeOp>(type, pairs)};
}

} // namespace

void cleave::lowering::attachRows(MLIRContext *context) {
  constexpr KernelClass row = KernelClass::Row;
  attach<nn::SoftmaxOp, row, formula::softmax>(context);
  attach<nn::LayerNormOp, row, formula::layerNorm, keeps<1, 2>>(context);
  attach<nn::LayerNormGradOp, row, formula::layerNormGrad>(context);
  attach<nn::RmsNormOp, row, formula::rmsNorm, keeps<1>>(context);
  attach<nn::RmsNormGradOp, row, formula::rmsNormGrad>(context);
  attach<nn::CrossEntropyOp, row, formula::crossEntropy, keeps<0, 1>>(context);
  attach<nn::CrossEntropyGradOp, row, formula::crossEntropyGrad>(context);
  attach<nn::RotaryOp, row, rotary>(context);
}
