// nn-select-library: selects the operations that become library calls.

#include "SelectLibrary.h"
#include "cleave/Conversion/ToRT/Passes.h"
#include "cleave/Interfaces/ProgramWalk.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/TypeSwitch.h"

namespace cleave {
#define GEN_PASS_DEF_SELECTLIBRARYPASS
#include "cleave/Conversion/ToRT/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

/// Returns the operands of the sum `value`; empty if `value` is not a sum. A
/// bf16 sum is an f32 addition of extended operands with a rounded result; its
/// bf16 operands are returned.
static SmallVector<Value, 2> termsOf(Value value) {
  auto rounding = value.getDefiningOp<arith::TruncFOp>();
  Value sum = rounding ? rounding.getIn() : value;
  auto add = sum.getDefiningOp<arith::AddFOp>();
  if (!add || (rounding && !sum.hasOneUse()))
    return {};
  SmallVector<Value, 2> terms(add->getOperands());
  if (rounding)
    for (Value &term : terms) {
      auto widened = term.getDefiningOp<arith::ExtFOp>();
      if (!widened || widened.getIn().getType() != value.getType() ||
          !term.hasOneUse())
        return {};
      term = widened.getIn();
    }
  return terms;
}

/// Returns the result of `add` or, if it is part of a bf16 sum (see termsOf),
/// the rounded result.
static Value resultOf(arith::AddFOp add) {
  Value sum = add.getResult();
  if (sum.hasOneUse())
    if (auto rounding = dyn_cast<arith::TruncFOp>(*sum.user_begin());
        rounding && !termsOf(rounding.getOut()).empty())
      return rounding.getOut();
  return sum;
}

/// Returns whether the sum is an operand of another sum.
static bool isTerm(Value sum) {
  return llvm::any_of(sum.getUsers(), [](Operation *user) {
    if (isa<arith::ExtFOp>(user) && user->hasOneUse())
      user = *user->user_begin();
    return isa<arith::AddFOp>(user);
  });
}

/// Collects the nn.pad operations whose sum is `value`. Returns false if
/// `value` is not a sum of nn.pad operations.
static bool collectPads(Value value, SmallVectorImpl<nn::PadOp> &pads) {
  if (auto pad = value.getDefiningOp<nn::PadOp>()) {
    pads.push_back(pad);
    return value.hasOneUse() && pad.getValue().isZero();
  }
  SmallVector<Value, 2> terms = termsOf(value);
  return !terms.empty() && value.hasOneUse() &&
         llvm::all_of(terms,
                      [&](Value term) { return collectPads(term, pads); });
}

void cleave::mergePads(arith::AddFOp add) {
  SmallVector<nn::PadOp> pads;
  Value sum = resultOf(add);
  for (Value term : termsOf(sum))
    if (!collectPads(term, pads))
      return;
  // The only dimension in which the nn.pad operations add elements becomes the
  // dimension of the concatenation.
  auto type = typeOf(sum);
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
  OpBuilder b(sum.getDefiningOp());
  Value whole = nn::ConcatOp::create(b, add.getLoc(), inputs, dim);
  sum.replaceAllUsesWith(whole);
  SmallVector<Operation *> dead = {sum.getDefiningOp()};
  while (!dead.empty()) {
    Operation *op = dead.pop_back_val();
    if (!op->use_empty() ||
        !isa<arith::AddFOp, arith::ExtFOp, arith::TruncFOp, nn::PadOp>(op))
      continue;
    for (Value operand : op->getOperands())
      if (Operation *def = operand.getDefiningOp())
        dead.push_back(def);
    op->erase();
  }
}

/// Erases view operations that became strides.
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
    for (func::FuncOp func : commandListsOf(getOperation()))
      if (failed(select(func)))
        return signalPassFailure();
  }

  LogicalResult select(func::FuncOp func) {
    // A sum of several nn.pad operations is a chain of additions. The additions
    // are visited in reverse order, so that the last one, whose result is the
    // whole sum, comes first.
    SmallVector<arith::AddFOp> sums(func.getOps<arith::AddFOp>());
    llvm::DenseSet<Operation *> gone;
    for (arith::AddFOp sum : llvm::reverse(sums)) {
      if (gone.contains(sum))
        continue;
      if (isTerm(resultOf(sum)))
        continue;
      // Collects this addition and the earlier additions that compute its
      // terms. If the sum becomes a concatenation, all of them are erased.
      SmallVector<Value> below = {resultOf(sum)};
      SmallVector<Operation *> tree = {sum};
      while (!below.empty())
        for (Value term : termsOf(below.pop_back_val()))
          if (!termsOf(term).empty() && term.hasOneUse()) {
            below.push_back(term);
            Operation *op = term.getDefiningOp();
            if (auto rounding = dyn_cast<arith::TruncFOp>(op))
              op = rounding.getIn().getDefiningOp();
            tree.push_back(op);
          }
      mergePads(sum);
      gone.insert(tree.begin(), tree.end());
    }
    for (auto op : llvm::make_early_inc_range(func.getOps<dist::KeepFirstOp>()))
      expandKeepFirst(op);
    if (device == program::Device::Cuda)
      selectConvolutions(func);
    for (Operation &op : llvm::make_early_inc_range(actionBody(func)))
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
      selectEinsum(op, device);
    for (rt::GemmOp gemm : SmallVector<rt::GemmOp>(func.getOps<rt::GemmOp>()))
      fuseEpilogue(gemm, device);
    if (device == program::Device::Cuda)
      fuseOperandSums(func);
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
