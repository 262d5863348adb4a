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
/// `phase`, such as "shard", names the passes in timing reports and in dumped
/// files. If `dumps` is true and the user asked for dumps
/// (PassFlags::dumpInto), the result is written to a file; it is false for the
/// passes that compile a single kernel.
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

  /// Writes the module after each phase into this existing folder, as
  /// NUMBER-PHASE.mlir.
  void dumpInto(const std::string &folder);

  /// Returns whether the user gave settings (flags to `parse`, or a folder to
  /// `dumpInto`) that had no effect, because no pass has run.
  bool areUnused() const;

  struct State;

private:
  std::unique_ptr<State> state;
};

} // namespace cleave

#endif // CLEAVE_SUPPORT_PASSES_H
