// The bytes of a rank's memory that a command reads and writes, as described in
// cleave/accesses.h.

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
  Unknown, // a kernel's operand: read or written
};

// A byte range of an arena; only the first byte if the extent is not known.
struct Touch {
  int32_t arena = 0;
  int64_t begin = 0, end = 0;
  Access access = Access::Read;

  bool overlaps(const Touch &other) const {
    return arena == other.arena && begin < other.end && other.begin < end;
  }
};

// The accesses of a command on `rank`. Empty for a Call, a Wait, and a
// collective without this rank.
std::vector<Touch> touchesOf(const program::Program &program,
                             const program::Command &command, int64_t rank);

// The ranks of a collective that `rank` takes part in, in their order; empty if
// it takes no part.
std::vector<int64_t> membersOf(const program::Program &program,
                               const program::Collective &collective,
                               int64_t rank);

// The arena and the byte in it.
std::string nameOf(const program::Program &program, const Touch &touch);

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINESCHEDULE_TOUCHES_H
