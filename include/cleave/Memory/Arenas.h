// The arenas of a program whose memory is planned.

#ifndef CLEAVE_MEMORY_ARENAS_H
#define CLEAVE_MEMORY_ARENAS_H

#include "mlir/IR/BuiltinOps.h"

namespace cleave {

/// Bytes of the arenas of a program without stages.
struct PlannedArenas {
  int64_t state = 0, transient = 0;
  /// The most memory that a rank needs.
  int64_t peak() const { return state + transient; }
};
/// Reports a module that rt-plan-memory has not planned.
mlir::FailureOr<PlannedArenas> plannedArenas(mlir::ModuleOp module);

} // namespace cleave

#endif
