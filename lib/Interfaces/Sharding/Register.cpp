// Attaches the sharding rules of all families of operations.

#include "Model.h"

#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/Models.h"

#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

void cleave::registerShardingModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *,
                            math::MathDialect *, nn::NNDialect *) {
    attachElementwise(context);
    attachShape(context);
    attachControl(context);
    attachConvolution(context);
    attachContraction(context);
    attachIndexing(context);
    attachRows(context);
    attachAttention(context);
    attachExperts(context);
    attachTraining(context);
    // The per-rank code that the rules emit has operations of the dist dialect.
    context->loadDialect<dist::DistDialect>();
  });
  registry.addExtension(+[](MLIRContext *context, pipe::PipeDialect *) {
    sharding::attachPipe(context);
  });
}

TensorFactors cleave::sharding::addFactors(ShardingRule &rule,
                                           ArrayRef<int64_t> shape,
                                           FactorKind kind,
                                           FactorCombiner combiner) {
  TensorFactors dims;
  for (int64_t size : shape)
    dims.push_back({rule.addFactor(size, kind, combiner)});
  return dims;
}

ShardingRule cleave::sharding::elementwise(Operation *op) {
  ShardingRule rule;
  TensorFactors dims;
  if (auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType()))
    dims = addFactors(rule, type.getShape());
  auto factorsOf = [&](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.getRank() != 0 ? dims : TensorFactors();
  };
  for (Type type : op->getOperandTypes())
    rule.operands.push_back(factorsOf(type));
  for (Type type : op->getResultTypes())
    rule.results.push_back(factorsOf(type));
  return rule;
}
