// Lists the places in command lists where `cleave check` can inject a fault,
// with one function for each kind of fault.

#ifndef CLEAVE_LIB_CHECK_COMMANDPLACES_H
#define CLEAVE_LIB_CHECK_COMMANDPLACES_H

#include "cleave/program.h"

#include <functional>
#include <string>
#include <vector>

namespace cleave::check {

/// A possible fault: the description of its place for messages, and the
/// function that injects it. Only one fault of a list can be injected: the
/// functions refer to commands by their positions in the unchanged program.
struct CommandPlace {
  std::string where;
  std::function<void()> apply;
};
using CommandPlaces = std::vector<CommandPlace>;

// Faults that are possible in any program.
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

/// Returns the memory ranges that a collective writes. The parts of their
/// offsets that depend on the rank are omitted.
std::vector<Range> receivedBy(const program::Collective &collective);

/// Returns all memory references that a command reads or writes; none for a
/// Call, whose function is a list of commands of its own.
std::vector<program::BufferRef *> addressesOf(program::Command &command);

/// Returns whether ranks run different command lists. If they do, a fault
/// cannot reorder the commands of only one list: ranks with other lists would
/// wait for the ranks with this list.
inline bool hasClasses(const program::Program &program) {
  return !program.rankClass.empty();
}

} // namespace cleave::check

#endif
