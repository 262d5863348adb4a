// The only way in which the runtime uses several threads in a rank: libgomp's
// team of the calling thread. oneDNN uses the same team, so that both share
// their threads. (OpenMP pragmas are not used, because clang emits serial code
// for libgomp.)
#ifndef CLEAVE_RUNTIME_CPU_PARALLEL_H
#define CLEAVE_RUNTIME_CPU_PARALLEL_H

#include <cstdint>

namespace cleave {

// Calls body(data, begin, end, thread) on contiguous, disjoint pieces that
// cover [0, extent). There are at most `threads` pieces, and all but the last
// are multiples of `grain`. The split depends only on the arguments. The body
// must not throw.
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

// Sets the number of threads that libraries use when they are called from this
// thread.
void setThreads(int threads);
int getThreads();

} // namespace cleave

#endif // CLEAVE_RUNTIME_CPU_PARALLEL_H
