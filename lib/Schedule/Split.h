// A collective as a start and an end.

#ifndef CLEAVE_LIB_SCHEDULE_SPLIT_H
#define CLEAVE_LIB_SCHEDULE_SPLIT_H

#include "cleave/Dialect/RT/IR/RT.h"

namespace cleave::schedule {

/// Whether a collective's start and end may lie apart: what comes under a
/// condition ends where it begins.
bool maySplit(rt::CollectiveOp collective);
/// Tiles of a ring and rows of experts start where the passes that make them
/// have put them.
bool isPlaced(rt::CollectiveOp collective);

/// The start of a collective that is still there.
rt::CollectiveOp startOf(mlir::OpBuilder &b, rt::CollectiveOp collective);
/// Ends what `startOf` has given, and takes the collective's place.
void endOf(mlir::OpBuilder &b, rt::CollectiveOp started,
           rt::CollectiveOp collective);

} // namespace cleave::schedule

#endif
