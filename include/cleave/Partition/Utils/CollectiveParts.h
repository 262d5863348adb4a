//===- CollectiveParts.h - parts of a message -------------------*- C++ -*-===//

#ifndef CLEAVE_PARTITION_UTILS_COLLECTIVEPARTS_H
#define CLEAVE_PARTITION_UTILS_COLLECTIVEPARTS_H

#include "mlir/IR/Operation.h"

namespace cleave::partition {

/// Removes from a collective the operands whose results have no readers, with
/// their entries of the attribute `dims`. Erases the collective if no operand
/// is left.
void dropUnreadParts(mlir::Operation *collective);

} // namespace cleave::partition

#endif // CLEAVE_PARTITION_UTILS_COLLECTIVEPARTS_H
