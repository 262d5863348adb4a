// Queries and builders that the patterns in this folder share.

#include "Dataflow.h"

#include "mlir/IR/Matchers.h"

#include <cmath>

using namespace mlir;

namespace cleave::nn {

bool isElementwise(Operation *op) {
  if (op->getNumResults() != 1 || op->getNumOperands() == 0 ||
      !(op->hasTrait<OpTrait::Elementwise>() || isa<GeluOp, SigmoidOp>(op)))
    return false;
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return type && llvm::all_of(op->getOperands(), [&](Value operand) {
           auto other = dyn_cast<RankedTensorType>(operand.getType());
           return other && other.getShape() == type.getShape();
         });
}

Value cloneElementwise(OpBuilder &builder, Operation *op, ValueRange operands,
                       ArrayRef<int64_t> shape) {
  OperationState state(op->getLoc(), op->getName());
  state.addOperands(operands);
  state.addAttributes(op->getAttrs());
  state.addTypes(typeOf(op->getResult(0)).clone(shape));
  return builder.create(state)->getResult(0);
}

/// Returns the elements of the splat constant that `value` is or from which it
/// is computed by data movement; null for other values.
static DenseElementsAttr splatElementsOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<BroadcastOp, ReshapeOp, TransposeOp, SliceOp>(op))
      break;
    value = op->getOperand(0);
  }
  DenseElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)) || !elements.isSplat())
    return {};
  return elements;
}

Value reshapedSplat(OpBuilder &builder, Location loc, Value value,
                    ArrayRef<int64_t> shape) {
  DenseElementsAttr elements = splatElementsOf(value);
  if (!elements)
    return {};
  return arith::ConstantOp::create(
      builder, loc,
      DenseElementsAttr::get(typeOf(value).clone(shape),
                             elements.getSplatValue<Attribute>()));
}

std::optional<double> splatOf(Value value) {
  DenseElementsAttr elements = splatElementsOf(value);
  if (!elements)
    return std::nullopt;
  if (isa<FloatType>(elements.getElementType())) {
    APFloat number = elements.getSplatValue<APFloat>();
    bool losesInfo;
    number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven,
                   &losesInfo);
    return number.convertToDouble();
  }
  APInt number = elements.getSplatValue<APInt>();
  return number.roundToDouble(/*isSigned=*/number.getBitWidth() != 1);
}

bool isSplat(Value value, double number, double tolerance) {
  std::optional<double> splat = splatOf(value);
  return splat && std::abs(*splat - number) <= tolerance * std::abs(number);
}

Dims allDims(int64_t rank) {
  return llvm::to_vector_of<int64_t, 6>(llvm::seq(rank));
}

Dims inverse(ArrayRef<int64_t> permutation) {
  Dims result(permutation.size());
  for (auto [index, dim] : llvm::enumerate(permutation))
    result[dim] = index;
  return result;
}

bool isIdentity(ArrayRef<int64_t> permutation) {
  return llvm::equal(permutation, llvm::seq<int64_t>(permutation.size()));
}

Value reshapeTo(OpBuilder &builder, Location loc, Value value,
                ArrayRef<int64_t> shape) {
  if (shapeOf(value) == shape)
    return value;
  return ReshapeOp::create(builder, loc, typeOf(value).clone(shape), value);
}

Value transposeTo(OpBuilder &builder, Location loc, Value value,
                  ArrayRef<int64_t> permutation) {
  if (isIdentity(permutation))
    return value;
  return TransposeOp::create(builder, loc, value, permutation);
}

Value broadcastTo(OpBuilder &builder, Location loc, Value value,
                  ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) {
  if (shapeOf(value) == shape)
    return value;
  return BroadcastOp::create(builder, loc, typeOf(value).clone(shape), value,
                             dims);
}

Narrow narrow(Value value) {
  if (auto op = value.getDefiningOp<BroadcastOp>())
    return {op.getInput(), Dims(op.getDims())};
  return {value, allDims(rankOf(value))};
}

} // namespace cleave::nn
