// Splits a collective into a start and an end.

#ifndef CLEAVE_LIB_SCHEDULE_SPLIT_H
#define CLEAVE_LIB_SCHEDULE_SPLIT_H

#include "cleave/Dialect/RT/IR/RT.h"

namespace cleave::schedule {

/// Returns whether a collective may be asynchronous; a conditional collective
/// may not.
bool maySplit(rt::CollectiveOp collective);
/// Returns whether another pass already placed the collective's start. The
/// passes that create ring exchanges and the dispatch of experts do so.
bool isPlaced(rt::CollectiveOp collective);

/// Creates the start of an asynchronous collective. The original collective
/// remains in place.
rt::CollectiveOp startOf(mlir::OpBuilder &b, rt::CollectiveOp collective);
/// Creates the wait of `started`, and replaces the results of the collective by
/// those of the wait.
void endOf(mlir::OpBuilder &b, rt::CollectiveOp started,
           rt::CollectiveOp collective);

} // namespace cleave::schedule

#endif
