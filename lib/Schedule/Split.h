// A collective as a start and an end.

#ifndef CLEAVE_LIB_SCHEDULE_SPLIT_H
#define CLEAVE_LIB_SCHEDULE_SPLIT_H

#include "cleave/Dialect/RT/IR/RT.h"

namespace cleave::schedule {

/// The start of a collective that is still there.
rt::CollectiveOp startOf(mlir::OpBuilder &b, rt::CollectiveOp collective);
/// Ends what `startOf` has given, and takes the collective's place.
void endOf(mlir::OpBuilder &b, rt::CollectiveOp started,
           rt::CollectiveOp collective);

} // namespace cleave::schedule

#endif
