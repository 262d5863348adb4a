// The memory traffic that a command needs at least: a measure for how fast it
// ran.
#ifndef CLEAVE_RUNTIME_TRAFFIC_H
#define CLEAVE_RUNTIME_TRAFFIC_H

#include "cleave/program.h"

namespace cleave {

// Returns the bytes of all operands and results, counting each once. If ids
// choose rows or matrices (gathers, experts), all that can be chosen counts.
// Returns 0 for transfers, waits and calls, and for kernels that do not declare
// their accesses.
int64_t trafficOf(const program::Program &program,
                  const program::Command &command);

} // namespace cleave

#endif // CLEAVE_RUNTIME_TRAFFIC_H
