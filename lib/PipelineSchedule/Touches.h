// The bytes of a rank's memory that a command reads and writes, of what
// cleave/accesses.h says of it.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_TOUCHES_H
#define CLEAVE_LIB_PIPELINESCHEDULE_TOUCHES_H

#include "cleave/program.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::pipeline {

enum class Access {
  Read,
  Write,
  Unknown, // of a kernel, which does not say
};

// Bytes of an arena. Where the extent is not known, the first byte.
struct Touch {
  int32_t arena = 0;
  int64_t begin = 0, end = 0;
  Access access = Access::Read;

  bool overlaps(const Touch &other) const {
    return arena == other.arena && begin < other.end && other.begin < end;
  }
};

// On `rank`. Nothing of a Call, of a Wait, and of a collective in which the
// rank takes no part.
std::vector<Touch> touchesOf(const program::Program &program,
                             const program::Command &command, int64_t rank);

// The ranks that a collective joins with `rank`, in their order; without it
// where it takes no part.
std::vector<int64_t> membersOf(const program::Program &program,
                               const program::Collective &collective,
                               int64_t rank);

// "slots.1.recv_f:W", with the place in it.
std::string nameOf(const program::Program &program, const Touch &touch);

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINESCHEDULE_TOUCHES_H
