// Registration of the nn dialect.

#include "cleave/Dialect/NN/IR/Ports.h"

#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave::nn;

#include "cleave/Dialect/NN/IR/NNDialect.cpp.inc"
#include "cleave/Dialect/NN/IR/NNEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "cleave/Dialect/NN/IR/NNAttrs.cpp.inc"

#define GET_OP_CLASSES
#include "cleave/Dialect/NN/IR/NNOps.cpp.inc"

void NNDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "cleave/Dialect/NN/IR/NNAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "cleave/Dialect/NN/IR/NNOps.cpp.inc"
      >();
}

Operation *NNDialect::materializeConstant(OpBuilder &builder, Attribute value,
                                          Type type, Location loc) {
  return arith::ConstantOp::materialize(builder, value, type, loc);
}

Value cleave::nn::createSplat(OpBuilder &builder, Location loc,
                              RankedTensorType type, double value) {
  Type element = type.getElementType();
  Attribute scalar;
  if (isa<FloatType>(element))
    scalar = builder.getFloatAttr(element, value);
  else
    scalar = builder.getIntegerAttr(element, std::llround(value));
  return arith::ConstantOp::create(builder, loc,
                                   DenseElementsAttr::get(type, scalar));
}
