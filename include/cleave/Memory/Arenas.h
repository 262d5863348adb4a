// The arenas of a program whose memory is planned.

#ifndef CLEAVE_MEMORY_ARENAS_H
#define CLEAVE_MEMORY_ARENAS_H

#include "mlir/IR/BuiltinOps.h"

namespace cleave {

/// Bytes of the arenas of a program without stages.
struct PlannedArenas {
  int64_t state = 0, transient = 0;
  /// What a rank needs at most.
  int64_t peak() const { return state + transient; }
};
/// Reports a module without them, which rt-plan-memory has not seen.
mlir::FailureOr<PlannedArenas> plannedArenas(mlir::ModuleOp module);

} // namespace cleave

#endif
