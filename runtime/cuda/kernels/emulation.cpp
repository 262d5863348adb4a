// Runs the threads of a block as fibers. Each fiber runs until it waits for
// other threads.

#include "emulation.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CLEAVE_ASAN 1
#include <sanitizer/common_interface_defs.h>
#endif
#if __has_feature(thread_sanitizer)
#define CLEAVE_TSAN 1
#include <sanitizer/tsan_interface.h>
#endif
#endif

using namespace cleave;
using namespace cleave::cuda;
using namespace cleave::cuda::emulation;

namespace {
#if defined(__x86_64__)
/// Pushes the callee-saved registers, stores the stack pointer in *from, and
/// continues on the stack `to`.
__attribute__((naked, noinline)) void switchStacks(void **from, void *to) {
  asm volatile("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n"
               "pushq %r14\n pushq %r15\n"
               "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
               "popq %r15\n popq %r14\n popq %r13\n popq %r12\n"
               "popq %rbx\n popq %rbp\n ret\n");
}
#endif

class Context {
public:
#if defined(__x86_64__)
  void prepare(char *stack, size_t bytes, void (*entry)()) {
    auto *top = reinterpret_cast<void **>(stack + bytes);
    // The initial stack of a fiber: six registers that the first switch pops,
    // the start address, and a null return address.
    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void *>(entry);
    for (int i = 3; i <= 8; ++i)
      top[-i] = nullptr;
    pointer = top - 8;
  }
  void switchTo(Context &other) { switchStacks(&pointer, other.pointer); }

private:
  void *pointer = nullptr;
#else
  void prepare(char *stack, size_t bytes, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
  }
  void switchTo(Context &other) { swapcontext(&context, &other.context); }

private:
  ucontext_t context;
#endif
};

constexpr size_t stackBytes = size_t(256) << 10;
constexpr int mostThreads = 1024;
constexpr int64_t mostShared = 227 << 10;

enum class State { Ready, AtBlock, AtWarp, Done };

/// The groups of asynchronous operations that a thread has started. The last
/// group still collects operations: it is not committed yet.
struct Pending {
  using Group = std::vector<std::function<void()>>;
  std::deque<Group> groups{Group()};

  bool isEmpty() const {
    return std::all_of(groups.begin(), groups.end(),
                       [](const Group &group) { return group.empty(); });
  }
};

struct Fiber {
  Context context;
  State state = State::Ready;
  unsigned kind = 0, parity = 0;
  bool vote = false;
  alignas(16) unsigned char slots[2][slotBytes];
  Pending pending[2];        // by Queue
  void *sanitizer = nullptr; // the sanitizer's handle of the fiber
};

/// The block that a host thread runs.
struct Block {
  Context scheduler;
  void *sanitizer = nullptr;
  const void *hostStack = nullptr;
  size_t hostStackBytes = 0;
  std::vector<Fiber> fibers{size_t(mostThreads)};
  char *stacks = nullptr;
  std::unique_ptr<unsigned char[], void (*)(void *)> shared{nullptr, free};
  size_t sharedBytes = 0;
  std::string fault; // error message of a thread
  void (*call)(void **) = nullptr;
  void **args = nullptr;
  int current = 0;

