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
#include "cleave/Support/AttrChecks.h"
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

using Emit = function_ref<InFlightDiagnostic()>;

/// Checks a sharding of a value of `op`. `emitError` begins an error about that
/// value.
static LogicalResult verifyOn(Operation *op, Emit emitError, Attribute value,
                              Type type) {
  auto emit = [&] { return emitError() << "dist.sharding: "; };
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
static LogicalResult verifyGlobalType(Emit emitError, Attribute value,
                                      Type local) {
  auto type = dyn_cast<TypeAttr>(value);
  auto global =
      type ? dyn_cast<RankedTensorType>(type.getValue()) : RankedTensorType();
  auto tensor = dyn_cast<RankedTensorType>(local);
  if (!global || !tensor || global.getRank() != tensor.getRank() ||
      global.getElementType() != tensor.getElementType())
    return emitError()
           << "dist.global_type: expected a tensor type of the rank "
              "and elements of "
           << local << ", found " << value;
  return success();
}

static constexpr cleave::KnownAttr kOperationAttrs[] = {
    {kShardingAttrName, cleave::isListOf<ShardingAttr>,
     "a list of #dist.sharding<...>, one for each result"},
    {kPlanAttrName, cleave::isAttr<PlanAttr>,
     "#dist.plan<carry = ..., factors = [...]>"},
    {kPaddingAttrName, cleave::isI64From<1>,
     "an i64, at least 1, a number of bytes"},
    {kPadMaskAttrName, cleave::isAttr<UnitAttr>, "a unit"},
    {kTilePaddingAttrName, cleave::isAttr<UnitAttr>, "a unit"},
};

// The values of these attributes are checked by verifyPort, because they depend
// on the type of the argument or result.
static bool isAny(Attribute) { return true; }
static constexpr cleave::KnownAttr kPortAttrs[] = {
    {kShardingAttrName, isAny, "a #dist.sharding<...>"},
    {kGlobalTypeAttrName, isAny, "a tensor type"},
};

LogicalResult DistDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attr) {
  if (failed(cleave::verifyKnown([&] { return op->emitError(); }, attr,
                                 kOperationAttrs, "an operation")))
    return failure();
  if (attr.getName() == kTilePaddingAttrName) {
    auto low = op->getAttrOfType<DenseI64ArrayAttr>("low");
    bool atEnds = low && llvm::all_of(low.asArrayRef(),
                                      [](int64_t size) { return size == 0; });
    if (!atEnds)
      return op->emitError() << attr.getName()
                             << ": tiles are padded at their ends; expected "
                                "nn.pad with low = 0";
  }
  if (attr.getName() != kShardingAttrName)
    return success();
  auto list = cast<ArrayAttr>(attr.getValue());
  if (list.size() != op->getNumResults())
    return op->emitError("dist.sharding: expected an array of ")
           << op->getNumResults() << " shardings, one for each result, found "
           << attr.getValue();
  for (auto [index, value] : llvm::enumerate(list)) {
    auto emit = [&, index = index] {
      return op->emitError("result ") << index << ": ";
    };
    if (failed(verifyOn(op, emit, value, op->getResult(index).getType())))
      return failure();
  }
  return success();
}

/// Checks an attribute of an argument or result of type `type`. `emitError`
/// begins an error about it.
static LogicalResult verifyPort(Operation *op, Emit emitError,
                                NamedAttribute attr, Type type,
                                StringRef where) {
  if (failed(cleave::verifyKnown(emitError, attr, kPortAttrs, where)))
    return failure();
  return attr.getName() == kGlobalTypeAttrName
             ? verifyGlobalType(emitError, attr.getValue(), type)
             : verifyOn(op, emitError, attr.getValue(), type);
}

LogicalResult DistDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                    unsigned argIndex,
                                                    NamedAttribute attr) {
  auto func = dyn_cast<FunctionOpInterface>(op);
  if (!func)
    return op->emitError() << attr.getName()
                           << ": expected arguments of a function";
  return verifyPort(
      op, [&] { return cleave::argumentError(func, argIndex); }, attr,
      func.getArgumentTypes()[argIndex], "an argument");
}

LogicalResult DistDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                       unsigned resultIndex,
                                                       NamedAttribute attr) {
  auto func = dyn_cast<FunctionOpInterface>(op);
  if (!func)
    return op->emitError() << attr.getName()
                           << ": expected results of a function";
  return verifyPort(
      op, [&] { return cleave::resultError(func, resultIndex); }, attr,
      func.getResultTypes()[resultIndex], "a result");
}
