// Places in command lists for injected faults, one list per kind of fault.

#ifndef CLEAVE_LIB_CHECK_COMMANDPLACES_H
#define CLEAVE_LIB_CHECK_COMMANDPLACES_H

#include "cleave/program.h"

#include <functional>
#include <string>
#include <vector>

namespace cleave::check {

/// One possible fault: its place, for messages, and the function that injects
/// it. Only one fault of a list can be injected, because places are positions
/// in the unchanged program.
struct CommandPlace {
  std::string where;
  std::function<void()> apply;
};
using CommandPlaces = std::vector<CommandPlace>;

// Faults of any program.
CommandPlaces missingWait(program::Program &program);

// Faults of pipelines.
CommandPlaces missingReceive(program::Program &program);
CommandPlaces slotReused(program::Program &program);
CommandPlaces microbatchSwapped(program::Program &program);
CommandPlaces gradientTwice(program::Program &program);

/// A range of bytes in an arena.
struct Range {
  int32_t arena = 0;
  int64_t begin = 0, bytes = 0;

  bool contains(const program::BufferRef &ref) const {
    return ref.arena == arena && ref.offset >= begin &&
           ref.offset < begin + bytes;
  }
};

/// The ranges that a collective writes, on ranks without offsets of their own.
std::vector<Range> receivedBy(const program::Collective &collective);

/// All addresses that a command reads or writes. A call has none itself.
std::vector<program::BufferRef *> addressesOf(program::Command &command);

/// Whether ranks run different lists. Then one list cannot be reordered alone,
/// because other ranks would wait for it.
inline bool hasClasses(const program::Program &program) {
  return !program.rankClass.empty();
}

} // namespace cleave::check

#endif
