// Attaches the derivative models of all families of operations.

#include "Model.h"

#include "cleave/Interfaces/Models.h"

#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace cleave;

void cleave::registerDerivativeModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *,
                            math::MathDialect *, nn::NNDialect *) {
    derivative::attachElementwise(context);
    derivative::attachShape(context);
    derivative::attachControl(context);
    derivative::attachConvolution(context);
    derivative::attachContraction(context);
    derivative::attachRows(context);
    derivative::attachAttention(context);
    derivative::attachExperts(context);
  });
}
