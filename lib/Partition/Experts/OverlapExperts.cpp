//===- OverlapExperts.cpp - dist-overlap-experts --------------------------===//
//
// On per-rank programs: moves independent computation between the dispatch or
// combine of tokens and its first reader.
//
//===----------------------------------------------------------------------===//

#include "cleave/Cost/LinkModel.h"
#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Support/ValueUtils.h"

#include "llvm/ADT/SetVector.h"

namespace cleave {
#define GEN_PASS_DEF_DISTOVERLAPEXPERTSPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

namespace {

/// Returns the FLOPs of a library call, such as a product or an attention, for
/// which overlap is worthwhile; 0 for other operations.
double flopsOf(Operation *op) {
  auto lowering = dyn_cast<LoweringInterface>(op);
  auto model = dyn_cast<CostInterface>(op);
  bool calls = lowering && lowering.getKernelClass() == KernelClass::Library;
  return calls && model ? double(model.getFlops()) : 0;
}

/// One exchange of tokens, with its first reader and the computation that can
/// overlap with it.
class Exchange {
public:
  explicit Exchange(AllToAllVOp op) : op(op) {
    for (Operation *user : op->getUsers())
      if (user->getBlock() == op->getBlock() &&
          (!reader || user->isBeforeInBlock(reader)))
        reader = user;
  }

  /// Moves computation that takes up to `seconds`, and does not need the
  /// exchanged tokens, from after the first reader of the exchange to before
  /// it.
  void fill(double seconds, const Cluster &cluster) {
    if (!reader)
      return;
    llvm::SmallPtrSet<Operation *, 32> fixed;
    SmallVector<Operation *> following;
    for (Operation *next = reader; next; next = next->getNextNode())
      following.push_back(next);
    for (Operation *next : following) {
      if (seconds <= 0)
        return;
      if (!isMovable(next, fixed)) {
        fixed.insert(next);
        continue;
      }
      double flops = flopsOf(next);
      if (flops == 0)
        continue;
      for (Operation *needed : neededBy(next))
        needed->moveBefore(reader);
      seconds -= cluster.matmulSeconds(flops);
    }
  }

private:
  /// Returns whether an operation and its operands can move before the first
  /// reader. They must not depend on the exchanged tokens, communicate, or
  /// belong to another action of the pipeline schedule.
  bool isMovable(Operation *next,
                 const llvm::SmallPtrSetImpl<Operation *> &fixed) const {
    if (next == reader || next->getNumRegions() != 0 || !isPure(next) ||
        isa<CollectiveOpInterface>(next) || next->hasAttr(kWhenAttrName) ||
        next->getAttr(kActionAttr) != op->getAttr(kActionAttr) ||
        next->hasTrait<OpTrait::IsTerminator>())
      return false;
    return llvm::none_of(next->getOperands(), [&](Value operand) {
      Operation *def = operand.getDefiningOp();
      return def && (def == op || fixed.contains(def));
    });
  }

  /// Returns the operation and those operations after the first reader that
  /// compute its operands, in program order.
  SmallVector<Operation *> neededBy(Operation *next) const {
    llvm::SetVector<Operation *> needed;
    needed.insert(next);
    for (size_t i = 0; i < needed.size(); ++i)
      for (Value operand : needed[i]->getOperands())
        if (Operation *def = operand.getDefiningOp();
            def && def->getBlock() == op->getBlock() &&
            reader->isBeforeInBlock(def))
          needed.insert(def);
    SmallVector<Operation *> ordered(needed.begin(), needed.end());
    llvm::sort(ordered, [](Operation *a, Operation *b) {
      return a->isBeforeInBlock(b);
    });
    return ordered;
  }

  AllToAllVOp op;
  Operation *reader = nullptr;
};

struct DistOverlapExpertsPass
    : cleave::impl::DistOverlapExpertsPassBase<DistOverlapExpertsPass> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<cost::Machine> machine =
        cost::Machine::load(getOperation(), cluster);
    if (failed(machine))
      return signalPassFailure();
    for (auto func : getOperation().getOps<func::FuncOp>())
      func.walk([&](AllToAllVOp op) {
        // Skips exchanges of integers (expert ids), which are too small to
        // overlap with computation. Also skips exchange rounds after the first,
        // which run only if tokens did not fit into the first round.
        auto type = typeOf(op.getInputs()[0]);
        if (!isa<FloatType>(type.getElementType()) ||
            op->hasAttr(kWhenAttrName))
          return;
        AxisSet group = setOf(machine->mesh.decompose(op.getAxes().getAxes()));
        double seconds =
            machine->links.allToAll(group, double(op.getPayloadBytes()));
        Exchange(op).fill(seconds, machine->cluster);
      });
  }
};

} // namespace
