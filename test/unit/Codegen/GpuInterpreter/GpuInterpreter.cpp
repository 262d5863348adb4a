// Runs the blocks of a grid one after the other. The threads of a block take
// turns: each runs until it waits for other threads.

#include "Program.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::gpusim;

namespace {

constexpr int64_t kWarp = 32;
/// A thread that runs more instructions than this is taken to run forever.
constexpr int64_t kPatience = int64_t(1) << 26;

class BlockRunner {
public:
  BlockRunner(const Program &program, Memory &memory, ThreadOrder order)
      : program(program), memory(memory), order(order) {}

  std::string run(int64_t block, ArrayRef<uint64_t> arguments) {
    memory.beginBlock(program.workgroupBytes);
    threads.resize(program.block);
    for (auto [number, thread] : llvm::enumerate(threads)) {
      thread.block = block;
      thread.number = number;
      thread.at = 0;
      thread.finished = false;
      // Fills unset values with a pattern, so that they are never zero by
      // chance.
      thread.words.assign(program.words, 0xA5A5A5A5A5A5A5A5);
      for (auto [slot, value] : llvm::zip_equal(program.arguments, arguments))
        thread.words[slot] = value;
    }
    while (true) {
      for (int64_t i = 0; i < program.block; ++i) {
        int64_t number =
            order == ThreadOrder::Ascending ? i : program.block - 1 - i;
        if (!advance(threads[number]))
          return error;
      }
      bool progress = false;
      for (int64_t first = 0; first < program.block; first += kWarp)
        progress |= meetWarp(first);
      if (progress)
        continue;
      if (llvm::all_of(threads, [](const Thread &t) { return t.finished; }))
        return "";
      if (!meetBlock())
        return error;
    }
  }

private:
  bool waits(const Thread &thread) const {
    return program.code[thread.at].kind >= Instruction::Kind::Barrier &&
           program.code[thread.at].kind != Instruction::Kind::Return;
  }

  /// Runs a thread until it waits or returns.
  bool advance(Thread &thread) {
    for (int64_t count = 0; !thread.finished && !waits(thread); ++count) {
      const Instruction &instruction = program.code[thread.at];
      ++thread.at;
      switch (instruction.kind) {
      case Instruction::Kind::Compute:
        instruction.run(thread, memory);
        if (!memory.error.empty()) {
          error = memory.error + " in '" +
                  instruction.op->getName().getStringRef().str() + "'";
          return false;
        }
        break;
      case Instruction::Kind::Jump:
        thread.at = instruction.target;
        break;
      case Instruction::Kind::JumpIfNot:
        if (!thread.words[instruction.value.first])
          thread.at = instruction.target;
        break;
      default:
        thread.finished = true;
      }
      if (count > kPatience) {
        error = "thread " + std::to_string(thread.number) + " does not end";
        return false;
      }
    }
    return true;
  }

  /// Executes a shuffle or vote of a warp once all lanes of the warp have
  /// reached it.
  bool meetWarp(int64_t first) {
    int64_t lanes = std::min(kWarp, program.block - first);
    auto warp = MutableArrayRef(threads).slice(first, lanes);
    if (warp[0].finished) // past the last instruction
      return false;
    size_t at = warp[0].at;
    const Instruction &instruction = program.code[at];
    bool ofWarp = instruction.kind == Instruction::Kind::Shuffle ||
                  instruction.kind == Instruction::Kind::Vote ||
                  instruction.kind == Instruction::Kind::SyncWarp;
    if (!ofWarp || !llvm::all_of(warp, [&](const Thread &thread) {
          return !thread.finished && thread.at == at;
        }))
      return false;
    if (instruction.kind == Instruction::Kind::Vote) {
      uint64_t votes = 0;
      for (auto [lane, thread] : llvm::enumerate(warp))
        votes |= uint64_t(thread.words[instruction.value.first] & 1) << lane;
      for (Thread &thread : warp)
        thread.words[instruction.result.first] = votes;
    } else if (instruction.kind == Instruction::Kind::Shuffle) {
      auto mode = cast<gpu::ShuffleOp>(instruction.op).getMode();
      SmallVector<uint64_t> values;
      for (const Thread &thread : warp)
        values.push_back(thread.words[instruction.value.first]);
      for (auto [lane, thread] : llvm::enumerate(warp)) {
        uint64_t offset = thread.words[instruction.offset.first];
        uint64_t from = mode == gpu::ShuffleMode::XOR ? lane ^ offset : offset;
        if (from < values.size())
          thread.words[instruction.result.first] = values[from];
      }
    }
    for (Thread &thread : warp)
      ++thread.at;
    return true;
  }

  /// Lets all threads of the block pass a barrier. Returns false and sets the
  /// error if they do not all wait for the same barrier.
  bool meetBlock() {
    const Thread *waiting = nullptr;
    for (const Thread &thread : threads) {
      if (thread.finished)
        continue;
      auto kind = program.code[thread.at].kind;
      if (kind != Instruction::Kind::Barrier) {
        error = "thread " + std::to_string(thread.number) + " waits in '" +
                program.code[thread.at].op->getName().getStringRef().str() +
                "' for lanes of its warp that do not come";
        return false;
      }
      waiting = &thread;
    }
    for (const Thread &thread : threads)
      if (thread.finished || thread.at != waiting->at) {
        error = "thread " + std::to_string(waiting->number) + " of block " +
                std::to_string(waiting->block) +
                " waits at a barrier that thread " +
                std::to_string(thread.number) + " does not reach";
        return false;
      }
    for (Thread &thread : threads)
      ++thread.at;
    memory.barrier();
    return true;
  }

  const Program &program;
  Memory &memory;
  ThreadOrder order;
  std::vector<Thread> threads;
  std::string error;
};

} // namespace

std::string cleave::runGpuKernel(gpu::GPUFuncOp kernel,
                                 ArrayRef<GpuBuffer> buffers,
                                 ThreadOrder order) {
  if (kernel.getNumArguments() != buffers.size())
    return "the kernel takes " + std::to_string(kernel.getNumArguments()) +
           " pointers, and there are " + std::to_string(buffers.size()) +
           " buffers";
  Program program;
  std::string error = decode(kernel, buffers.size(), program);
  if (!error.empty())
    return error;
  Memory memory;
  std::vector<uint64_t> arguments;
  for (const GpuBuffer &buffer : buffers)
    arguments.push_back(Memory::pointer(
        memory.add(static_cast<char *>(buffer.data), buffer.bytes, true)));
  for (std::vector<char> &table : program.tables)
    memory.add(table.data(), table.size(), false);
  BlockRunner runner(program, memory, order);
  for (int64_t block = 0; block < program.grid; ++block)
    if (error = runner.run(block, arguments); !error.empty())
      return error;
  return "";
}
