// Runs passes. All pass managers run by one function, so that the user's
// settings (IR after each pass, times, a reproducer) apply to all.

#ifndef CLEAVE_SUPPORT_PASSES_H
#define CLEAVE_SUPPORT_PASSES_H

#include "mlir/IR/Operation.h"
#include "mlir/Pass/PassManager.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave {

/// Runs the passes that `build` adds on the operation, usually a module.
/// `phase` names them in reports of times and in dumped files, e.g. "shard".
/// `dumps`: whether the result is dumped; that of a single kernel is not.
mlir::LogicalResult
runPasses(mlir::Operation *op, llvm::StringRef phase,
          llvm::function_ref<void(mlir::OpPassManager &)> build,
          bool dumps = true);

/// The settings of a process for all passes that it runs, in all threads. There
/// may be one object at a time; without one, passes run silently.
class PassFlags {
public:
  PassFlags();
  ~PassFlags();
  PassFlags(const PassFlags &) = delete;
  PassFlags &operator=(const PassFlags &) = delete;

  /// Takes MLIR's flags of passes (`--mlir-print-ir-after-all`,
  /// `--mlir-timing`, `--mlir-pass-pipeline-crash-reproducer=FILE`, ...).
  /// Returns an error message, or "". `program` begins messages.
  std::string parse(const char *program, const std::vector<std::string> &flags);

  /// Prints times, if requested. Called once, when all passes have run.
  void report();

  /// Writes the module after each phase into this folder, which exists, as
  /// NUMBER-PHASE.mlir.
  void dumpInto(const std::string &folder);

  struct State;

private:
  std::unique_ptr<State> state;
};

} // namespace cleave

#endif // CLEAVE_SUPPORT_PASSES_H
