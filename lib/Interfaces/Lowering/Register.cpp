// Attaches the lowering models of all families of operations.

#include "Model.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/Models.h"

#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace cleave;

void cleave::registerLoweringModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *,
                            math::MathDialect *, nn::NNDialect *) {
    lowering::attachElementwise(context);
    lowering::attachShape(context);
    lowering::attachConvolution(context);
    lowering::attachRows(context);
    lowering::attachTraining(context);
  });
  registry.addExtension(+[](MLIRContext *context, dist::DistDialect *) {
    lowering::attachPlain<KernelClass::Identity, dist::ConstrainOp>(context);
  });
  registry.addExtension(+[](MLIRContext *context, pipe::PipeDialect *) {
    lowering::attachPlain<KernelClass::Collective, pipe::SumStagesOp>(context);
  });
}
