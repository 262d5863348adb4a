//===- PadMask.cpp - selects that replace padding -------------------------===//

#include "cleave/Partition/Utils/PadMask.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/Constants.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

/// Returns the operand of a scalar broadcast, or the value itself.
static Value repeated(Value value) {
  if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>();
      broadcast && broadcast.getDims().empty())
    value = broadcast.getInput();
  return value;
}

std::optional<PadMask> PadMask::of(arith::SelectOp op) {
  auto compare = op.getCondition().getDefiningOp<arith::CmpIOp>();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::slt)
    return std::nullopt;
  auto index = compare.getLhs().getDefiningOp<nn::IotaOp>();
  auto count = repeated(compare.getRhs()).getDefiningOp<arith::SubIOp>();
  auto offset =
      count ? count.getRhs().getDefiningOp<TileOffsetOp>() : TileOffsetOp();
  auto size =
      count ? dyn_cast_or_null<IntegerAttr>(splatElementOf(count.getLhs()))
            : IntegerAttr();
  Attribute filler = splatElementOf(op.getFalseValue());
  if (!index || !offset || !size || !filler)
    return std::nullopt;
  return PadMask{int64_t(index.getDim()), size.getValue().getSExtValue(),
                 int64_t(offset.getTile()), offset.getAxes(), filler};
}
