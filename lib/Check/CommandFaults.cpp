// Injected faults of command lists that cannot be expressed in SSA form: a
// command reads memory before it is written.

#include "CommandPlaces.h"
#include "cleave/Check/Faults.h"
#include "cleave/accesses.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::check;
using namespace cleave::program;

namespace {

/// Returns whether the command reads, or may read, memory that begins in one of
/// the ranges.
bool reads(const Program &program, const Command &command,
           const std::vector<Range> &ranges) {
  bool found = false;
  accesses(program.kernels, command, [&](const auto &operand) {
    if (operand.isUsed() && operand.isRead)
      found |= llvm::any_of(ranges, [&](const Range &range) {
        return range.contains(operand.buffer);
      });
  });
  if (auto *repeat = std::get_if<Repeat>(&command.op))
    for (const Command &inner : program.actions[repeat->action].commands)
      found |= reads(program, inner, ranges);
  return found;
}

/// Returns the command that ends the collective `start`: its wait, or `start`
/// itself if it blocks.
size_t endOf(const Action &action, size_t start) {
  int32_t token = std::get<Collective>(action.commands[start].op).token;
  if (token < 0)
    return start;
  for (size_t i = start + 1; i < action.commands.size(); ++i)
    if (auto *wait = std::get_if<Wait>(&action.commands[i].op))
      if (wait->token == token)
        return i;
  return start;
}

bool areOfOneGroup(const Collective &a, const Collective &b) {
  return std::equal(
             a.group.begin(), a.group.end(), b.group.begin(), b.group.end(),
             [](const SubAxis &x, const SubAxis &y) {
               return x.axis == y.axis && x.pre == y.pre && x.size == y.size;
             }) &&
         a.positions == b.positions;
}

/// Returns whether the collective `start` has certainly ended on a CUDA device
/// before the command `reader`, even without its own wait. This holds if a wait
/// for a later collective of the same ranks comes before `reader`, because both
/// collectives run on the same stream.
bool isOvertaken(const Action &action, size_t start, size_t reader) {
  const auto &first = std::get<Collective>(action.commands[start].op);
  if (first.token < 0) // would move as a whole
    return false;
  for (size_t i = start + 1; i < reader; ++i) {
    auto *later = std::get_if<Collective>(&action.commands[i].op);
    if (later && areOfOneGroup(*later, first) && endOf(action, i) < reader)
      return true;
  }
  return false;
}

} // namespace

std::vector<Range> check::receivedBy(const Collective &collective) {
  std::vector<Range> ranges;
  operands(Kernels(), collective, [&](const auto &operand) {
    if (operand.kind == OperandKind::Received && operand.buffer.present())
      ranges.push_back({operand.buffer.arena, operand.buffer.offset,
                        operand.spannedBytes()});
  });
  return ranges;
}

std::vector<BufferRef *> check::addressesOf(Command &command) {
  std::vector<BufferRef *> refs;
  accesses(Kernels(), command,
           [&](const auto &operand) { refs.push_back(&operand.buffer); });
  return refs;
}

CommandPlaces check::missingWait(Program &program) {
  CommandPlaces places;
  for (Action &action : program.actions)
    for (size_t start = 0; start < action.commands.size(); ++start) {
      auto *collective = std::get_if<Collective>(&action.commands[start].op);
      if (!collective || collective->kind == CollectiveKind::SendRecv)
        continue;
      size_t end = endOf(action, start);
      std::vector<Range> ranges = receivedBy(*collective);
      for (size_t reader = end + 1; reader < action.commands.size(); ++reader) {
        const Command &command = action.commands[reader];
        // A collective of a pipeline is not moved, because the other ranks
        // would then start their collectives in a different order.
        if (hasClasses(program) && !action.isOnlyCalled() &&
            std::holds_alternative<Collective>(command.op))
          break;
        if (!reads(program, command, ranges))
          continue;
        if (program.device == Device::Cuda &&
            isOvertaken(action, start, reader))
          break; // nothing would be wrong
        std::string where =
            "transfer for " + program.strings[collective->purpose] + " in @" +
            action.name + " ends after the command that reads it";
        if (const std::string &source = program.strings[command.source];
            !source.empty())
          where += " (" + source + ")";
        places.push_back({where, [&action, end, reader] {
                            auto begin = action.commands.begin();
                            std::rotate(begin + end, begin + end + 1,
                                        begin + reader + 1);
                          }});
        break;
      }
    }
  CommandPlaces receives = missingReceive(program);
  places.insert(places.end(), receives.begin(), receives.end());
  return places;
}

namespace {

struct Kind {
  const char *name;
  CommandPlaces (*places)(Program &);
  const char *missing; // the error if no fault can be injected: what is missing
};

const Kind kinds[] = {
    {"missing-wait", missingWait, "no transfer that a later command reads"},
    {"slot-reused", slotReused,
     "no pipeline in which two microbatches need slots at one time"},
    {"microbatch-swapped", microbatchSwapped,
     "no pipeline two of whose stages load data, or in which one receives "
     "two microbatches before it reads them"},
    {"gradient-twice", gradientTwice,
     "no pipeline that adds up gradients of microbatches"},
};

const Kind *findKind(llvm::StringRef name) {
  for (const Kind &kind : kinds)
    if (name == kind.name)
      return &kind;
  return nullptr;
}

} // namespace

bool check::isFaultOfCommands(llvm::StringRef kind) { return findKind(kind); }

mlir::LogicalResult check::injectFault(Program &program, llvm::StringRef name,
                                       int64_t index, std::string &where) {
  llvm::raw_string_ostream text(where);
  const Kind *kind = findKind(name);
  CommandPlaces places = kind ? kind->places(program) : CommandPlaces();
  if (places.empty()) {
    text << "this program cannot have the fault " << name << ": it has "
         << (kind ? kind->missing : "no command lists that could show it");
    return mlir::failure();
  }
  if (index >= static_cast<int64_t>(places.size())) {
    text << "index " << index << " of the fault " << name
         << " is out of range; this program has " << places.size()
         << (places.size() == 1 ? " place" : " places") << " for it";
    return mlir::failure();
  }
  const CommandPlace &place = places[index < 0 ? places.size() / 2 : index];
  text << place.where;
  place.apply();
  return mlir::success();
}
