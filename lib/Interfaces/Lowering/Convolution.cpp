// Lowering of convolution, pooling and top-k. The pass nn-select-library runs
// before fusion and replaces convolutions and pools by slices, pads and
// products.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::lowering;

namespace {

/// Decomposes top-k: k times, selects the largest of the elements that remain.
/// Of equal elements, the first one is selected.
Decomposed topK(nn::TopKOp op, TensorExpr &e) {
  using nn::Combiner;
  Value input = op.getInput();
  RankedTensorType type = e.typeOf(input);
  RankedTensorType indexType =
      type.clone(e.typeOf(op.getIndices()).getElementType());
  int64_t last = type.getRank() - 1;
  Value index = e.index(indexType, last);
  Value none = e.splatInt(indexType, type.getDimSize(last));
  Value lowest = e.splat(input, -std::numeric_limits<double>::infinity());
  Value taken = e.splatInt(type.clone(e.builder.getI1Type()), 0);
  Value yes = e.splatInt(type.clone(e.builder.getI1Type()), 1);
  SmallVector<Value> values, indices;
  for (int64_t i = 0; i < int64_t(op.getK()); ++i) {
    Value best = e.reduceRows(Combiner::Max, e.select(taken, lowest, input));
    Value free = e.make<arith::XOrIOp>(taken, yes);
    Value found = e.make<arith::AndIOp>(
        e.isLargest(input, e.alongRows(best, type)), free);
    Value first = e.reduceRows(Combiner::Min, e.select(found, index, none));
    Value here = e.compare(arith::CmpIPredicate::eq, index,
                           e.alongRows(first, indexType));
    taken = e.make<arith::OrIOp>(taken, here);
    for (auto [list, value] :
         {std::pair(&values, best), std::pair(&indices, first)}) {
      SmallVector<int64_t> shape(e.typeOf(value).getShape());
      shape.push_back(1);
      list->push_back(
          e.make<nn::ReshapeOp>(e.typeOf(value).clone(shape), value));
    }
  }
  auto join = [&](ValueRange parts) -> Value {
    return parts.size() == 1 ? parts[0] : e.make<nn::ConcatOp>(parts, last);
  };
  return SmallVector<Value>{join(values), join(indices)};
}

} // namespace

void cleave::lowering::attachConvolution(MLIRContext *context) {
  attachPlain<KernelClass::Library, nn::ConvOp, nn::ConvInputGradOp,
              nn::ConvFilterGradOp, nn::PoolOp, nn::PoolGradOp>(context);
  attach<nn::TopKOp, KernelClass::Row, topK, choosesBy<0>>(context);
}
