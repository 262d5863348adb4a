// What sessions and the step pool tell each other; there may be no pool.

#include "step_pool.h"

std::atomic<int> cleave::stepsRunning{0};
std::atomic<int64_t> cleave::stepPoolTaken{0};
std::atomic<int64_t> cleave::allocations{0};
