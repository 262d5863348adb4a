// Mistakes that a partitioner could make, injected between its passes.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_BUGS_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_BUGS_H

#include "Runner.h"

namespace cleave::random {

llvm::ArrayRef<Bug> plantedBugs();

/// Runs random programs until one of them reveals the bug. If the runner checks
/// proofs, only a program that the proof rejects counts.
struct Found {
  int64_t number = -1; // of the case
  Outcome outcome;
};
Found huntBug(const Bug &bug, Runner &runner, uint64_t seed, int64_t cases,
              Style style = {});

} // namespace cleave::random

#endif
