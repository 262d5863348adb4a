// Runs passes. All pass managers are run by one function, so that the user's
// settings (IR after each pass, timing, a reproducer) apply to all of them.

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
/// `phase` names the passes in timing reports and in the names of dumped files:
/// the phase as `cleave compile --emit` calls it, and if the phase runs passes
/// several times, what they do: "shard", "train-loss". If `dumps` is true and
/// the user asked for dumps (PassFlags::dumpInto), the result is written to a
/// file; it is false for the passes that compile a single kernel.
mlir::LogicalResult
runPasses(mlir::Operation *op, llvm::StringRef phase,
          llvm::function_ref<void(mlir::OpPassManager &)> build,
          bool dumps = true);

/// The settings of a process for all passes that it runs, in all threads. At
/// most one object may exist at a time. Without an object, passes run silently.
class PassFlags {
public:
  PassFlags();
  ~PassFlags();
  PassFlags(const PassFlags &) = delete;
  PassFlags &operator=(const PassFlags &) = delete;

  /// Takes MLIR's flags for passes (`--mlir-print-ir-after-all`,
  /// `--mlir-timing`, `--mlir-pass-pipeline-crash-reproducer=FILE`, ...).
  /// Returns an error message, or "". Messages begin with `program`.
  std::string parse(const char *program, const std::vector<std::string> &flags);

  /// Prints the timing report, if requested. Called once, after all passes have
  /// run.
  void report();

  /// Writes the module after each call of runPasses into this folder, as
  /// NUMBER-PHASE.mlir. Creates the folder if necessary, and removes the dumps
  /// of earlier processes from it. Returns an error message, or "".
  std::string dumpInto(const std::string &folder);

  /// Returns whether the file is a dump, by its name and its first line.
  static bool isDump(const std::string &path);

  /// Returns whether the user gave settings (flags to `parse`, or a folder to
  /// `dumpInto`) that had no effect, because no pass has run.
  bool areUnused() const;

  struct State;

private:
  std::unique_ptr<State> state;
};

} // namespace cleave

#endif // CLEAVE_SUPPORT_PASSES_H
