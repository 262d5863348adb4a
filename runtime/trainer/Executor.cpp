//===- Executor.cpp - what every executor shares --------------------------===//
#include "cleave/trainer/Executor.h"
#include "cleave/io/Error.h"

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

} // namespace cleave
