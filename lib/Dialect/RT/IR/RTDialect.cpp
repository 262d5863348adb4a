// Registration of the rt dialect.

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Support/AttrChecks.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave;
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

//===----------------------------------------------------------------------===//
// Discardable attributes
//===----------------------------------------------------------------------===//

static bool isAddress(Attribute value) {
  auto pair = dyn_cast<DenseI64ArrayAttr>(value);
  return pair && pair.size() == 2;
}

static bool isSeconds(Attribute value) {
  return isListOf<FloatAttr>(value) && cast<ArrayAttr>(value).size() == 3;
}

static bool isLifetimes(Attribute value) {
  auto list = dyn_cast<ArrayAttr>(value);
  return list && llvm::all_of(list, [](Attribute entry) {
           auto life = dyn_cast<DictionaryAttr>(entry);
           return life && life.getAs<StringAttr>("name") &&
                  life.getAs<StringAttr>("kind") &&
                  llvm::all_of(
                      ArrayRef<StringRef>{"first", "last", "offset", "size"},
                      [&](StringRef key) {
                        return bool(life.getAs<IntegerAttr>(key));
                      });
         });
}

static bool isStageList(Attribute value) {
  auto list = dyn_cast<ArrayAttr>(value);
  return list && llvm::all_of(list, [](Attribute entry) {
           auto stage = dyn_cast<DictionaryAttr>(entry);
           return stage && stage.getAs<DenseI64ArrayAttr>("arenas") &&
                  stage.getAs<ArrayAttr>("slots");
         });
}

static constexpr KnownAttr kOperationAttrs[] = {
    {kBuffersAttr, isAttr<DenseI64ArrayAttr>,
     "an array<i64>, arena and offset of each result"},
    {kBeyondAttr, isAttr<DenseI64ArrayAttr>, "an array<i64>"},
    {kArenasAttr, isAttr<DenseI64ArrayAttr>, "an array<i64>"},
    {kLifetimesAttr, isLifetimes,
     "a list of {first, kind, last, name, offset, size}"},
    {kOverlapAttr, isSeconds, "three floats"},
    {kStagesAttr, isStageList, "a list of {arenas, slots}"},
};

static constexpr KnownAttr kPortAttrs[] = {
    {kBufferAttr, isAddress, "array<i64: arena, offset>"},
};

LogicalResult RTDialect::verifyOperationAttribute(Operation *op,
                                                  NamedAttribute attr) {
  auto emit = [&] { return op->emitError(); };
  if (failed(verifyKnown(emit, attr, kOperationAttrs, "an operation")))
    return failure();
  auto buffers = dyn_cast<DenseI64ArrayAttr>(attr.getValue());
  if (attr.getName() == kBuffersAttr &&
      buffers.size() != 2 * int64_t(op->getNumResults()))
    return emit() << "'" << kBuffersAttr << "' has " << buffers.size()
                  << " numbers; expected arena and offset of each of "
                  << op->getNumResults() << " results";
  return success();
}

LogicalResult RTDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                  unsigned,
                                                  NamedAttribute attr) {
  return verifyKnown([&] { return op->emitError(); }, attr, kPortAttrs,
                     "an argument");
}

LogicalResult RTDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                     unsigned,
                                                     NamedAttribute attr) {
  return verifyKnown([&] { return op->emitError(); }, attr, kPortAttrs,
                     "a result");
}
