// The pipe dialect and its operations.

#include "cleave/Dialect/Pipe/IR/Pipe.h"

#include "cleave/Support/AttrChecks.h"

#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::pipe;

#include "cleave/Dialect/Pipe/IR/PipeDialect.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "cleave/Dialect/Pipe/IR/PipeAttrs.cpp.inc"

#define GET_OP_CLASSES
#include "cleave/Dialect/Pipe/IR/PipeOps.cpp.inc"

void PipeDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "cleave/Dialect/Pipe/IR/PipeAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "cleave/Dialect/Pipe/IR/PipeOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

LogicalResult
SlotAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                 StringAttr slot) {
  static constexpr StringRef classes[] = {"store",  "unshard", "reduced",
                                          "update", "eval",    "version"};
  static constexpr StringRef begins[] = {"F", "I",      "W",
                                         "B", "recv_f", "recv_b"};
  static constexpr StringRef ends[] = {"F", "I", "W", "B", "send_f", "send_b"};
  auto unknown = [&](StringRef what, ArrayRef<StringRef> expected) {
    InFlightDiagnostic error = emitError();
    error << "#pipe.slot<" << slot << "> has the unknown " << what
          << "; expected ";
    llvm::interleaveComma(expected, error);
    return error;
  };
  if (llvm::is_contained(classes, slot.getValue()))
    return success();
  auto [first, rest] = slot.getValue().split(':');
  if (!slot.getValue().contains(':'))
    return unknown("class '" + first.str() + "'", classes)
           << ", or FIRST:LAST of events of a stage, like recv_f:W";
  if (!llvm::is_contained(begins, first))
    return unknown("first event '" + first.str() + "'", begins);
  SmallVector<StringRef> lasts;
  rest.split(lasts, ',', -1, /*KeepEmpty=*/false);
  for (StringRef last : lasts)
    if (!llvm::is_contained(ends, last))
      return unknown("last event '" + last.str() + "'", ends);
  return success();
}

StringRef cleave::pipe::slotOf(DictionaryAttr attrs) {
  auto slot = attrs ? attrs.getAs<SlotAttr>(kSlotAttr) : SlotAttr();
  return slot ? slot.getText().getValue() : StringRef();
}

static bool isStage(Attribute value) {
  return isI64(value) && cast<IntegerAttr>(value).getInt() >= 0;
}

static bool isAction(Attribute value) {
  auto text = dyn_cast<StringAttr>(value);
  return text && llvm::is_contained({"F", "I", "W", "B"}, text.getValue());
}

LogicalResult
ScheduleAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                     StringAttr axis, StringAttr, int64_t position, StringAttr,
                     StringAttr, bool) {
  if (axis.empty() || position < 0)
    return emitError() << "schedule of axis " << axis << " at position "
                       << position
                       << "; expected the name of a mesh axis and a position "
                          "of at least 0";
  return success();
}

/// Returns whether the attribute is a sharding. It is recognized by its name,
/// since the pipe dialect does not depend on the dist dialect, which defines
/// the C++ class.
static bool isSharding(Attribute value) {
  return value.getAbstractAttribute().getName() == "dist.sharding";
}

static constexpr KnownAttr kOperationAttrs[] = {
    {kStageAttr, isStage, "an i64, at least 0"},
    {kStagesAttr, isStage, "an i64"},
    {kScalarAttr, isAttr<TypeAttr>, "a type"},
    {kSumsAttr, isListOf<SumAttr>,
     "a list of #pipe.sum<operand = ..., result = ...>"},
    {"pipe.action", isAction, "\"F\", \"I\", \"W\" or \"B\""},
    {kScheduleAttr, isAttr<ScheduleAttr>,
     "#pipe.schedule<axis = ..., link = ..., position = ..., name = ..., "
     "table = ...>"},
};

static constexpr KnownAttr kPortAttrs[] = {
    {kSlotAttr, isAttr<SlotAttr>, "#pipe.slot<...>, like #pipe.slot<\"F:W\">"},
    {kStagesAttr, isAttr<DenseI64ArrayAttr>, "an array<i64>, the stages"},
    {kDifferentiableAttr, isAttr<UnitAttr>, "a unit"},
    {"pipe.inside", isSharding, "a #dist.sharding"},
};

LogicalResult PipeDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attr) {
  return verifyKnown([&] { return op->emitError(); }, attr, kOperationAttrs,
                     "an operation");
}

LogicalResult PipeDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                    unsigned index,
                                                    NamedAttribute attr) {
  auto func = dyn_cast<FunctionOpInterface>(op);
  Location loc = func && !func.isExternal()
                     ? func.getFunctionBody().getArgument(index).getLoc()
                     : op->getLoc();
  return verifyKnown([&] { return emitError(loc); }, attr, kPortAttrs,
                     "an argument");
}

LogicalResult PipeDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                       unsigned,
                                                       NamedAttribute attr) {
  return verifyKnown([&] { return op->emitError(); }, attr, kPortAttrs,
                     "a result");
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

std::optional<StageOf> cleave::pipe::stageOf(ModuleOp module) {
  auto stage = module->getAttrOfType<IntegerAttr>(kStageAttr);
  auto stages = module->getAttrOfType<IntegerAttr>(kStagesAttr);
  if (!stage || !stages)
    return std::nullopt;
  return StageOf{stage.getInt(), stages.getInt()};
}

LogicalResult SumStagesOp::inferReturnTypes(MLIRContext *,
                                            std::optional<Location>,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  llvm::append_range(types, adaptor.getInputs().getTypes());
  return success();
}

LogicalResult SumStagesOp::verify() {
  if (getInputs().empty())
    return emitOpError("has no operand, expected at least one");
  std::optional<ArrayRef<int64_t>> stages = getStages();
  if (!stages)
    return success();
  if (stages->size() < 2)
    return emitOpError("has ")
           << stages->size() << " stages, expected at least two";
  for (auto [index, stage] : llvm::enumerate(*stages)) {
    if (stage < 0)
      return emitOpError("has stage ") << stage << ", expected none below 0";
    if (index && stage <= (*stages)[index - 1])
      return emitOpError("has stage ")
             << stage << " after " << (*stages)[index - 1]
             << ", expected ascending stages";
  }
  auto module = (*this)->getParentOfType<ModuleOp>();
  std::optional<StageOf> here = module ? stageOf(module) : std::nullopt;
  if (!here)
    return success();
  if (stages->back() >= here->stages)
    return emitOpError("has stage ")
           << stages->back() << ", but the pipeline has " << here->stages;
  if (!llvm::is_contained(*stages, here->stage))
    return emitOpError("does not sum over stage ")
           << here->stage << ", in which it stands";
  return success();
}
