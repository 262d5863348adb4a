// Injects faults, that is, deliberate mistakes, into the programs of
// `cleave check`, to show that the check detects them.

#ifndef CLEAVE_CHECK_FAULTS_H
#define CLEAVE_CHECK_FAULTS_H

#include "cleave/program.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cleave::check {

/// Returns the names of all kinds of faults, in the order of docs/check.md.
const std::vector<std::string> &faultKinds();

/// Returns a description of each operation of a per-rank program at which a
/// fault of this kind can be injected: the operation and its function. The
/// argument `index` of `injectFault` is an index into the returned list.
std::vector<std::string> faultPlaces(mlir::ModuleOp module,
                                     llvm::StringRef kind);

/// Injects a fault into the per-rank program. `index` selects one of the
/// operations that `faultPlaces` returns; a negative index selects the middle
/// one. On success, `where` describes the operation and its function; on
/// failure, `where` states why the fault is not possible.
mlir::LogicalResult injectFault(mlir::ModuleOp module, llvm::StringRef kind,
                                int64_t index, std::string &where);

/// Returns whether faults of this kind are injected into the command lists of
/// the compiled program. Such faults are wrong orders or wrong memory of
/// commands, which a program in SSA form cannot express.
bool isFaultOfCommands(llvm::StringRef kind);

/// Injects a fault into the command lists of a compiled program, for the kinds
/// for which `isFaultOfCommands` returns true. `index` and `where` are as
/// above, but count and describe commands.
mlir::LogicalResult injectFault(program::Program &program, llvm::StringRef kind,
                                int64_t index, std::string &where);

} // namespace cleave::check

#endif
