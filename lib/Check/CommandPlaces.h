// The places of command lists that could have a mistake, one list per kind.

#ifndef CLEAVE_LIB_CHECK_COMMANDPLACES_H
#define CLEAVE_LIB_CHECK_COMMANDPLACES_H

#include "cleave/program.h"

#include <functional>
#include <string>
#include <vector>

namespace cleave::check {

/// One possible mistake: where, for people, and what makes it. Only one of a
/// list can be made: places are positions in the program as it was.
struct CommandPlace {
  std::string where;
  std::function<void()> apply;
};
using CommandPlaces = std::vector<CommandPlace>;

// Any program.
CommandPlaces missingWait(program::Program &program);

// Pipelines.
CommandPlaces missingReceive(program::Program &program);
CommandPlaces slotReused(program::Program &program);
CommandPlaces microbatchSwapped(program::Program &program);
CommandPlaces gradientTwice(program::Program &program);

/// Bytes of an arena.
struct Range {
  int32_t arena = 0;
  int64_t begin = 0, bytes = 0;

  bool contains(const program::BufferRef &ref) const {
    return ref.arena == arena && ref.offset >= begin &&
           ref.offset < begin + bytes;
  }
};

/// Where a collective puts what it receives, on ranks without offsets of their
/// own.
std::vector<Range> receivedBy(const program::Collective &collective);

/// All addresses in a command, of what it reads and of what it writes. A call
/// has none of its own.
std::vector<program::BufferRef *> addressesOf(program::Command &command);

/// Whether the ranks run different lists, so that one of them cannot be
/// reordered where the others wait for it.
inline bool hasClasses(const program::Program &program) {
  return !program.rankClass.empty();
}

} // namespace cleave::check

#endif
