//===- CollectiveParts.h - parts of a message -------------------*- C++ -*-===//

#ifndef CLEAVE_PARTITION_UTILS_COLLECTIVEPARTS_H
#define CLEAVE_PARTITION_UTILS_COLLECTIVEPARTS_H

#include "mlir/IR/Operation.h"

namespace cleave::partition {

/// Drops the operands of a collective with `dims` whose results have no
/// readers. Erases the collective if none is left.
void dropUnreadParts(mlir::Operation *collective);

} // namespace cleave::partition

#endif // CLEAVE_PARTITION_UTILS_COLLECTIVEPARTS_H
