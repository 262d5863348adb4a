// Splits a collective into a start and an end.

#ifndef CLEAVE_LIB_SCHEDULE_SPLIT_H
#define CLEAVE_LIB_SCHEDULE_SPLIT_H

#include "cleave/Dialect/RT/IR/RT.h"

namespace cleave::schedule {

/// Whether a collective may be asynchronous; one under a condition may not.
bool maySplit(rt::CollectiveOp collective);
/// Whether the collective's start was already placed: the passes that create
/// the tiles of a ring and the dispatch of experts place them.
bool isPlaced(rt::CollectiveOp collective);

/// Creates the start of a collective, which remains in place.
rt::CollectiveOp startOf(mlir::OpBuilder &b, rt::CollectiveOp collective);
/// Creates the end of `started` and replaces the collective by it.
void endOf(mlir::OpBuilder &b, rt::CollectiveOp started,
           rt::CollectiveOp collective);

} // namespace cleave::schedule

#endif
