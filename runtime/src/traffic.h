// The least memory traffic of a command, from which the bandwidth that it
// achieves is computed.
#ifndef CLEAVE_RUNTIME_TRAFFIC_H
#define CLEAVE_RUNTIME_TRAFFIC_H

#include "cleave/program.h"

namespace cleave {

// Returns the bytes of all operands and results; each of them is counted once.
// If ids choose rows or matrices (gathers, experts), all rows or matrices that
// can be chosen are counted. Returns 0 for transfers, waits and calls, and for
// kernels that do not declare their accesses.
int64_t trafficOf(const program::Program &program,
                  const program::Command &command);

} // namespace cleave

#endif // CLEAVE_RUNTIME_TRAFFIC_H
