// The parts of CUDA that device code needs, implemented for CPUs. Kernels
// include it if no CUDA compiler compiles them. Threads are fibers that switch
// at barriers and shuffles (emulation.cpp).
#ifndef CLEAVE_RUNTIME_CUDA_KERNELS_EMULATION_H
#define CLEAVE_RUNTIME_CUDA_KERNELS_EMULATION_H

#include "emulated.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Blocks run one after the other, and each host thread has its own block, so
// shared memory is thread-local.
#define __shared__ static thread_local

namespace cleave::cuda::emulation {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
inline thread_local Index threadIndex, blockIndex, blockSize, gridSize;

// The dynamic shared memory of the block, at a multiple of 128 bytes. As on a
// device it does not begin at address 0 of shared memory, so kernels cannot
// rely on a larger alignment.
unsigned char *dynamicShared();
constexpr uint32_t dynamicBegin = 128;
inline uint32_t sharedAddress(const void *at) {
  return dynamicBegin +
         static_cast<uint32_t>(static_cast<const unsigned char *>(at) -
                               dynamicShared());
}
// Returns the memory for an address in shared memory; reports an error if its
// `bytes` bytes are not all in the block's shared memory.
const void *sharedAt(uint32_t address, int bytes);

// Ends the launch with an error that names the thread and gives this reason.
[[noreturn]] void complain(const char *what);

void blockBarrier();
// Returns the number of threads of the block for which `isTrue` holds; all
// threads must call it.
int blockCount(bool isTrue);
// A barrier of a warp: all lanes must call it together, with the same `kind`.
void warpBarrier(unsigned mask, unsigned kind);
// A slot of each lane, for a value that other lanes read after the next warp
// barrier. Each lane has two slots, used in turn, so that a value is not
// overwritten while other lanes read it.
constexpr int slotBytes = 32;
void *ownSlot();
const void *slotOf(int lane);

template <class T> T exchange(unsigned mask, T value, int lane) {
  static_assert(sizeof(T) <= slotBytes);
  std::memcpy(ownSlot(), &value, sizeof(T));
  warpBarrier(mask, sizeof(T));
  T out;
  std::memcpy(&out, slotOf(lane & 31), sizeof(T));
  return out;
}
inline int ownLane() { return static_cast<int>(threadIndex.x & 31); }

// Asynchronous work of a thread is executed as late as possible, by the wait
// for it. A thread that ends without waiting is an error.
enum Queue { Copies, Products };
void begin(Queue queue, std::function<void()> finish);
void commit(Queue queue);            // ends a group
void waitFor(Queue queue, int most); // until at most so many groups are left
// Starts a copy of 16 bytes to shared memory; if not `isThere`, the bytes are
// set to zero instead. The destination is undefined until the wait. Addresses
// that are not multiples of 16 are an error.
void copyUnit(void *to, const void *from, bool isThere);

// Calls a kernel with arguments in the form of cuLaunchKernel.
template <auto kernel> struct Call;
template <class... Args, void (*kernel)(Args...)> struct Call<kernel> {
  static constexpr int argBytes[] = {sizeof(Args)...};
  static constexpr EmulatedKernel entry(const char *name) {
    return {name, run, argBytes, sizeof...(Args)};
  }
  static void run(void **args) {
    [&]<size_t... i>(std::index_sequence<i...>) {
      kernel(*static_cast<Args *>(args[i])...);
    }(std::index_sequence_for<Args...>());
  }
};

} // namespace cleave::cuda::emulation

#define threadIdx cleave::cuda::emulation::threadIndex
#define blockIdx cleave::cuda::emulation::blockIndex
#define blockDim cleave::cuda::emulation::blockSize
#define gridDim cleave::cuda::emulation::gridSize

struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

inline void __syncthreads() { cleave::cuda::emulation::blockBarrier(); }
inline int __syncthreads_or(int isTrue) {
  return cleave::cuda::emulation::blockCount(isTrue) != 0;
}
inline int __syncthreads_and(int isTrue) {
  return cleave::cuda::emulation::blockCount(!isTrue) == 0;
}
inline void __syncwarp(unsigned mask = ~0u) {
  cleave::cuda::emulation::warpBarrier(mask, 0);
}
template <class T> T __shfl_sync(unsigned mask, T value, int lane) {
  return cleave::cuda::emulation::exchange(mask, value, lane);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int with) {
  return cleave::cuda::emulation::exchange(
      mask, value, cleave::cuda::emulation::ownLane() ^ with);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, int by) {
  int lane = cleave::cuda::emulation::ownLane();
  return cleave::cuda::emulation::exchange(mask, value,
                                           lane >= by ? lane - by : lane);
}
inline unsigned __match_any_sync(unsigned mask, unsigned value) {
  cleave::cuda::emulation::exchange(mask, value, 0);
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane) {
    unsigned other;
    std::memcpy(&other, cleave::cuda::emulation::slotOf(lane), sizeof(other));
    same |= unsigned(other == value) << lane;
  }
  return same;
}
inline unsigned __ballot_sync(unsigned mask, int isTrue) {
  unsigned same = __match_any_sync(mask, isTrue != 0);
  return isTrue ? same : ~same;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t(a) * b >> 32);
}

#endif // CLEAVE_RUNTIME_CUDA_KERNELS_EMULATION_H
