// Implements parallelFor by libgomp's entry points, which are a stable ABI.

#include "cpu/parallel.h"

#include <algorithm>
#include <atomic>

extern "C" {
void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads,
                   unsigned flags);
void omp_set_num_threads(int threads);
int omp_get_max_threads(void);
int omp_get_num_threads(void);
int omp_get_thread_num(void);
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// Suppresses reports of ThreadSanitizer about libgomp, whose barriers it does
// not see, and about oneDNN. oneDNN is not instrumented either, and shares
// memory only between libgomp's threads.
extern "C" const char *__tsan_default_suppressions() {
  return "called_from_lib:libgomp.so\ncalled_from_lib:libdnnl.so\n";
}
#endif
#endif

namespace {
struct Job {
  void (*body)(const void *, int64_t, int64_t, int);
  const void *data;
  int64_t extent, grain, pieces;
  // `ready` and `finished` show race detectors how libgomp orders the threads'
  // memory accesses. They are not needed for correctness and cost nothing.
  std::atomic<int> ready{0}, finished{0};
};

void runPiece(Job &job, int64_t piece, int thread) {
  int64_t blocks = (job.extent + job.grain - 1) / job.grain;
  int64_t begin = blocks * piece / job.pieces * job.grain;
  int64_t end = blocks * (piece + 1) / job.pieces * job.grain;
  end = std::min(end, job.extent);
  if (begin < end)
    job.body(job.data, begin, end, thread);
}

void work(void *opaque) {
  Job &job = *static_cast<Job *>(opaque);
  job.ready.load(std::memory_order_acquire);
  // The team may have fewer threads than requested (OMP_THREAD_LIMIT). The
  // number of pieces stays the same, so that work is split in the same way and
  // every sum stays the same.
  int thread = omp_get_thread_num(), team = omp_get_num_threads();
  for (int64_t piece = thread; piece < job.pieces; piece += team)
    runPiece(job, piece, thread);
  job.finished.fetch_add(1, std::memory_order_release);
}
} // namespace

void cleave::parallelFor(int64_t extent, int64_t grain, int threads,
                         void (*body)(const void *, int64_t, int64_t, int),
                         const void *data) {
  if (extent <= 0)
    return;
  grain = std::max<int64_t>(grain, 1);
  int64_t pieces = std::min<int64_t>(threads, (extent + grain - 1) / grain);
  if (pieces <= 1)
    return body(data, 0, extent, 0);
  Job job{body, data, extent, grain, pieces};
  job.ready.store(1, std::memory_order_release);
  GOMP_parallel(work, &job, static_cast<unsigned>(pieces), 0);
  job.finished.load(std::memory_order_acquire);
}

void cleave::setThreads(int threads) { omp_set_num_threads(threads); }
int cleave::getThreads() { return omp_get_max_threads(); }
