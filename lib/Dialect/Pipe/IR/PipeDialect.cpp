// The pipe dialect and its operations.

#include "cleave/Dialect/Pipe/IR/Pipe.h"

#include "cleave/Support/AttrChecks.h"

#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringSwitch.h"
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

/// Returns the place of an event in the order in which a stage processes one
/// microbatch.
static int orderOf(StringRef event) {
  return llvm::StringSwitch<int>(event)
      .Case("recv_f", 0)
      .Case("F", 1)
      .Case("send_f", 2)
      .Case("recv_b", 3)
      .Cases({"I", "B"}, 4)
      .Case("W", 5)
      .Default(6);
}

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
  rest.split(lasts, ',');
  for (StringRef last : lasts) {
    if (!llvm::is_contained(ends, last))
      return unknown("last event '" + last.str() + "'", ends);
    if (orderOf(last) < orderOf(first))
      return emitError() << "#pipe.slot<" << slot << "> ends with '" << last
                         << "', which comes before '" << first
                         << "'; expected events in the order recv_f, F, "
                            "send_f, recv_b, I or B, W, send_b";
  }
  return success();
}

StringRef cleave::pipe::slotOf(DictionaryAttr attrs) {
  auto slot = attrs ? attrs.getAs<SlotAttr>(kSlotAttr) : SlotAttr();
  return slot ? slot.getText().getValue() : StringRef();
}

/// Checks a list of stages: the attribute `stages` of an operation or of a
/// pipe.sum.
static LogicalResult
verifyStageList(llvm::function_ref<InFlightDiagnostic()> emitError,
                ArrayRef<int64_t> stages) {
  if (stages.size() < 2)
    return emitError() << "has " << stages.size()
                       << " stages, expected at least two";
  for (auto [index, stage] : llvm::enumerate(stages)) {
    if (stage < 0)
      return emitError() << "has stage " << stage << ", expected none below 0";
    if (index && stage <= stages[index - 1])
      return emitError() << "has stage " << stage << " after "
                         << stages[index - 1] << ", expected ascending stages";
  }
  return success();
}

LogicalResult
SumAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                StringAttr operand, StringAttr result,
                DenseI64ArrayAttr stages) {
  if (operand.empty() || result.empty())
    return emitError() << "#pipe.sum has operand = " << operand
                       << " and result = " << result
                       << "; expected two names that are not empty";
  if (!stages)
    return success();
  return verifyStageList(
      [&] {
        return emitError() << "#pipe.sum of " << operand << " with stages = ["
                           << stages.asArrayRef() << "] ";
      },
      stages.asArrayRef());
}

static bool isAction(Attribute value) {
  auto text = dyn_cast<StringAttr>(value);
  return text && llvm::is_contained({"F", "I", "W", "B"}, text.getValue());
}

/// Returns whether the text is spelled like an action of a schedule: the number
/// of a stage, the kind and perhaps a microbatch, as in "0F3".
static bool isScheduleAction(StringRef text) {
  static constexpr StringRef kinds[] = {"F",       "I",       "W",          "B",
                                        "UNSHARD", "RESHARD", "REDUCE_GRAD"};
  StringRef rest = text.ltrim("0123456789");
  return rest.size() < text.size() &&
         llvm::is_contained(kinds, rest.rtrim("0123456789"));
}

LogicalResult
ScheduleAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                     StringAttr axis, StringAttr, int64_t position,
                     StringAttr name, StringAttr table, bool) {
  if (axis.empty() || position < 0)
    return emitError() << "schedule of axis " << axis << " at position "
                       << position
                       << "; expected the name of a mesh axis and a position "
                          "of at least 0";
  // Only the spelling is checked here. The reader of the table checks that
  // every stage and microbatch is there, but belongs to a higher library.
  StringRef separators = " \t\r\n,;()";
  StringRef rest = table.getValue().ltrim(separators);
  bool isEmpty = rest.empty();
  while (!rest.empty()) {
    StringRef action = rest.take_front(rest.find_first_of(separators));
    // Two actions that overlap are written (0F3;7B2)OVERLAP_F_B.
    if (action != "OVERLAP_F_B" && !isScheduleAction(action))
      return emitError() << "table of schedule " << name << " has '" << action
                         << "'; expected actions like 0F3 or 0UNSHARD: a "
                            "stage, then F, I, W, B, UNSHARD, RESHARD or "
                            "REDUCE_GRAD, then a microbatch";
    rest = rest.drop_front(action.size()).ltrim(separators);
  }
  if (isEmpty)
    return emitError() << "table of schedule " << name << " is " << table
                       << "; expected at least one action, like 0F0";
  return success();
}

/// Returns whether the attribute is a sharding. It is recognized by its name,
/// since the pipe dialect does not depend on the dist dialect, which defines
/// the C++ class.
static bool isSharding(Attribute value) {
  return value.getAbstractAttribute().getName() == "dist.sharding";
}

static constexpr KnownAttr kOperationAttrs[] = {
    {kStageAttr, isI64From<0>, "an i64, at least 0"},
    {kStagesAttr, isI64From<1>, "an i64, at least 1"},
    {kScalarAttr, isAttr<TypeAttr>, "a type"},
    {kSumsAttr, isListOf<SumAttr>,
     "a list of #pipe.sum<operand = ..., result = ...>"},
    {"pipe.action", isAction, "\"F\", \"I\", \"W\" or \"B\""},
    {kScheduleAttr, isAttr<ScheduleAttr>,
     "#pipe.schedule<axis = ..., link = ..., position = ..., name = ..., "
     "table = ...>"},
};

static bool isStageList(Attribute value) {
  auto stages = dyn_cast<DenseI64ArrayAttr>(value);
  if (!stages || !isI64ListFrom<0>(stages))
    return false;
  ArrayRef<int64_t> list = stages.asArrayRef();
  return std::adjacent_find(list.begin(), list.end(),
                            std::greater_equal<int64_t>()) == list.end();
}

static constexpr KnownAttr kPortAttrs[] = {
    {kSlotAttr, isAttr<SlotAttr>, "#pipe.slot<...>, like #pipe.slot<\"F:W\">"},
    {kStagesAttr, isStageList, "an array<i64>, ascending stages"},
    {kDifferentiableAttr, isAttr<UnitAttr>, "a unit"},
    {"pipe.inside", isSharding, "a #dist.sharding"},
};

LogicalResult PipeDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attr) {
  if (failed(verifyKnown([&] { return op->emitError(); }, attr, kOperationAttrs,
                         "an operation")))
    return failure();
  auto module = dyn_cast<ModuleOp>(op);
  std::optional<StageOf> here = module ? stageOf(module) : std::nullopt;
  if (attr.getName() == kStageAttr && here && here->stage >= here->stages)
    return op->emitError("'pipe.stage' is ")
           << here->stage << "; expected a stage below 'pipe.stages', which is "
           << here->stages;
  return success();
}

LogicalResult PipeDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                    unsigned index,
                                                    NamedAttribute attr) {
  return verifyKnown(
      [&] { return argumentError(cast<FunctionOpInterface>(op), index); }, attr,
      kPortAttrs, "an argument");
}

LogicalResult PipeDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                       unsigned index,
                                                       NamedAttribute attr) {
  return verifyKnown(
      [&] { return resultError(cast<FunctionOpInterface>(op), index); }, attr,
      kPortAttrs, "a result");
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
  if (failed(verifyStageList([&] { return emitOpError(); }, *stages)))
    return failure();
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
