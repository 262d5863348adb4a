// The memory of a grid: buffers with bounds checks, and records of which thread
// wrote which byte, and when.

#ifndef CLEAVE_LIB_INTERPRETER_GPU_MEMORY_H
#define CLEAVE_LIB_INTERPRETER_GPU_MEMORY_H

#include "GpuInterpreter.h"

#include <string>
#include <vector>

namespace cleave::gpusim {

/// Who accesses.
struct Accessor {
  int64_t block = 0, thread = 0;
};

class Memory {
public:
  /// Returns the pointer to byte `offset` of a buffer.
  static uint64_t pointer(size_t buffer, int64_t offset = 0) {
    return ((buffer + 1) << kOffsetBits) + (uint64_t(1) << (kOffsetBits - 1)) +
           offset;
  }

  size_t add(char *data, int64_t bytes, bool writable);
  /// Begins a block, with new workgroup memory of this size.
  void beginBlock(int64_t bytes);
  void barrier() { ++epoch; }

  /// Access global memory. If the access is not allowed, these functions return
  /// false and set `error`.
  bool load(Accessor who, uint64_t pointer, void *to, int64_t bytes,
            int64_t alignment);
  bool store(Accessor who, uint64_t pointer, const void *from, int64_t bytes,
             int64_t alignment);
  /// Access workgroup memory at a byte offset. If the access is not allowed,
  /// these functions return false and set `error`.
  bool loadWorkgroup(Accessor who, int64_t offset, void *to, int64_t bytes);
  bool storeWorkgroup(Accessor who, int64_t offset, const void *from,
                      int64_t bytes);

  std::string error;

private:
  static constexpr int kOffsetBits = 40;

  struct Buffer {
    char *data;
    int64_t bytes;
    bool writable;
    /// For each byte, the thread that wrote it last, and the number of the
    /// barrier before that write.
    std::vector<int64_t> writer, writtenIn;
  };
  struct Cell {
    int64_t writer = -1, writtenIn = -1, reader = -1, readIn = -1;
    bool manyReaders = false;
    char value = 0;
  };
  char *check(Accessor who, uint64_t pointer, int64_t bytes, int64_t alignment,
              const char *what, Buffer *&buffer);
  bool fail(Accessor who, const std::string &message);

  std::vector<Buffer> buffers;
  std::vector<Cell> workgroup;
  int64_t epoch = 0; ///< counts barriers and blocks
};

} // namespace cleave::gpusim

#endif
