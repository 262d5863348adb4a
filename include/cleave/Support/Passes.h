// How passes are run: by one function, so that what a user asks of one pass
// manager (IR after each pass, times, a reproducer) holds for all.

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

/// Runs what `build` adds on the operation, a module as a rule. `phase` names
/// it in reports of times and in dumped files, e.g. "shard". `dumps`: the
/// result is one to dump, which a single kernel is not.
mlir::LogicalResult
runPasses(mlir::Operation *op, llvm::StringRef phase,
          llvm::function_ref<void(mlir::OpPassManager &)> build,
          bool dumps = true);

/// What a process asks of all passes that it runs, in all threads. One object
/// at a time; without one, passes run silently.
class PassFlags {
public:
  PassFlags();
  ~PassFlags();
  PassFlags(const PassFlags &) = delete;
  PassFlags &operator=(const PassFlags &) = delete;

  /// Takes MLIR's flags of passes (`--mlir-print-ir-after-all`,
  /// `--mlir-timing`, `--mlir-pass-pipeline-crash-reproducer=FILE`, ...).
  /// Returns what is wrong with them, or "". `program` begins messages.
  std::string parse(const char *program, const std::vector<std::string> &flags);

  /// Prints times, where they were asked for; once, when all passes have run.
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
