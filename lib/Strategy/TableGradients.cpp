// Rewrites gradients of position tables as scatter-adds; see TableGradients.h.

#include "TableGradients.h"

#include "StrategyUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

namespace {

class TableGradients {
public:
  TableGradients(func::FuncOp func, const nn::PositionFlow &flow)
      : func(func), flow(flow) {}

  void run() {
    Operation *terminator = func.getBody().front().getTerminator();
    for (OpOperand &result : terminator->getOpOperands()) {
      if (roleOf(func.getResultAttrDict(result.getOperandNumber())) !=
          Role::Gradient)
        continue;
      OpOperand &sum = termOf(result);
      auto pad = sum.get().getDefiningOp<nn::PadOp>();
      Value rows = pad ? pad.getInput() : sum.get();
      std::optional<int64_t> dim = flow.dimOf(rows);
      if (!dim || !rows.getDefiningOp() || (pad && !padsOnly(pad, *dim)))
        continue;
      sum.set(placed(rows, sum.get(), *dim, pad ? pad.getLow()[*dim] : 0));
      if (pad && pad->use_empty())
        pad.erase();
    }
  }

private:
  /// Returns the operand that holds the gradient of this microbatch. If
  /// `result` is the sum of an accumulator (an argument) and this gradient,
  /// that is an operand of the addition; otherwise it is `result` itself.
  static OpOperand &termOf(OpOperand &result) {
    if (auto add = result.get().getDefiningOp<arith::AddFOp>())
      for (OpOperand &operand : add->getOpOperands())
        if (isa<BlockArgument>(operand.get()))
          return add->getOpOperand(1 - operand.getOperandNumber());
    return result;
  }

  static bool padsOnly(nn::PadOp pad, int64_t dim) {
    for (auto [index, low, high] : llvm::enumerate(pad.getLow(), pad.getHigh()))
      if ((low || high) && int64_t(index) != dim)
        return false;
    return pad.getValue().isZero();
  }

  Value placed(Value rows, Value table, int64_t dim, int64_t first) {
    OpBuilder builder(rows.getContext());
    builder.setInsertionPointAfterValue(table);
    Location loc = table.getLoc();
    auto type = RankedTensorType::get({flow.size()}, builder.getI64Type());
    Value index = nn::IotaOp::create(builder, loc, type, 0);
    if (first)
      index = arith::AddIOp::create(
          builder, loc, index,
          arith::ConstantOp::create(
              builder, loc,
              DenseElementsAttr::get(type, builder.getI64IntegerAttr(first))));
    return nn::ScatterAddOp::create(builder, loc, table.getType(), index, rows,
                                    dim);
  }

  func::FuncOp func;
  const nn::PositionFlow &flow;
};

} // namespace

void strategy::scatterTableGradients(func::FuncOp func,
                                     const nn::PositionFlow &flow) {
  TableGradients(func, flow).run();
}
