// Replaces the allocator of an executable that links this file (the object
// library cleaveStepPool). Outside of steps, calls are forwarded to libc.
// During a step, memory comes from a pool of blocks of 2^k bytes, and free()
// returns the blocks to the pool for the next step. So after the first step no
// memory is requested from the system, whatever libraries do. Blocks of one
// size are in one range of addresses, so they need no headers and are aligned
// to their size. The pool is left out in builds with sanitizers, which have
// their own allocator.

#include "step_pool.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||     \
    __has_feature(memory_sanitizer)
#define CLEAVE_NO_POOL
#endif
#endif

#ifndef CLEAVE_NO_POOL

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
}

namespace {
constexpr int smallest = 6, largest = 28; // 64 B to 256 MiB
constexpr int classes = largest - smallest + 1;
constexpr size_t rangeBytes = size_t(1) << 32; // of addresses, for each size
constexpr int64_t poolLimit = int64_t(2) << 30;

struct Lock {
  explicit Lock(std::atomic_flag &flag) : flag(flag) {
    while (flag.test_and_set(std::memory_order_acquire))
      sched_yield();
  }
  ~Lock() { flag.clear(std::memory_order_release); }
  std::atomic_flag &flag;
};

// The free blocks of one thread. Every living thread has its own slot, and
// blocks that it frees return to this slot. If threads shared their free
// blocks, ranks that run concurrently could need more blocks of a size in some
// later step than in any step before.
struct Slot {
  std::atomic_flag busy;
  void *free[classes] = {}; // a free block's first word points to the next
};

constexpr int slots = 256; // slot 0 serves threads without a slot
Slot table[slots];
std::atomic<bool> slotTaken[slots];
thread_local int ownSlot = -1;
pthread_key_t slotKey;
std::atomic<bool> slotKeyReady{false};

std::atomic_flag growing;
size_t used[classes]; // bytes of each range that are blocks
std::atomic<char *> base{nullptr};

// Frees the slot of a thread that ends. Its free blocks stay in the slot and
// serve the next thread that gets the slot.
void releaseSlot(void *value) {
  auto slot = reinterpret_cast<intptr_t>(value);
  ownSlot = 0;
  slotTaken[slot].store(false, std::memory_order_release);
}

Slot &slotOfThread() {
  if (ownSlot >= 0)
    return table[ownSlot];
  ownSlot = 0;
  if (slotKeyReady.load(std::memory_order_acquire))
    for (int slot = 1; slot < slots; ++slot)
      if (!slotTaken[slot].exchange(true, std::memory_order_acquire)) {
        // pthread_setspecific allocates no memory for the first 32 keys of a
        // process.
        pthread_setspecific(slotKey, reinterpret_cast<void *>(intptr_t(slot)));
        ownSlot = slot;
        break;
      }
  return table[ownSlot];
}

// Reserves the addresses of all blocks at the first call. `growing` must be
// held.
char *reserve() {
  char *at = base.load(std::memory_order_acquire);
  if (at)
    return at;
  size_t bytes = rangeBytes * (classes + 1);
  void *mapping = mmap(nullptr, bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    return nullptr;
  auto address = reinterpret_cast<uintptr_t>(mapping);
  address = (address + rangeBytes - 1) / rangeBytes * rangeBytes;
  at = reinterpret_cast<char *>(address);
  if (pthread_key_create(&slotKey, releaseSlot) == 0)
    slotKeyReady.store(true, std::memory_order_release);
  base.store(at, std::memory_order_release);
  return at;
}

// Returns the size class of a pool block, or -1 for memory of libc.
int classOf(const void *block) {
  char *at = base.load(std::memory_order_acquire);
  auto *address = static_cast<const char *>(block);
  if (!at || address < at || address >= at + rangeBytes * classes)
    return -1;
  return static_cast<int>((address - at) / rangeBytes);
}

bool inStep() {
  return cleave::stepsRunning.load(std::memory_order_acquire) > 0;
}

void countCall() {
  cleave::allocations.fetch_add(1, std::memory_order_relaxed);
}

// Returns a new block. If a page holds several blocks, the others become free
// blocks of the slot.
void *grow(Slot &slot, int index) {
  Lock lock(growing);
  char *at = reserve();
  if (!at)
    return nullptr;
  size_t size = size_t(1) << (index + smallest);
  size_t bytes = size < 4096 ? 4096 : size;
  if (used[index] + bytes > rangeBytes ||
      cleave::stepPoolTaken.load() + int64_t(bytes) > poolLimit)
    return nullptr;
  char *fresh = at + size_t(index) * rangeBytes + used[index];
  if (mprotect(fresh, bytes, PROT_READ | PROT_WRITE) != 0)
    return nullptr;
  countCall();
  cleave::stepPoolTaken.fetch_add(int64_t(bytes));
  used[index] += bytes;
  for (size_t offset = size; offset < bytes; offset += size) {
    std::memcpy(fresh + offset, &slot.free[index], sizeof(void *));
    slot.free[index] = fresh + offset;
  }
  return fresh;
}

// Returns a block of at least `bytes` bytes, or NULL if the pool has none.
void *take(size_t bytes, size_t alignment) {
  if (bytes < alignment)
    bytes = alignment;
  int index = 0;
  while (index < classes && (size_t(1) << (index + smallest)) < bytes)
    ++index;
  if (index == classes)
    return nullptr;
  if (!base.load(std::memory_order_acquire)) {
    Lock lock(growing);
    if (!reserve()) // it also creates the key for slots
      return nullptr;
  }
  Slot &slot = slotOfThread();
  Lock lock(slot.busy);
  void *block = slot.free[index];
  if (!block)
    return grow(slot, index);
  std::memcpy(&slot.free[index], block, sizeof(void *));
  return block;
}

void giveBack(void *block, int index) {
  Slot &slot = slotOfThread();
  Lock lock(slot.busy);
  std::memcpy(block, &slot.free[index], sizeof(void *));
  slot.free[index] = block;
}

void *alignedAllocation(size_t alignment, size_t bytes) {
  if (inStep())
    if (void *block = take(bytes, alignment))
      return block;
  countCall();
  return __libc_memalign(alignment, bytes);
}
} // namespace

extern "C" {

void *malloc(size_t bytes) {
  if (inStep())
    if (void *block = take(bytes, 1))
      return block;
  countCall();
  return __libc_malloc(bytes);
}

void free(void *block) {
  int index = classOf(block);
  if (index < 0)
    __libc_free(block);
  else
    giveBack(block, index);
}

void *calloc(size_t count, size_t size) {
  size_t bytes;
  if (inStep() && !__builtin_mul_overflow(count, size, &bytes))
    if (void *block = take(bytes, 1))
      return std::memset(block, 0, bytes);
  countCall();
  return __libc_calloc(count, size);
}

void *realloc(void *block, size_t bytes) {
  int index = classOf(block);
  if (index < 0) {
    if (!block)
      return malloc(bytes);
    countCall();
    return __libc_realloc(block, bytes);
  }
  size_t size = size_t(1) << (index + smallest);
  if (bytes <= size && bytes != 0)
    return block;
  void *moved = bytes ? malloc(bytes) : nullptr;
  if (moved)
    std::memcpy(moved, block, size);
  if (moved || !bytes)
    free(block);
  return moved;
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
  if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0)
    return EINVAL;
  void *block = alignedAllocation(alignment, bytes);
  if (!block)
    return ENOMEM;
  *out = block;
  return 0;
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  return alignedAllocation(alignment, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
  return alignedAllocation(alignment, bytes);
}

} // extern "C"

#endif // CLEAVE_NO_POOL
