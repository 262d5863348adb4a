// The arena sizes of a program after rt-plan-memory.

#ifndef CLEAVE_MEMORY_ARENAS_H
#define CLEAVE_MEMORY_ARENAS_H

#include "mlir/IR/BuiltinOps.h"

namespace cleave {

/// The sizes in bytes of the two arenas of a program without pipeline stages:
/// `state` has the named buffers, `transient` the temporary values of actions.
struct PlannedArenas {
  int64_t state = 0, transient = 0;
  /// Returns the memory that a rank needs, in bytes.
  int64_t peak() const { return state + transient; }
};
/// Reads the arena sizes of a module. Reports an error if rt-plan-memory has
/// not run.
mlir::FailureOr<PlannedArenas> plannedArenas(mlir::ModuleOp module);

} // namespace cleave

#endif
