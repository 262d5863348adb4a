// The sharding rule of pipe.sum_stages, sums over pipeline stages: it is
// elementwise, and each result depends only on its own operand.

#include "Model.h"

#include "cleave/Dialect/Pipe/IR/Pipe.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

// The operation is linear, but operands must not be partial sums: stages are
// partitioned separately, and adding partial sums of one stage to complete sums
// of another would be wrong.
ShardingRule sumStages(pipe::SumStagesOp op) {
  ShardingRule rule;
  for (Value input : op.getInputs()) {
    rule.operands.push_back(addFactors(rule, shapeOf(input)));
    rule.results.push_back(rule.operands.back());
  }
  return rule;
}

} // namespace

void cleave::sharding::attachPipe(MLIRContext *context) {
  attach<pipe::SumStagesOp, sumStages>(context);
}
