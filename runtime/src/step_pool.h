// Keeps steps free of allocations after warm-up.
// Our own code allocates nothing in a step, but oneDNN allocates small nodes
// and packing buffers in every call. An executable that links step_pool.cpp
// replaces the process's allocator by one that recycles memory freed during a
// step in later steps. See runtime/README.md.
#ifndef CLEAVE_RUNTIME_STEP_POOL_H
#define CLEAVE_RUNTIME_STEP_POOL_H

#include <atomic>
#include <cstdint>

namespace cleave {

// Written by sessions, read by the pool.
extern std::atomic<int> stepsRunning;
// The bytes that the pool (if there is one) has taken from the system.
extern std::atomic<int64_t> stepPoolTaken;
// The number of calls of malloc and related functions that recycling did not
// serve, over the lifetime of the process.
extern std::atomic<int64_t> allocations;

inline int64_t stepPoolBytes() { return stepPoolTaken.load(); }

// While an object of this class exists, allocations of all threads are
// attributed to a step.
struct StepScope {
  StepScope() { stepsRunning.fetch_add(1, std::memory_order_acq_rel); }
  ~StepScope() { stepsRunning.fetch_sub(1, std::memory_order_acq_rel); }
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_STEP_POOL_H
