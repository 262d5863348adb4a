// nn-recompute-residuals: recomputes residuals that are cheap to compute from
// others.

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Fusion/Passes.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interfaces/ProgramWalk.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

#include <map>
#include <set>

namespace cleave {
#define GEN_PASS_DEF_RECOMPUTERESIDUALSPASS
#include "cleave/Fusion/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

/// The maximum number of operations that may be needed to recompute a residual.
static constexpr size_t kMostOps = 16;

static bool isOf(Operation *op, KernelClass kernelClass) {
  auto lowering = dyn_cast_or_null<LoweringInterface>(op);
  return lowering && lowering.getKernelClass() == kernelClass;
}

/// Returns whether all operations that read the value, directly or through
/// views, are elementwise.
static bool isReadElementwise(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    return isOf(user, KernelClass::Elementwise) ||
           (isOf(user, KernelClass::View) &&
            isReadElementwise(user->getResult(0)));
  });
}

namespace {

class Residuals {
public:
  explicit Residuals(func::FuncOp func) : block(actionBody(func)) {}

  void run() {
    for (auto save : block.getOps<nn::SaveOp>())
      if (!save.use_empty())
        saves.try_emplace(save.getInput(), save);
    for (auto save : block.getOps<nn::SaveOp>())
      consider(save);
    for (Group &group : groups)
      recompute(group);
  }

private:
  struct Group {
    SmallVector<nn::SaveOp> residuals;
    llvm::SetVector<Operation *> ops;
    llvm::SetVector<Value> leaves;
  };

  /// Decides whether to recompute a residual. It must be computed elementwise
  /// from residuals that stay saved, and all its readers must be elementwise.
  /// Residuals from which other residuals are recomputed stay saved.
  void consider(nn::SaveOp save) {
    if (save.use_empty() || needed.contains(save.getInput()) ||
        !isReadElementwise(save) ||
        !isOf(save.getInput().getDefiningOp(), KernelClass::Elementwise))
      return;
    Group found;
    if (!trace(save.getInput(), found) || found.leaves.empty())
      return;
    recomputed.insert(save.getInput());
    needed.insert(found.leaves.begin(), found.leaves.end());
    // Residuals that are recomputed from the same residuals are recomputed
    // together.
    std::set<void *> key;
    for (Value leaf : found.leaves)
      key.insert(leaf.getAsOpaquePointer());
    auto [at, isNew] = groupOf.try_emplace(std::move(key), groups.size());
    if (isNew)
      groups.emplace_back();
    Group &group = groups[at->second];
    group.residuals.push_back(save);
    group.ops.insert(found.ops.begin(), found.ops.end());
    group.leaves.insert(found.leaves.begin(), found.leaves.end());
  }

  /// Collects operations after their operands.
  bool trace(Value value, Group &found) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    if (found.ops.contains(op))
      return true;
    if (!isOf(op, KernelClass::Elementwise) && !isOf(op, KernelClass::View))
      return false;
    for (Value operand : op->getOperands()) {
      bool stays = saves.count(operand) && !recomputed.contains(operand);
      if (stays)
        found.leaves.insert(operand);
      else if (!trace(operand, found))
        return false;
    }
    found.ops.insert(op);
    return found.ops.size() <= kMostOps;
  }

  void recompute(Group &group) {
    Operation *first = nullptr;
    for (nn::SaveOp save : group.residuals)
      for (Operation *user : save->getUsers()) {
        Operation *at = block.findAncestorOpInBlock(*user);
        if (!first || at->isBeforeInBlock(first))
          first = at;
      }
    for (Value leaf : group.leaves)
      if (!saves.lookup(leaf)->isBeforeInBlock(first))
        return;
    OpBuilder b(first);
    IRMapping again;
    for (Value leaf : group.leaves)
      again.map(leaf, saves.lookup(leaf).getResult());
    for (Operation *op : group.ops)
      b.clone(*op, again);
    for (nn::SaveOp save : group.residuals) {
      save.replaceAllUsesWith(again.lookup(save.getInput()));
      save.erase();
    }
  }

  Block &block;
  llvm::DenseMap<Value, nn::SaveOp> saves;
  llvm::DenseSet<Value> recomputed, needed;
  std::map<std::set<void *>, size_t> groupOf; // by leaves
  std::vector<Group> groups;
};

struct RecomputeResidualsPass
    : cleave::impl::RecomputeResidualsPassBase<RecomputeResidualsPass> {
  using Base::Base;

  void runOnOperation() override {
    for (func::FuncOp func : actionsOf(getOperation()))
      Residuals(func).run();
  }
};
} // namespace
