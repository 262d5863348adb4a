// Makes steps free of allocations after warm-up. The runtime's own code
// allocates nothing in a step, but oneDNN allocates small objects and packing
// buffers in every call. An executable that links step_pool.cpp replaces the
// process's allocator by one that reuses memory freed during a step in later
// steps. See runtime/README.md.
#ifndef CLEAVE_RUNTIME_STEP_POOL_H
#define CLEAVE_RUNTIME_STEP_POOL_H

#include <atomic>
#include <cstdint>

namespace cleave {

// The number of steps that are running. Written by sessions, read by the pool.
extern std::atomic<int> stepsRunning;
// The bytes that the pool has taken from the system; 0 if no pool is linked.
extern std::atomic<int64_t> stepPoolTaken;
// The number of calls of malloc and related functions for which the pool had no
// free block, over the lifetime of the process.
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
