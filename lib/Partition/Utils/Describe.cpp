//===- Describe.cpp - values and axes, for people -------------------------===//

#include "cleave/Partition/Utils/Describe.h"

#include "cleave/Partition/Utils/PortTable.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

std::string cleave::partition::describe(Value value) {
  while (auto constrain = value.getDefiningOp<ConstrainOp>())
    value = constrain.getInput();
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto func = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    if (func && argument.getOwner()->isEntryBlock())
      return describe(Port{func, /*isResult=*/false, argument.getArgNumber()});
    return "argument " + std::to_string(argument.getArgNumber());
  }
  auto result = cast<OpResult>(value);
  std::string name = result.getOwner()->getName().getStringRef().str();
  if (result.getOwner()->getNumResults() == 1)
    return "the result of " + name;
  return "result " + std::to_string(result.getResultNumber()) + " of " + name;
}

std::string cleave::partition::describe(AxisListAttr axes) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::interleaveComma(axes.getAxes(), out, [&](AxisRefAttr axis) {
    out << axis.getName();
    if (!axis.isWhole())
      out << ":(" << axis.getPre() << ")" << axis.getSize();
  });
  return text;
}
