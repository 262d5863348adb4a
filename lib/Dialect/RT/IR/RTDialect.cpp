// Registration of the rt dialect.

#include "cleave/Dialect/RT/IR/RT.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave::rt;

#include "cleave/Dialect/RT/IR/RTDialect.cpp.inc"
#include "cleave/Dialect/RT/IR/RTEnums.cpp.inc"
#include "cleave/Dialect/RT/IR/RTInterfaces.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "cleave/Dialect/RT/IR/RTTypes.cpp.inc"

#define GET_OP_CLASSES
#include "cleave/Dialect/RT/IR/RTOps.cpp.inc"

void RTDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "cleave/Dialect/RT/IR/RTTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "cleave/Dialect/RT/IR/RTOps.cpp.inc"
      >();
}
