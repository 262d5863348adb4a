// Attaches implementations of EvaluableInterface, by which the interpreter
// evaluates operations on host tensors, to the operations of all families.

#include "Model.h"

#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/Models.h"

#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace cleave;

void cleave::registerEvaluateModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *,
                            math::MathDialect *, nn::NNDialect *) {
    evaluate::attachElementwise(context);
    evaluate::attachShape(context);
    evaluate::attachConvolution(context);
    evaluate::attachContraction(context);
    evaluate::attachRows(context);
    evaluate::attachAttention(context);
    evaluate::attachExperts(context);
    evaluate::attachTraining(context);
  });
  registry.addExtension(+[](MLIRContext *context, pipe::PipeDialect *) {
    evaluate::attachPipe(context);
  });
}
