// Deliberate faults: the kinds, and how to make one.

#ifndef CLEAVE_CHECK_FAULTS_H
#define CLEAVE_CHECK_FAULTS_H

#include "cleave/program.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave::check {

/// The names of all kinds, in the order of the documentation.
const std::vector<std::string> &faultKinds();

/// The places of a local program that could have a fault of the kind, as
/// `injectFault` names them, by index.
std::vector<std::string> faultPlaces(mlir::ModuleOp module,
                                     llvm::StringRef kind);

/// Breaks the local program. On success `where` is the place (an operation and
/// its function) for people; on failure it says why there is no such fault.
/// `index` counts the places; a negative one stands for the middle.
mlir::LogicalResult injectFault(mlir::ModuleOp module, llvm::StringRef kind,
                                int64_t index, std::string &where);

/// Whether the kind is a mistake in the order of commands, so that a program of
/// values cannot show it.
bool isFaultOfCommands(llvm::StringRef kind);

/// Breaks command lists; otherwise as above. For the kinds of commands.
mlir::LogicalResult injectFault(program::Program &program, llvm::StringRef kind,
                                int64_t index, std::string &where);

} // namespace cleave::check

#endif
