// Makes a failing program small: fewer results, operations, shardings, axes,
// smaller sizes, as long as it fails in the same way.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_SHRINK_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_SHRINK_H

#include "Runner.h"

namespace cleave::random {

/// Seed of one case of a run.
inline uint64_t caseSeed(uint64_t run, int64_t number) {
  return Random::mix(Random::mix(run) + uint64_t(number));
}

/// The smallest program found. `fails` says whether a candidate still fails.
mlir::OwningOpRef<mlir::ModuleOp>
shrink(mlir::ModuleOp program, llvm::function_ref<bool(mlir::ModuleOp)> fails);

/// Shrinks, prints, and writes to `path`.
void reportShrunk(mlir::ModuleOp program, uint64_t seed, Runner &runner,
                  const Outcome &outcome, llvm::StringRef path);

/// Runs a file that reportShrunk wrote; the exit code.
int replayFile(llvm::StringRef path, Runner &runner,
               mlir::MLIRContext *context);

} // namespace cleave::random

#endif
