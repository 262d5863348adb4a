// Calls of malloc in the whole process, libraries included: a step after the
// first few must make none (counters.json shows it). The step pool, which this
// executable links, sees them all; see runtime/README.md.
#include "CountAllocations.h"

#include "cleave/runtime.h"

int64_t cleave::allocationCount() { return cleave_allocation_count(); }
