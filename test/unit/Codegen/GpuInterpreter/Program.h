// A GPU kernel as a list of instructions with jumps. The kernel is decoded
// once, and every thread runs the list.
//
// The values of a thread are stored in one array of words; a value has a word
// for each of its lanes. Integers are zero-extended, floats are stored as their
// bits, and pointers are offsets into buffers (Memory.h).

#ifndef CLEAVE_LIB_INTERPRETER_GPU_PROGRAM_H
#define CLEAVE_LIB_INTERPRETER_GPU_PROGRAM_H

#include "Memory.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

#include <functional>
#include <string>
#include <vector>

namespace cleave::gpusim {

/// The state of a thread between two instructions.
struct Thread {
  int64_t block = 0, number = 0;
  size_t at = 0; ///< the next instruction
  bool finished = false;
  std::vector<uint64_t> words;
};

/// The words in which a value is stored.
struct Slot {
  unsigned first = 0, lanes = 1;
};

struct Instruction {
  enum class Kind {
    Compute,   ///< calls `run`
    Jump,      ///< to `target`
    JumpIfNot, ///< to `target`, where the condition is false
    Barrier,   ///< waits for the block
    SyncWarp,  ///< waits for the warp
    Shuffle,   ///< waits for the warp, then trades values
    Vote,      ///< waits for the warp, then counts
    Return,
  };
  Kind kind;
  mlir::Operation *op = nullptr;
  std::function<void(Thread &, Memory &)> run;
  size_t target = 0;
  Slot result, value, offset; ///< of what waits; `value`: a condition
};

struct Program {
  std::vector<Instruction> code;
  size_t words = 0;
  /// The first word of each kernel argument.
  std::vector<unsigned> arguments;
  int64_t grid = 1, block = 1;
  /// Constant tensors, which are placed in memory after the kernel's buffers.
  std::vector<std::vector<char>> tables;
  int64_t workgroupBytes = 0;
};

/// Decodes a kernel that is called with `buffers` pointers. Returns an error
/// message if an operation is unknown.
std::string decode(mlir::gpu::GPUFuncOp kernel, size_t buffers,
                   Program &program);

/// An elementwise operation on words: takes one word of each operand and
/// returns the word of each result. Null if the operation is unknown.
using Function =
    std::function<void(const uint64_t *operands, uint64_t *results)>;
Function elementwise(mlir::Operation *op);

} // namespace cleave::gpusim

#endif
