// The rule of sums over stages: element by element, each result from its own
// operand.

#include "Model.h"

#include "cleave/Dialect/Pipe/IR/Pipe.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::sharding;

namespace {

// Linear, and yet no operand is an addend here: each stage is partitioned
// alone, and a sum taken of addends in one stage and of sums in another is
// wrong.
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
