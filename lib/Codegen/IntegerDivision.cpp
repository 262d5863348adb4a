#include "IntegerDivision.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace cleave;

static bool isUnsigned(Operation *op) {
  return isa<arith::DivUIOp, arith::CeilDivUIOp, arith::RemUIOp>(op);
}
static bool isRemainder(Operation *op) {
  return isa<arith::RemSIOp, arith::RemUIOp>(op);
}

bool codegen::dividesIntegers(Operation *op) {
  return (isUnsigned(op) || isRemainder(op) ||
          isa<arith::DivSIOp, arith::CeilDivSIOp, arith::FloorDivSIOp>(op)) &&
         isa<IntegerType>(getElementTypeOrSelf(op->getResult(0).getType()));
}

Value codegen::createDivision(ImplicitLocOpBuilder &b, Operation *op,
                              Value dividend, Value divisor) {
  Location loc = b.getLoc();
  Type type = divisor.getType();
  auto constant = [&](int64_t value) -> Value {
    APInt bits(getElementTypeOrSelf(type).getIntOrFloatBitWidth(), value,
               /*isSigned=*/true, /*implicitTrunc=*/true);
    Attribute attr = IntegerAttr::get(getElementTypeOrSelf(type), bits);
    if (auto vector = dyn_cast<VectorType>(type))
      attr = DenseElementsAttr::get(vector, bits);
    return arith::ConstantOp::create(b, loc, cast<TypedAttr>(attr));
  };
  auto equals = [&](int64_t value) -> Value {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, divisor,
                                 constant(value));
  };
  Value zero = constant(0), one = constant(1), isZero = equals(0), isMinusOne;
  Value safe = arith::SelectOp::create(b, loc, isZero, one, divisor);
  if (!isUnsigned(op)) {
    isMinusOne = equals(-1);
    safe = arith::SelectOp::create(b, loc, isMinusOne, one, safe);
  }
  OperationState state(loc, op->getName(), {dividend, safe}, {type},
                       op->getAttrDictionary().getValue());
  Value result = b.create(state)->getResult(0);
  if (isRemainder(op)) // the remainder by one is zero
    return result;
  if (isMinusOne)
    result = arith::SelectOp::create(
        b, loc, isMinusOne, arith::SubIOp::create(b, loc, zero, dividend),
        result);
  return arith::SelectOp::create(b, loc, isZero, zero, result);
}
