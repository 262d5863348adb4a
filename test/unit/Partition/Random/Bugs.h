// Injected partitioner bugs: changes made to a program between the passes.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_BUGS_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_BUGS_H

#include "Runner.h"

namespace cleave::random {

llvm::ArrayRef<Bug> plantedBugs();

/// Runs random programs until one exposes the bug. If the runner runs the
/// proof, only programs that the proof rejects count.
struct Found {
  int64_t number = -1; // index of the case
  Outcome outcome;
};
Found huntBug(const Bug &bug, Runner &runner, uint64_t seed, int64_t cases,
              Style style = {});

} // namespace cleave::random

#endif
