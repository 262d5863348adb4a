// The commands of one function as OverlapPlan.h and FillWaits.h see them.

#ifndef CLEAVE_LIB_SCHEDULE_ACTION_H
#define CLEAVE_LIB_SCHEDULE_ACTION_H

#include "CommandTimes.h"
#include "FillWaits.h"
#include "OverlapPlan.h"

#include "cleave/Memory/ActionPlan.h"

namespace cleave::schedule {

/// Views take no memory of their own: they may stand where they are read.
void sinkViews(mlir::Block &block);

class Action {
public:
  /// `memory`: what lives when, in the order that the function has now.
  Action(mlir::func::FuncOp func, const memory::ActionPlan &memory,
         const CommandTimes &times);

  /// The most bytes alive at once, and what the largest collective gives.
  int64_t most() const { return mostAlive; }
  int64_t largestResult() const;
  /// Whether no collective may start elsewhere than where it stands.
  bool isEmpty() const;

  OverlapPlan plan(int64_t budget) const {
    return planOverlap(steps, transfers, live, budget, contention);
  }
  /// Moves commands to where the plan waits. False where there is nothing to
  /// move.
  bool fillWaits(const OverlapPlan &plan, const memory::ActionPlan &memory);
  /// Starts and ends collectives as planned.
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
