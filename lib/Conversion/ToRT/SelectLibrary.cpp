// nn-select-library: which operations become library calls.

#include "SelectLibrary.h"
#include "cleave/Conversion/ToRT/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/TypeSwitch.h"

namespace cleave {
#define GEN_PASS_DEF_SELECTLIBRARYPASS
#include "cleave/Conversion/ToRT/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

/// The pads that `value` is the sum of; false where it is not such a sum.
static bool collectPads(Value value, SmallVectorImpl<nn::PadOp> &pads) {
  if (auto pad = value.getDefiningOp<nn::PadOp>()) {
    pads.push_back(pad);
    return value.hasOneUse() && pad.getValue().isZero();
  }
  auto add = value.getDefiningOp<arith::AddFOp>();
  return add && value.hasOneUse() && collectPads(add.getLhs(), pads) &&
         collectPads(add.getRhs(), pads);
}

void cleave::mergePads(arith::AddFOp add) {
  SmallVector<nn::PadOp> pads;
  if (!collectPads(add.getLhs(), pads) || !collectPads(add.getRhs(), pads))
    return;
  // The one dimension in which the boxes differ from the sum.
  auto type = cast<RankedTensorType>(add.getType());
  int64_t dim = -1;
  for (int64_t d = 0; d < type.getRank(); ++d)
    if (llvm::any_of(pads, [&](nn::PadOp pad) {
          return pad.getLow()[d] || pad.getHigh()[d];
        })) {
      if (dim >= 0)
        return;
      dim = d;
    }
  if (dim < 0)
    return;
  llvm::sort(pads, [&](nn::PadOp x, nn::PadOp y) {
    return x.getLow()[dim] < y.getLow()[dim];
  });
  int64_t end = 0;
  SmallVector<Value> inputs;
  for (nn::PadOp pad : pads) {
    if (pad.getLow()[dim] != end)
      return;
    end = type.getDimSize(dim) - pad.getHigh()[dim];
    inputs.push_back(pad.getInput());
  }
  if (end != type.getDimSize(dim))
    return;
  OpBuilder b(add);
  Value whole = nn::ConcatOp::create(b, add.getLoc(), inputs, dim);
  add.replaceAllUsesWith(whole);
  SmallVector<Operation *> dead = {add};
  while (!dead.empty()) {
    Operation *op = dead.pop_back_val();
    if (!op->use_empty() || !isa<arith::AddFOp, nn::PadOp>(op))
      continue;
    for (Value operand : op->getOperands())
      if (Operation *def = operand.getDefiningOp())
        dead.push_back(def);
    op->erase();
  }
}

/// Placements whose readers became strides.
static void eraseDead(func::FuncOp func) {
  SmallVector<Operation *> ops;
  func.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : llvm::reverse(ops))
    if (op != func && isOpTriviallyDead(op))
      op->erase();
}

namespace {
struct SelectLibraryPass
    : cleave::impl::SelectLibraryPassBase<SelectLibraryPass> {
  using Base::Base;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isExternal() && !func->hasAttr("nn.kernel"))
        if (failed(select(func)))
          return signalPassFailure();
  }

  LogicalResult select(func::FuncOp func) {
    // The last addition of a sum sees all of it, so from the end.
    SmallVector<arith::AddFOp> sums(func.getOps<arith::AddFOp>());
    llvm::DenseSet<Operation *> gone;
    for (arith::AddFOp sum : llvm::reverse(sums)) {
      if (gone.contains(sum))
        continue;
      bool last = llvm::none_of(sum->getUsers(), [](Operation *user) {
        return isa<arith::AddFOp>(user);
      });
      if (!last)
        continue;
      // Additions below may go with it.
      SmallVector<Operation *> below = {sum};
      SmallVector<Operation *> tree;
      while (!below.empty()) {
        Operation *op = below.pop_back_val();
        tree.push_back(op);
        for (Value operand : op->getOperands())
          if (auto add = operand.getDefiningOp<arith::AddFOp>();
              add && operand.hasOneUse())
            below.push_back(add);
      }
      mergePads(sum);
      gone.insert(tree.begin(), tree.end());
    }
    for (auto op : llvm::make_early_inc_range(func.getOps<dist::KeepFirstOp>()))
      expandKeepFirst(op);
    if (device == program::Device::Cuda)
      selectConvolutions(func);
    for (Operation &op : llvm::make_early_inc_range(func.getBody().front()))
      llvm::TypeSwitch<Operation *>(&op)
          .Case(expandConv)
          .Case(expandConvInputGrad)
          .Case(expandConvFilterGrad)
          .Case(expandPool)
          .Case(expandPoolGrad);
    for (auto op : llvm::make_early_inc_range(func.getOps<dist::WindowOp>()))
      if (failed(expandWindow(op)))
        return failure();
    for (auto op : llvm::make_early_inc_range(func.getOps<nn::EinsumOp>()))
      selectEinsum(op);
    for (rt::GemmOp gemm : SmallVector<rt::GemmOp>(func.getOps<rt::GemmOp>()))
      fuseEpilogue(gemm);
    for (auto op : llvm::make_early_inc_range(func.getOps<nn::AttentionOp>()))
      if (failed(selectAttention(op)))
        return failure();
    for (auto op :
         llvm::make_early_inc_range(func.getOps<nn::AttentionGradOp>()))
      if (failed(selectAttentionGrad(op)))
        return failure();
    for (auto op : llvm::make_early_inc_range(func.getOps<nn::GroupedDotOp>()))
      if (failed(selectGroupedDot(op)))
        return failure();
    for (auto op :
         llvm::make_early_inc_range(func.getOps<nn::GroupedOuterOp>()))
      if (failed(selectGroupedOuter(op)))
        return failure();
    for (auto op :
         llvm::make_early_inc_range(func.getOps<nn::PositionInExpertOp>()))
      if (failed(selectPositionInExpert(op)))
        return failure();
    eraseDead(func);
    return success();
  }
};
} // namespace
