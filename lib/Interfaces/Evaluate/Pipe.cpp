// Reference semantics of pipe.sum_stages, a sum over pipeline stages. Only
// programs with a single stage can be evaluated, where the sum is the identity.

#include "Model.h"

#include "cleave/Dialect/Pipe/IR/Pipe.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::evaluate;

namespace {

struct SumStagesModel
    : EvaluableInterface::ExternalModel<SumStagesModel, pipe::SumStagesOp> {
  LogicalResult evaluate(Operation *op, Operands operands,
                         Results results) const {
    std::optional<pipe::StageOf> here;
    if (auto module = op->getParentOfType<ModuleOp>())
      here = pipe::stageOf(module);
    if (cast<pipe::SumStagesOp>(op).getStages() || (here && here->stages > 1))
      return op->emitOpError("sums over several stages, of which one alone "
                             "cannot be interpreted");
    for (auto [result, operand] : llvm::zip_equal(results, operands)) {
      result.floats = operand->floats;
      result.ints = operand->ints;
    }
    return success();
  }
};

} // namespace

void cleave::evaluate::attachPipe(MLIRContext *context) {
  pipe::SumStagesOp::attachInterface<SumStagesModel>(*context);
}
