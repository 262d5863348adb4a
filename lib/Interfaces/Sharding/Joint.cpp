// Joint reductions.

#include "Joint.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

Value JointExpr::splat(RankedTensorType type, double value) {
  auto element = dyn_cast<FloatType>(type.getElementType());
  if (!element || element.isF64())
    return TensorExpr::splat(type, value);
  APFloat number(value);
  bool losesInfo = false;
  number.convert(element.getFloatSemantics(), APFloat::rmNearestTiesToEven,
                 &losesInfo);
  if (!losesInfo)
    return TensorExpr::splat(type, value);
  auto wide = RankedTensorType::get({}, builder.getF64Type());
  Value rounded = make<arith::TruncFOp>(RankedTensorType::get({}, element),
                                        TensorExpr::splat(wide, value));
  return everywhere(rounded, type);
}

Value JointExpr::reduce(nn::Combiner combiner, Value value, int64_t dim) {
  FactorCombiner masks = factorCombiner(combiner);
  TensorFactors dims(typeOf(value).getRank());
  dims[dim] = {factor};
  value = plan.masked(value, dims, factor, masks);
  return plan.allReduce(TensorExpr::reduce(combiner, value, dim),
                        reduceKindOf(masks), factor, purpose);
}
