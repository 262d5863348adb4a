#include "Memory.h"

#include <cstring>

using namespace cleave;
using namespace cleave::gpusim;

/// Returns a number that is unique to each thread of the grid.
static int64_t numberOf(Accessor who) { return (who.block << 11) + who.thread; }

size_t Memory::add(char *data, int64_t bytes, bool writable) {
  Buffer buffer{data, bytes, writable, {}, {}};
  if (writable) {
    buffer.writer.assign(bytes, -1);
    buffer.writtenIn.assign(bytes, -1);
  }
  buffers.push_back(std::move(buffer));
  return buffers.size() - 1;
}

void Memory::beginBlock(int64_t bytes) {
  workgroup.assign(bytes, Cell());
  ++epoch;
}

bool Memory::fail(Accessor who, const std::string &message) {
  if (error.empty())
    error = "thread " + std::to_string(who.thread) + " of block " +
            std::to_string(who.block) + " " + message;
  return false;
}

char *Memory::check(Accessor who, uint64_t pointer, int64_t bytes,
                    int64_t alignment, const char *what, Buffer *&buffer) {
  size_t number = (pointer >> kOffsetBits) - 1;
  int64_t offset =
      static_cast<int64_t>((pointer & ((uint64_t(1) << kOffsetBits) - 1)) -
                           (uint64_t(1) << (kOffsetBits - 1)));
  if (number >= buffers.size()) {
    fail(who, std::string(what) + " through a pointer to no buffer");
    return nullptr;
  }
  buffer = &buffers[number];
  std::string where = " bytes " + std::to_string(offset) + " to " +
                      std::to_string(offset + bytes - 1) + " of buffer " +
                      std::to_string(number);
  if (offset < 0 || offset + bytes > buffer->bytes) {
    fail(who, what + where + ", which has " + std::to_string(buffer->bytes));
    return nullptr;
  }
  if (offset % alignment != 0) {
    fail(who, what + where + ", not aligned to " + std::to_string(alignment));
    return nullptr;
  }
  return buffer->data + offset;
}

bool Memory::load(Accessor who, uint64_t pointer, void *to, int64_t bytes,
                  int64_t alignment) {
  Buffer *buffer = nullptr;
  char *from = check(who, pointer, bytes, alignment, "reads", buffer);
  if (!from)
    return false;
  std::memcpy(to, from, bytes);
  return true;
}

bool Memory::store(Accessor who, uint64_t pointer, const void *from,
                   int64_t bytes, int64_t alignment) {
  Buffer *buffer = nullptr;
  char *to = check(who, pointer, bytes, alignment, "writes", buffer);
  if (!to)
    return false;
  if (!buffer->writable)
    return fail(who, "writes a constant");
  int64_t first = to - buffer->data;
  for (int64_t i = first; i < first + bytes; ++i) {
    int64_t &writer = buffer->writer[i], &writtenIn = buffer->writtenIn[i];
    bool sameBlock = writer >> 11 == who.block;
    if (writer >= 0 && writer != numberOf(who) &&
        (!sameBlock || writtenIn == epoch))
      return fail(who, "writes byte " + std::to_string(i) + " of buffer " +
                           std::to_string(buffer - buffers.data()) +
                           ", which thread " + std::to_string(writer & 2047) +
                           " of block " + std::to_string(writer >> 11) +
                           " also writes");
    writer = numberOf(who);
    writtenIn = epoch;
  }
  std::memcpy(to, from, bytes);
  return true;
}

bool Memory::loadWorkgroup(Accessor who, int64_t offset, void *to,
                           int64_t bytes) {
  if (offset < 0 || offset + bytes > int64_t(workgroup.size()))
    return fail(who, "reads byte " + std::to_string(offset) +
                         " of workgroup memory, which has " +
                         std::to_string(workgroup.size()));
  for (int64_t i = 0; i < bytes; ++i) {
    Cell &cell = workgroup[offset + i];
    if (cell.writer < 0)
      return fail(who, "reads byte " + std::to_string(offset + i) +
                           " of workgroup memory, which nobody wrote");
    if (cell.writtenIn == epoch && cell.writer != who.thread)
      return fail(who, "reads byte " + std::to_string(offset + i) +
                           " of workgroup memory, which thread " +
                           std::to_string(cell.writer) +
                           " writes without a barrier between");
    cell.manyReaders =
        cell.readIn == epoch && (cell.manyReaders || cell.reader != who.thread);
    cell.reader = who.thread;
    cell.readIn = epoch;
    static_cast<char *>(to)[i] = cell.value;
  }
  return true;
}

bool Memory::storeWorkgroup(Accessor who, int64_t offset, const void *from,
                            int64_t bytes) {
  if (offset < 0 || offset + bytes > int64_t(workgroup.size()))
    return fail(who, "writes byte " + std::to_string(offset) +
                         " of workgroup memory, which has " +
                         std::to_string(workgroup.size()));
  for (int64_t i = 0; i < bytes; ++i) {
    Cell &cell = workgroup[offset + i];
    bool written = cell.writtenIn == epoch && cell.writer != who.thread;
    bool read =
        cell.readIn == epoch && (cell.manyReaders || cell.reader != who.thread);
    if (written || read)
      return fail(who, "writes byte " + std::to_string(offset + i) +
                           " of workgroup memory, which another thread " +
                           (written ? "writes" : "reads") +
                           " without a barrier between");
    cell.writer = who.thread;
    cell.writtenIn = epoch;
    cell.value = static_cast<const char *>(from)[i];
  }
  return true;
}
