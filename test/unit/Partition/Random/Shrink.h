// Reduces a failing program (cleave/Reduce/Reduce.h) as long as it still fails
// in the same way.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_SHRINK_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_SHRINK_H

#include "Runner.h"

namespace cleave::random {

/// Returns the seed of case `number` of a run.
inline uint64_t caseSeed(uint64_t run, int64_t number) {
  return Random::mix(Random::mix(run) + uint64_t(number));
}

/// Shrinks the program, prints it, and writes it to `path`.
void reportShrunk(mlir::ModuleOp program, uint64_t seed, Runner &runner,
                  const Outcome &outcome, llvm::StringRef path);

/// Runs a file that reportShrunk wrote; returns the exit code.
int replayFile(llvm::StringRef path, Runner &runner,
               mlir::MLIRContext *context);

} // namespace cleave::random

#endif