  Block() {
    void *at = mmap(nullptr, stackBytes * mostThreads, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
      throw std::bad_alloc();
    stacks = static_cast<char *>(at);
  }
  ~Block() { munmap(stacks, stackBytes * mostThreads); }
  Block(const Block &) = delete;

  Fiber &own() { return fibers[current]; }
  int warpBegin() const { return current & ~31; }
  void resume(int thread);
  void pause(State state);
};

thread_local std::unique_ptr<Block> block;
thread_local ThreadOrder order = ThreadOrder::Ascending;

void fiberMain() {
#if CLEAVE_ASAN
  // The sanitizer keeps the fiber's stack for the next block, because creating
  // one takes longer than running a block.
  __sanitizer_finish_switch_fiber(block->own().sanitizer, &block->hostStack,
                                  &block->hostStackBytes);
#endif
  block->call(block->args);
  for (const Pending &pending : block->own().pending)
    if (!pending.isEmpty())
      complain("ends without waiting for what it began");
  block->pause(State::Done);
}

void Block::resume(int thread) {
  current = thread;
  threadIndex.x = static_cast<unsigned>(thread);
#if CLEAVE_ASAN
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stacks + thread * stackBytes,
                                 stackBytes);
#elif CLEAVE_TSAN
  sanitizer = __tsan_get_current_fiber();
  if (!own().sanitizer)
    own().sanitizer = __tsan_create_fiber(0);
  __tsan_switch_to_fiber(own().sanitizer, 0);
#endif
  scheduler.switchTo(own().context);
#if CLEAVE_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void Block::pause(State state) {
  own().state = state;
#if CLEAVE_ASAN
  __sanitizer_start_switch_fiber(&own().sanitizer, hostStack, hostStackBytes);
#elif CLEAVE_TSAN
  __tsan_switch_to_fiber(sanitizer, 0);
#endif
  own().context.switchTo(scheduler);
#if CLEAVE_ASAN
  __sanitizer_finish_switch_fiber(own().sanitizer, &hostStack, &hostStackBytes);
#endif
}

/// Runs one block from beginning to end.
class Scheduler {
public:
  Scheduler(Block &block, int threads, std::string where)
      : block(block), threads(threads), where(std::move(where)) {}

  void run() {
    for (int thread = 0; thread < threads; ++thread) {
      Fiber &fiber = block.fibers[thread];
      fiber.state = State::Ready;
      fiber.parity = 0;
      for (Pending &pending : fiber.pending)
        pending = {};
      fiber.context.prepare(block.stacks + thread * stackBytes, stackBytes,
                            fiberMain);
    }
    while (true) {
      int warps = (threads + 31) / 32;
      for (int i = 0; i < warps; ++i)
        runWarp(32 * (order == ThreadOrder::Ascending ? i : warps - 1 - i));
      int waiting = count(State::AtBlock, 0, threads);
      if (waiting == 0)
        return;
      if (waiting < threads)
        complain(waiting, "a barrier that the others do not reach");
      release(0, threads);
    }
  }

private:
  /// Runs a warp until each of its lanes has finished or waits at a barrier of
  /// the block.
  void runWarp(int begin) {
    int end = std::min(begin + 32, threads);
    while (true) {
      for (int i = begin; i < end; ++i) {
        int thread = order == ThreadOrder::Ascending ? i : begin + end - 1 - i;
        if (block.fibers[thread].state == State::Ready)
          block.resume(thread);
        if (!block.fault.empty())
          throw std::runtime_error(where + ", thread " +
                                   std::to_string(thread) + ": " +
                                   std::exchange(block.fault, {}));
      }
      int waiting = count(State::AtWarp, begin, end);
      if (waiting == 0)
        return;
      std::string warp = "warp " + std::to_string(begin / 32);
      if (waiting < 32)
        complain(waiting, "a shuffle or barrier of " + warp +
                              " that its other lanes do not reach");
      for (int i = begin + 1; i < end; ++i)
        if (block.fibers[i].kind != block.fibers[begin].kind)
          complain(waiting, "different shuffles or barriers of " + warp);
      release(begin, end);
    }
  }

  int count(State state, int begin, int end) const {
    int found = 0;
    for (int i = begin; i < end; ++i)
      found += block.fibers[i].state == state;
    return found;
  }

  void release(int begin, int end) {
    for (int i = begin; i < end; ++i)
      block.fibers[i].state = State::Ready;
  }

  [[noreturn]] void complain(int waiting, const std::string &what) const {
    throw std::runtime_error(where + ": " + std::to_string(waiting) +
                             " threads wait at " + what);
  }

  Block &block;
  int threads;
  std::string where;
};
} // namespace

unsigned char *emulation::dynamicShared() { return block->shared.get(); }

