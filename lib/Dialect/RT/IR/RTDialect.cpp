// Registration of the rt dialect.

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Support/AttrChecks.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::rt;

#include "cleave/Dialect/RT/IR/RTDialect.cpp.inc"
#include "cleave/Dialect/RT/IR/RTEnums.cpp.inc"
#include "cleave/Dialect/RT/IR/RTInterfaces.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "cleave/Dialect/RT/IR/RTAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "cleave/Dialect/RT/IR/RTTypes.cpp.inc"

#define GET_OP_CLASSES
#include "cleave/Dialect/RT/IR/RTOps.cpp.inc"

void RTDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "cleave/Dialect/RT/IR/RTAttrs.cpp.inc"
      >();
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

LogicalResult
AddressAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                    int64_t arena, int64_t offset, DenseI64ArrayAttr trips) {
  if (trips && (trips.empty() || trips.size() % 3))
    return emitError() << "#rt.address has " << trips.size()
                       << " numbers for trips, expected triples (depth, "
                          "period, bytes)";
  for (size_t i = 0; trips && i < size_t(trips.size()); i += 3)
    if (trips[i] < 0 || trips[i + 1] < 1)
      return emitError() << "#rt.address depends on trips of depth " << trips[i]
                         << " with period " << trips[i + 1]
                         << "; expected a depth that is not negative and a "
                            "positive period";
  if (arena < 0 || offset < 0)
    return emitError() << "#rt.address has arena " << arena << " and offset "
                       << offset << "; expected no negative number";
  return success();
}

LogicalResult
LifetimeAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                     StringAttr name, StringAttr kind, int64_t first,
                     int64_t last, int64_t offset, int64_t size) {
  if (kind != "activation" && kind != "workspace")
    return emitError() << "lifetime of " << name << ": kind is " << kind
                       << ", expected \"activation\" or \"workspace\"";
  if (first < 0 || last < first)
    return emitError() << "lifetime of " << name << ": live from command "
                       << first << " to " << last
                       << ", expected 0 <= first <= last";
  if (int64_t end;
      offset < 0 || size <= 0 || llvm::AddOverflow(offset, size, end))
    return emitError() << "lifetime of " << name << ": offset " << offset
                       << ", size " << size
                       << "; expected offset >= 0, size > 0 and an end that "
                          "fits into 64 bits";
  return success();
}

LogicalResult
StageAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                  DenseI64ArrayAttr arenas, ArrayAttr slots) {
  if (!llvm::all_of(slots, llvm::IsaPred<StringAttr>))
    return emitError() << "slots of a stage: " << slots << ", expected strings";
  if (!isI64ListFrom<0>(arenas))
    return emitError() << "arenas of a stage: [" << arenas.asArrayRef()
                       << "], expected no size below 0";
  if (arenas.size() != kSlotArena + int64_t(slots.size()))
    return emitError() << "a stage has " << arenas.size() << " arenas and "
                       << slots.size() << " slots, expected " << kSlotArena
                       << " arenas more than slots";
  return success();
}

AddressAttr rt::addressOf(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return cast<FunctionOpInterface>(argument.getOwner()->getParentOp())
        .getArgAttrOfType<AddressAttr>(argument.getArgNumber(), kBufferAttr);
  auto result = cast<OpResult>(value);
  auto all = result.getOwner()->getAttrOfType<ArrayAttr>(kBuffersAttr);
  return all ? dyn_cast<AddressAttr>(all[result.getResultNumber()])
             : AddressAttr();
}

/// Returns whether the attribute is a list of addresses, one for each result of
/// a command. A token has no address.
static bool isAddresses(Attribute value) {
  auto list = dyn_cast<ArrayAttr>(value);
  return list && llvm::all_of(list, llvm::IsaPred<AddressAttr, UnitAttr>);
}

static bool isSeconds(Attribute value) {
  return isListOf<FloatAttr>(value) && cast<ArrayAttr>(value).size() == 3 &&
         llvm::all_of(cast<ArrayAttr>(value), [](Attribute entry) {
           double seconds = cast<FloatAttr>(entry).getValueAsDouble();
           return std::isfinite(seconds) && seconds >= 0;
         });
}

static constexpr KnownAttr kOperationAttrs[] = {
    {kBuffersAttr, isAddresses, "a list of #rt.address<arena, offset>"},
    {kBodyAttr, isAttr<UnitAttr>, "unit"},
    {kBeyondAttr, isI64ListFrom<0>, "an array<i64> without negative numbers"},
    {kArenasAttr, isI64ListFrom<0>,
     "an array<i64> without negative numbers, the sizes of the arenas"},
    {kLifetimesAttr, isListOf<LifetimeAttr>,
     "a list of #rt.lifetime<name = ..., kind = ..., first = ..., last = ..., "
     "offset = ..., size = ...>"},
    {kOverlapAttr, isSeconds, "three floats, finite and at least 0"},
    {kStagesAttr, isListOf<StageAttr>,
     "a list of #rt.stage<arenas = ..., slots = ...>"},
};

static constexpr KnownAttr kPortAttrs[] = {
    {kBufferAttr, isAttr<AddressAttr>, "#rt.address<arena, offset>"},
};

LogicalResult RTDialect::verifyOperationAttribute(Operation *op,
                                                  NamedAttribute attr) {
  auto emit = [&] { return op->emitError(); };
  if (failed(verifyKnown(emit, attr, kOperationAttrs, "an operation")))
    return failure();
  auto buffers = dyn_cast<ArrayAttr>(attr.getValue());
  if (attr.getName() == kBuffersAttr && buffers.size() != op->getNumResults())
    return emit() << "'" << kBuffersAttr << "' has " << buffers.size()
                  << " addresses; expected one for each of "
                  << op->getNumResults() << " results";
  auto beyond = dyn_cast<DenseI64ArrayAttr>(attr.getValue());
  if (attr.getName() == kBeyondAttr &&
      beyond.size() > int64_t(op->getNumOperands()))
    return emit() << "'" << kBeyondAttr << "' has " << beyond.size()
                  << " numbers; expected at most one for each of "
                  << op->getNumOperands() << " operands";
  return success();
}

LogicalResult RTDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                  unsigned index,
                                                  NamedAttribute attr) {
  return verifyKnown(
      [&] { return argumentError(cast<FunctionOpInterface>(op), index); }, attr,
      kPortAttrs, "an argument");
}

LogicalResult RTDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                     unsigned index,
                                                     NamedAttribute attr) {
  return verifyKnown(
      [&] { return resultError(cast<FunctionOpInterface>(op), index); }, attr,
      kPortAttrs, "a result");
}
