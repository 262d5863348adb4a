// Movement, contractions and indexing.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::lowering;

/// The first index that holds the maximum: the smallest of the indices where
/// the element equals it.
static Decomposed argMax(nn::ArgMaxOp op, TensorExpr &e) {
  Value input = op.getInput();
  RankedTensorType type = e.typeOf(input);
  int64_t dim = op.getDim();
  auto dims = e.builder.getDenseI64ArrayAttr({dim});
  Value best = e.make<nn::ReduceOp>(nn::Combiner::Max, input, dims);
  SmallVector<int64_t> kept;
  for (int64_t i = 0; i < type.getRank(); ++i)
    if (i != dim)
      kept.push_back(i);
  best = e.broadcast(best, type, kept);
  // "Not below" instead of "equal": a NaN, which is its row's maximum, is
  // found.
  Value found;
  if (isa<FloatType>(type.getElementType())) {
    Value below = e.make<arith::CmpFOp>(arith::CmpFPredicate::OLT, input, best);
    Value yes = e.splatInt(type.clone(e.builder.getI1Type()), 1);
    found = e.make<arith::XOrIOp>(below, yes);
  } else {
    found = e.compare(arith::CmpIPredicate::eq, input, best);
  }
  RankedTensorType indexType = type.clone(op.getType().getElementType());
  Value index = e.make<nn::IotaOp>(indexType, dim);
  Value none = e.splatInt(indexType, type.getDimSize(dim));
  Value result = e.make<nn::ReduceOp>(nn::Combiner::Min,
                                      e.select(found, index, none), dims);
  return SmallVector<Value>{result};
}

void cleave::lowering::attachShape(MLIRContext *context) {
  attachPlain<KernelClass::View, nn::BroadcastOp, nn::ReshapeOp,
              nn::TransposeOp, nn::SliceOp, nn::ConcatOp, nn::PadOp,
              nn::IotaOp>(context);
  attachPlain<KernelClass::Identity, nn::SaveOp, nn::RematerializeOp>(context);
  attachPlain<KernelClass::Library, nn::EinsumOp, nn::AttentionOp,
              nn::AttentionGradOp>(context);
  attachPlain<KernelClass::Reduction, nn::ReduceOp>(context);
  attachPlain<KernelClass::Indexing, nn::GatherOp, nn::ScatterAddOp>(context);
  attach<nn::ArgMaxOp, KernelClass::Indexing, argMax>(context);
}
