// Builds expressions over whole tensors.

#include "cleave/Interfaces/TensorExpr.h"

using namespace mlir;
using namespace cleave;

Value TensorExpr::broadcast(Value value, RankedTensorType type,
                            ArrayRef<int64_t> dims) {
  RankedTensorType wanted = type.clone(typeOf(value).getElementType());
  if (value.getType() == wanted)
    return value;
  return make<nn::BroadcastOp>(wanted, value,
                               builder.getDenseI64ArrayAttr(dims));
}

Value TensorExpr::alongRows(Value statistic, RankedTensorType type) {
  return broadcast(statistic, type,
                   llvm::to_vector(llvm::seq<int64_t>(type.getRank() - 1)));
}

Value TensorExpr::alongFeatures(Value feature, RankedTensorType type) {
  return broadcast(feature, type, {type.getRank() - 1});
}

Value TensorExpr::reduce(nn::Combiner combiner, Value value, int64_t dim) {
  return make<nn::ReduceOp>(combiner, value,
                            builder.getDenseI64ArrayAttr({dim}));
}

Value TensorExpr::index(RankedTensorType type, int64_t dim) {
  return make<nn::IotaOp>(type, dim);
}
