// No step allocates after warm-up. Our own code does not; oneDNN allocates
// small nodes and packing buffers in every call. An executable that links
// step_pool.cpp replaces the process's allocator by one that keeps what is
// freed during a step for the next steps. See runtime/README.md.
#ifndef CLEAVE_RUNTIME_STEP_POOL_H
#define CLEAVE_RUNTIME_STEP_POOL_H

#include <atomic>
#include <cstdint>

namespace cleave {

// Written by sessions, read by the pool.
extern std::atomic<int> stepsRunning;
// Written by the pool (if there is one): bytes it took from the system.
extern std::atomic<int64_t> stepPoolTaken;
// Calls of malloc and its kin that recycling did not serve, in the whole life
// of the process.
extern std::atomic<int64_t> allocations;

inline int64_t stepPoolBytes() { return stepPoolTaken.load(); }

// While one exists, allocations of all threads belong to a step.
struct StepScope {
  StepScope() { stepsRunning.fetch_add(1, std::memory_order_acq_rel); }
  ~StepScope() { stepsRunning.fetch_sub(1, std::memory_order_acq_rel); }
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_STEP_POOL_H
