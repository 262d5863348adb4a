// The runtime's one way to use several threads in a rank: libgomp's team of
// the calling thread, which oneDNN uses too, so that both share their threads.
// (OpenMP pragmas are not used: clang emits serial code for libgomp.)
#ifndef CLEAVE_RUNTIME_CPU_PARALLEL_H
#define CLEAVE_RUNTIME_CPU_PARALLEL_H

#include <cstdint>

namespace cleave {

// Calls body(data, begin, end, thread) on disjoint pieces that cover [0,
// extent); pieces are contiguous, their number is at most `threads`, and all
// but the last are multiples of `grain`. The split depends on the arguments
// only. The body must not throw.
void parallelFor(int64_t extent, int64_t grain, int threads,
                 void (*body)(const void *data, int64_t begin, int64_t end,
                              int thread),
                 const void *data);

template <class Body>
void parallelFor(int64_t extent, int64_t grain, int threads, const Body &body) {
  parallelFor(
      extent, grain, threads,
      [](const void *data, int64_t begin, int64_t end, int thread) {
        (*static_cast<const Body *>(data))(begin, end, thread);
      },
      &body);
}

// The number of threads that libraries use when called from this thread.
void setThreads(int threads);
int getThreads();

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_PARALLEL_H
