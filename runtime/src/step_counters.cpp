// Variables that sessions share with the step pool, the allocator that recycles
// memory from step to step (step_pool.cpp). They are defined here because not
// every executable links the pool.

#include "step_pool.h"

std::atomic<int> cleave::stepsRunning{0};
std::atomic<int64_t> cleave::stepPoolTaken{0};
std::atomic<int64_t> cleave::allocations{0};
