// Converts the commands of one function to the lists that OverlapPlan.h and
// FillWaits.h use.

#ifndef CLEAVE_LIB_SCHEDULE_ACTION_H
#define CLEAVE_LIB_SCHEDULE_ACTION_H

#include "CommandTimes.h"
#include "FillWaits.h"
#include "OverlapPlan.h"

#include "cleave/Memory/ActionPlan.h"

namespace cleave::schedule {

/// Moves views, which take no memory, to their first readers.
void sinkViews(mlir::Block &block);

class Action {
public:
  /// `memory` has the lifetimes of values in the function's current order.
  Action(mlir::func::FuncOp func, const memory::ActionPlan &memory,
         const CommandTimes &times);

  /// most() returns the peak of live bytes, and largestResult() the bytes of
  /// the largest collective's results.
  int64_t most() const { return mostAlive; }
  int64_t largestResult() const;
  /// Returns whether no collective can be moved.
  bool isEmpty() const;

  OverlapPlan plan(int64_t budget) const {
    return planOverlap(steps, transfers, live, budget, contention);
  }
  /// The plan has waits, in which compute stops for a collective. Moves
  /// commands into these waits. Returns false if nothing moves.
  bool fillWaits(const OverlapPlan &plan, const memory::ActionPlan &memory);
  /// Splits collectives into starts and waits, at the places that the plan
  /// states.
  void apply(const OverlapPlan &plan);

private:
  void addTransfer(Transfer &transfer, rt::CollectiveOp collective,
                   const memory::ActionPlan &memory);
  std::vector<Placed> list(const OverlapPlan &plan,
                           const memory::ActionPlan &memory) const;

  const double contention;
  mlir::Block &block;
  mlir::Operation *end;
  llvm::SmallVector<mlir::Operation *> ops; ///< by step
  llvm::SmallVector<rt::CollectiveOp> collectives;
  llvm::SmallVector<Step> steps;
  llvm::SmallVector<Transfer> transfers;
  std::vector<int64_t> live;
  int64_t mostAlive = 0;
  llvm::DenseMap<mlir::Operation *, size_t> stepOf, transferOf;
  llvm::DenseMap<mlir::Operation *, int64_t> positionOf;
};

} // namespace cleave::schedule

#endif
