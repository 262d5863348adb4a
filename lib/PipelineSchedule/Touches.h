// Determines the bytes of a rank's memory that a command reads and writes, as
// described in cleave/accesses.h.

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

// The bytes of an arena that a command accesses. If the length of the access is
// unknown, only its first byte.
struct Touch {
  int32_t arena = 0;
  int64_t begin = 0, end = 0;
  Access access = Access::Read;

  bool overlaps(const Touch &other) const {
    return arena == other.arena && begin < other.end && other.begin < end;
  }
};

// Returns the accesses of a command on `rank`. Empty for a Call, a Wait, and a
// collective in which this rank takes no part.
std::vector<Touch> touchesOf(const program::Program &program,
                             const program::Command &command, int64_t rank);

// Returns the ranks of a collective in the order of the group; empty if `rank`
// takes no part in it.
std::vector<int64_t> membersOf(const program::Program &program,
                               const program::Collective &collective,
                               int64_t rank);

// Returns the arena and the byte in it as text.
std::string nameOf(const program::Program &program, const Touch &touch);

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINESCHEDULE_TOUCHES_H
