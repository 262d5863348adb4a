// The memory that a command has to read and write: a measure for how fast it
// was.
#ifndef CLEAVE_RUNTIME_TRAFFIC_H
#define CLEAVE_RUNTIME_TRAFFIC_H

#include "cleave/program.h"

namespace cleave {

// Bytes of all operands and results, each once. Where ids choose, as for a
// gather or for experts, all that can be chosen counts. 0 for transfers, waits
// and calls, and for kernels of which the program does not say it.
int64_t trafficOf(const program::Program &program,
                  const program::Command &command);

} // namespace cleave

#endif // CLEAVE_RUNTIME_TRAFFIC_H