const void *emulation::sharedAt(uint32_t address, int bytes) {
  size_t at = size_t(address) - dynamicBegin;
  if (address < dynamicBegin || at + bytes > block->sharedBytes)
    complain("reads shared memory that the block does not have");
  return block->shared.get() + at;
}

void emulation::complain(const char *what) {
  block->fault = what;
  block->pause(State::Done);
  std::abort(); // it is not resumed
}

void emulation::begin(Queue queue, std::function<void()> finish) {
  block->own().pending[queue].groups.back().push_back(std::move(finish));
}

void emulation::commit(Queue queue) {
  block->own().pending[queue].groups.emplace_back();
}

void emulation::waitFor(Queue queue, int most) {
  auto &groups = block->own().pending[queue].groups;
  while (groups.size() > size_t(most) + 1) {
    for (const std::function<void()> &finish : groups.front())
      finish();
    groups.pop_front();
  }
}

void emulation::copyUnit(void *to, const void *from, bool isThere) {
  if ((sharedAddress(to) | reinterpret_cast<uintptr_t>(from)) % 16)
    complain("copies a unit that is no multiple of 16 bytes");
  // One byte is read from the source even if it will not be copied (`isThere`
  // is false), so that a sanitizer checks the address.
  unsigned char unit[16];
  std::memcpy(unit, from, 1);
  std::memset(to, 0xff, 16);
  begin(Copies, [=] {
    if (isThere)
      std::memcpy(to, from, 16);
    else
      std::memset(to, 0, 16);
  });
}

void emulation::blockBarrier() { block->pause(State::AtBlock); }

int emulation::blockCount(bool isTrue) {
  block->own().vote = isTrue;
  blockBarrier();
  int count = 0;
  for (unsigned i = 0; i < blockSize.x; ++i)
    count += block->fibers[i].vote;
  blockBarrier(); // all have counted
  return count;
}

void emulation::warpBarrier(unsigned mask, unsigned kind) {
  Fiber &own = block->own();
  own.kind = mask == ~0u ? kind : ~0u; // only whole warps are emulated
  own.parity ^= 1;
  block->pause(State::AtWarp);
}

void *emulation::ownSlot() {
  Fiber &own = block->own();
  return own.slots[own.parity ^ 1];
}

const void *emulation::slotOf(int lane) {
  Fiber &other = block->fibers[block->warpBegin() + lane];
  return other.slots[block->own().parity];
}

void cuda::setThreadOrder(ThreadOrder wanted) { order = wanted; }

void cuda::runEmulated(const EmulatedKernel &kernel, int64_t gridX, int blockX,
                       int64_t sharedBytes, void **args) {
  std::string name = std::string("kernel ") + kernel.name;
  if (gridX < 1 || gridX > INT32_MAX || blockX < 1 || blockX > mostThreads ||
      sharedBytes < 0 || sharedBytes > mostShared)
    throw std::runtime_error(
        name + ": no device takes a launch of " + std::to_string(gridX) +
        " blocks of " + std::to_string(blockX) + " threads with " +
        std::to_string(sharedBytes) + " bytes of shared memory");
  if (!block)
    block = std::make_unique<Block>();
  block->call = kernel.call;
  block->args = args;
  // Each launch allocates its shared memory, so that a sanitizer detects
  // accesses beyond the size that the launch requested.
  size_t bytes = (static_cast<size_t>(sharedBytes) + 127) & ~size_t(127);
  block->sharedBytes = static_cast<size_t>(sharedBytes);
  block->shared.reset(static_cast<unsigned char *>(
      aligned_alloc(128, std::max<size_t>(bytes, 128))));
  blockSize = {static_cast<unsigned>(blockX), 1, 1};
  gridSize = {static_cast<unsigned>(gridX), 1, 1};
  for (int64_t i = 0; i < gridX; ++i) {
    blockIndex = {static_cast<unsigned>(i), 0, 0};
    // Shared memory is undefined before it is written, so it is filled with
    // NaNs.
    std::memset(block->shared.get(), 0xff, bytes);
    Scheduler(*block, blockX, name + ", block " + std::to_string(i)).run();
  }
}
