//===- DistDialect.cpp - registration and discardable attributes ----------===//
//
// The attribute `dist.sharding` is allowed on function arguments and results
// (one sharding) and on operations (an array with one sharding for each
// result). The verifier of the dialect checks the shardings against types and
// mesh.
//
//===----------------------------------------------------------------------===//

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/Dist/IR/Padding.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave::dist;

#include "cleave/Dialect/Dist/IR/DistDialect.cpp.inc"
#include "cleave/Dialect/Dist/IR/DistEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "cleave/Dialect/Dist/IR/DistAttrs.cpp.inc"
#include "cleave/Dialect/Dist/IR/DistInterfaces.cpp.inc"

void DistDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "cleave/Dialect/Dist/IR/DistAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "cleave/Dialect/Dist/IR/DistOps.cpp.inc"
      >();
}

/// Checks a sharding attribute of `op`; `loc` is the location of the value that
/// has the sharding.
static LogicalResult verifyOn(Operation *op, Location loc, Attribute value,
                              Type type, const Twine &what) {
  auto emit = [&] { return emitError(loc) << what.str() << ": "; };
  auto sharding = dyn_cast<ShardingAttr>(value);
  if (!sharding)
    return emit() << "expected a #dist.sharding, found " << value;
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor)
    return emit() << "expected a ranked tensor, found " << type;
  MeshOp mesh = MeshOp::lookup(op, sharding.getMesh());
  if (!mesh)
    return emit() << "there is no mesh " << sharding.getMesh();
  return verifySharding(emit, sharding, tensor, mesh.getMesh());
}

/// Checks `dist.global_type`: a tensor type with the rank and element type of
/// the local type.
static LogicalResult verifyGlobalType(Operation *op, Attribute value,
                                      Type local) {
  auto type = dyn_cast<TypeAttr>(value);
  auto global =
      type ? dyn_cast<RankedTensorType>(type.getValue()) : RankedTensorType();
  auto tensor = dyn_cast<RankedTensorType>(local);
  if (!global || !tensor || global.getRank() != tensor.getRank() ||
      global.getElementType() != tensor.getElementType())
    return op->emitError("dist.global_type: expected a tensor type of the rank "
                         "and elements of ")
           << local << ", found " << value;
  return success();
}

LogicalResult DistDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attr) {
  if (attr.getName() == kPlanAttrName)
    return isa<PlanAttr>(attr.getValue())
               ? success()
               : op->emitError("dist.plan: expected #dist.plan<carry = ..., "
                               "factors = [...]>, found ")
                     << attr.getValue();
  if (attr.getName() == kPaddingAttrName) {
    auto bytes = dyn_cast<IntegerAttr>(attr.getValue());
    return bytes && bytes.getType().isInteger(64) && bytes.getInt() > 0
               ? success()
               : op->emitError("dist.padding: expected a number of bytes above "
                               "0 as an i64, found ")
                     << attr.getValue();
  }
  if (attr.getName() == kPadMaskAttrName ||
      attr.getName() == kTilePaddingAttrName) {
    if (!isa<UnitAttr>(attr.getValue()))
      return op->emitError() << attr.getName() << ": expected a unit, found "
                             << attr.getValue();
    auto low = op->getAttrOfType<DenseI64ArrayAttr>("low");
    bool atEnds = low && llvm::all_of(low.asArrayRef(),
                                      [](int64_t size) { return size == 0; });
    if (attr.getName() == kTilePaddingAttrName && !atEnds)
      return op->emitError() << attr.getName()
                             << ": tiles are padded at their ends; expected "
                                "nn.pad with low = 0";
    return success();
  }
  if (attr.getName() != kShardingAttrName)
    return op->emitError("unknown attribute ") << attr.getName();
  auto list = dyn_cast<ArrayAttr>(attr.getValue());
  if (!list || list.size() != op->getNumResults())
    return op->emitError("dist.sharding: expected an array of ")
           << op->getNumResults() << " shardings, one for each result, found "
           << attr.getValue();
  for (auto [index, value] : llvm::enumerate(list))
    if (failed(verifyOn(op, op->getLoc(), value, op->getResult(index).getType(),
                        "dist.sharding of result " + Twine(index))))
      return failure();
  return success();
}

LogicalResult DistDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                    unsigned argIndex,
                                                    NamedAttribute attr) {
  auto func = dyn_cast<FunctionOpInterface>(op);
  if (!func)
    return op->emitError() << attr.getName()
                           << ": expected arguments of a function";
  if (attr.getName() == kGlobalTypeAttrName)
    return verifyGlobalType(op, attr.getValue(),
                            func.getArgumentTypes()[argIndex]);
  if (attr.getName() != kShardingAttrName)
    return op->emitError("unknown attribute ") << attr.getName();
  Location loc = func.isExternal()
                     ? op->getLoc()
                     : func.getFunctionBody().getArgument(argIndex).getLoc();
  return verifyOn(op, loc, attr.getValue(), func.getArgumentTypes()[argIndex],
                  "dist.sharding of argument " + Twine(argIndex));
}

LogicalResult DistDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                       unsigned resultIndex,
                                                       NamedAttribute attr) {
  auto func = dyn_cast<FunctionOpInterface>(op);
  if (!func)
    return op->emitError() << attr.getName()
                           << ": expected results of a function";
  if (attr.getName() == kGlobalTypeAttrName)
    return verifyGlobalType(op, attr.getValue(),
                            func.getResultTypes()[resultIndex]);
  if (attr.getName() != kShardingAttrName)
    return op->emitError("unknown attribute ") << attr.getName();
  return verifyOn(op, op->getLoc(), attr.getValue(),
                  func.getResultTypes()[resultIndex],
                  "dist.sharding of result " + Twine(resultIndex));
}
