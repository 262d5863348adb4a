//===- CollectiveParts.h - parts of a message -------------------*- C++ -*-===//

#ifndef CLEAVE_PARTITION_UTILS_COLLECTIVEPARTS_H
#define CLEAVE_PARTITION_UTILS_COLLECTIVEPARTS_H

#include "mlir/IR/Operation.h"

namespace cleave::partition {

/// Removes from a collective each operand whose result has no readers, together
/// with the operand's entry in the attribute `dims`. Erases the collective if
/// no operand is left.
void dropUnreadParts(mlir::Operation *collective);

} // namespace cleave::partition

#endif // CLEAVE_PARTITION_UTILS_COLLECTIVEPARTS_H
