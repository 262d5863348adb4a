// The pipe dialect and its operations.

#include "cleave/Dialect/Pipe/IR/Pipe.h"

#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::pipe;

#include "cleave/Dialect/Pipe/IR/PipeDialect.cpp.inc"

#define GET_OP_CLASSES
#include "cleave/Dialect/Pipe/IR/PipeOps.cpp.inc"

void PipeDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "cleave/Dialect/Pipe/IR/PipeOps.cpp.inc"
      >();
}

std::optional<StageOf> cleave::pipe::stageOf(ModuleOp module) {
  auto stage = module->getAttrOfType<IntegerAttr>(kStageAttr);
  auto stages = module->getAttrOfType<IntegerAttr>(kStagesAttr);
  if (!stage || !stages)
    return std::nullopt;
  return StageOf{stage.getInt(), stages.getInt()};
}

LogicalResult SumStagesOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
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
             << stage << " behind " << (*stages)[index - 1]
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
