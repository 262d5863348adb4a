// The kinds of injected faults, and functions that inject them.

#ifndef CLEAVE_CHECK_FAULTS_H
#define CLEAVE_CHECK_FAULTS_H

#include "cleave/program.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave::check {

/// The names of all kinds, in the order of the documentation.
const std::vector<std::string> &faultKinds();

/// Returns the places of a per-rank program at which a fault of this kind is
/// possible. Each place is described by an operation and its function. The
/// argument `index` of `injectFault` is an index into this list.
std::vector<std::string> faultPlaces(mlir::ModuleOp module,
                                     llvm::StringRef kind);

/// Injects a fault into the per-rank program. On success `where` describes the
/// place (an operation and its function); on failure, it states why the fault
/// is not possible. `index` selects the place; a negative index selects the
/// middle one.
mlir::LogicalResult injectFault(mlir::ModuleOp module, llvm::StringRef kind,
                                int64_t index, std::string &where);

/// Returns whether faults of this kind are in command lists, because SSA form
/// cannot express them.
bool isFaultOfCommands(llvm::StringRef kind);

/// Injects a fault into command lists, for the kinds for which
/// `isFaultOfCommands` returns true.
mlir::LogicalResult injectFault(program::Program &program, llvm::StringRef kind,
                                int64_t index, std::string &where);

} // namespace cleave::check

#endif
