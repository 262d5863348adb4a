// Replaces convolutions by commands on devices that have a library for them.

#include "SelectLibrary.h"

#include "cleave/Interfaces/ProgramWalk.h"
#include "cleave/Memory/LibraryCalls.h"
#include "cleave/Support/ValueUtils.h"
#include "cleave/workspace.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave;

/// Returns the bf16 value from which `value` was extended, or null.
static Value narrowOf(Value value) {
  auto widen = value.getDefiningOp<arith::ExtFOp>();
  if (widen && typeOf(widen.getIn()).getElementType().isBF16())
    return widen.getIn();
  return {};
}

/// Returns whether `value` is only used after rounding to bf16.
static bool isOnlyRounded(Value value) {
  return !value.use_empty() &&
         llvm::all_of(value.getUsers(), [](Operation *op) {
           return isa<arith::TruncFOp>(op) &&
                  typeOf(op->getResult(0)).getElementType().isBF16();
         });
}

template <class Op> static void select(Op op, rt::ConvKind kind) {
  Value lhs = op->getOperand(0), rhs = op->getOperand(1);
  RankedTensorType type = op.getType();
  // Commands support one to three spatial dimensions and nonempty tensors.
  for (RankedTensorType each : {typeOf(lhs), typeOf(rhs), type})
    if (each.getRank() > 5 || each.getNumElements() == 0)
      return;
  OpBuilder b(op);
  // Products of bf16 values are exact in f32, and are summed in f32, so a
  // command with bf16 operands computes the same result.
  Value narrowLhs = narrowOf(lhs), narrowRhs = narrowOf(rhs);
  bool isNarrow = narrowLhs && narrowRhs;
  bool isRounded = isNarrow && isOnlyRounded(op.getResult());
  if (isRounded) {
    lhs = narrowLhs, rhs = narrowRhs;
    type = type.clone(b.getBF16Type());
  }
  auto command =
      rt::ConvOp::create(b, op.getLoc(), TypeRange(type), kind, lhs, rhs,
                         op.getStrides(), op.getDilations(), op.getLow(),
                         op.getHigh(), op.getGroups(), isNarrow && !isRounded);
  std::string why;
  if (cuda::convolutionWorkspace(describe(command), why) < 0) {
    command.erase();
    return;
  }
  if (!isRounded) {
    op.replaceAllUsesWith(command.getResult(0));
  } else {
    for (Operation *round : llvm::make_early_inc_range(op->getUsers())) {
      round->replaceAllUsesWith(command->getResults());
      round->erase();
    }
  }
  op.erase();
}

void cleave::selectConvolutions(func::FuncOp func) {
  SmallVector<Operation *> ops;
  for (Operation &op : actionBody(func))
    if (isa<nn::ConvOp, nn::ConvInputGradOp, nn::ConvFilterGradOp>(op))
      ops.push_back(&op);
  for (Operation *op : ops)
    llvm::TypeSwitch<Operation *>(op)
        .Case([](nn::ConvOp op) { select(op, rt::ConvKind::Forward); })
        .Case(
            [](nn::ConvInputGradOp op) { select(op, rt::ConvKind::InputGrad); })
        .Case([](nn::ConvFilterGradOp op) {
          select(op, rt::ConvKind::FilterGrad);
        });
}
