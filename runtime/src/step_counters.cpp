// Variables that sessions and the step pool share. They exist even if no pool
// is linked.

#include "step_pool.h"

std::atomic<int> cleave::stepsRunning{0};
std::atomic<int64_t> cleave::stepPoolTaken{0};
std::atomic<int64_t> cleave::allocations{0};
