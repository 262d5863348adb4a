// Injected faults: their kinds, and how to inject one.

#ifndef CLEAVE_CHECK_FAULTS_H
#define CLEAVE_CHECK_FAULTS_H

#include "cleave/program.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave::check {

/// The names of all kinds, in the order of the documentation.
const std::vector<std::string> &faultKinds();

/// The places of a per-rank program that could have a fault of the kind, as
/// `injectFault` names them, by index.
std::vector<std::string> faultPlaces(mlir::ModuleOp module,
                                     llvm::StringRef kind);

/// Injects a fault into the per-rank program. On success `where` describes the
/// place (an operation and its function); on failure it says why the fault is
/// not possible. `index` selects the place; a negative one selects the middle.
mlir::LogicalResult injectFault(mlir::ModuleOp module, llvm::StringRef kind,
                                int64_t index, std::string &where);

/// Whether the kind is a mistake in command lists, which SSA form cannot
/// express.
bool isFaultOfCommands(llvm::StringRef kind);

/// The same for command lists and the kinds of `isFaultOfCommands`.
mlir::LogicalResult injectFault(program::Program &program, llvm::StringRef kind,
                                int64_t index, std::string &where);

} // namespace cleave::check

#endif
