// Counts the calls of malloc in the whole process, libraries included: a step
// after the first few must make none (counters.json shows it). Defining malloc
// in the executable puts it before the C library's.
#include "CountAllocations.h"

#include <atomic>

static std::atomic<int64_t> calls{0};

int64_t cleave::allocationCount() {
  return calls.load(std::memory_order_relaxed);
}

#ifndef CLEAVE_SANITIZED // sanitizers bring a malloc of their own
#include <cerrno>
#include <cstddef>

extern "C" {
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *data, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) {
  calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
  calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, size);
}
void *realloc(void *data, size_t size) {
  calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(data, size);
}
void *memalign(size_t alignment, size_t size) {
  calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  return memalign(alignment, size);
}
int posix_memalign(void **out, size_t alignment, size_t size) {
  *out = memalign(alignment, size);
  return *out || !size ? 0 : ENOMEM;
}
}
#endif
