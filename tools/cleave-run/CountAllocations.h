// The number of calls of malloc and its kin since the process began; always 0
// in sanitizer builds.
#ifndef CLEAVE_TOOLS_RUN_COUNTALLOCATIONS_H
#define CLEAVE_TOOLS_RUN_COUNTALLOCATIONS_H

#include <cstdint>

namespace cleave {
int64_t allocationCount();
}

#endif // CLEAVE_TOOLS_RUN_COUNTALLOCATIONS_H
