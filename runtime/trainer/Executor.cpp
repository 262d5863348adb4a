//===- Executor.cpp - what every executor shares
//-----------------------------===//
#include "cleave/trainer/Executor.h"
#include "cleave/io/Error.h"

#include <cstring>

namespace cleave {

const BufferInfo *StepExecutor::find(const std::string &buffer) const {
  for (const BufferInfo &info : buffers())
    if (info.name == buffer)
      return &info;
  return nullptr;
}

const BufferInfo &StepExecutor::need(const std::string &buffer) const {
  if (const BufferInfo *info = find(buffer))
    return *info;
  throw InputError("program.bin has no buffer '" + buffer +
                   "' that manifest.json names; compile the model again");
}

void StepExecutor::zero(const std::string &buffer) {
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    std::span<std::byte> bytes = tile(buffer, rank);
    if (!bytes.empty())
      std::memset(bytes.data(), 0, bytes.size());
  }
}

} // namespace cleave
