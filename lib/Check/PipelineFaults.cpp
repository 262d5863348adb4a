// Injected faults of the command lists of pipelines: values of one microbatch
// are stored in the slot (memory of one microbatch in flight) of another
// microbatch, or are accessed at the wrong time. Faults never change the order
// of messages, so a faulty program terminates like a correct one. A fault is
// only injected where it makes the result wrong whenever messages arrive.

#include "CommandPlaces.h"

#include "cleave/Dialect/NN/IR/Ports.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

using namespace cleave;
using namespace cleave::check;
using namespace cleave::program;

namespace {

/// The action of the schedule that a command belongs to, such as
/// "1WAIT_RECV_F3".
struct Label {
  int64_t stage = -1, microbatch = -1;
  std::string kind;
};

std::optional<Label> labelOf(const Program &program, const Command &command) {
  llvm::StringRef text = program.strings[command.source];
  Label label;
  if (text.consumeInteger(10, label.stage))
    return std::nullopt;
  size_t letters = text.find_first_of("0123456789");
  if (letters == 0 || letters == llvm::StringRef::npos)
    return std::nullopt;
  label.kind = text.take_front(letters).str();
  if (text.drop_front(letters).getAsInteger(10, label.microbatch))
    return std::nullopt;
  return label;
}

/// Returns the command lists that run a step of a pipeline, one for each group
/// of ranks with identical commands.
std::vector<Action *> stepsOf(Program &program) {
  std::vector<Action *> steps;
  for (Action &action : program.actions)
    if (action.name == nn::kLossGradFunc &&
        llvm::any_of(action.commands, [&](const Command &command) {
          return std::holds_alternative<Call>(command.op) &&
                 labelOf(program, command);
        }))
      steps.push_back(&action);
  return steps;
}

int64_t movedBy(const Call &call, int32_t arena) {
  for (const Rebase &rebase : call.rebase)
    if (rebase.arena == arena)
      return rebase.offset;
  return 0;
}

void moveTo(Call &call, int32_t arena, int64_t offset) {
  llvm::erase_if(call.rebase,
                 [&](const Rebase &rebase) { return rebase.arena == arena; });
  if (offset)
    call.rebase.push_back({arena, offset});
}

/// The memory that the functions called by a program access. A Call command of
/// a pipeline runs such a function, for example the backward pass of a stage,
/// on the slot (memory) of one microbatch.
class Called {
public:
  explicit Called(Program &program) : program(program) {}

  /// Returns the memory references of a called function, as they were before a
  /// fault changed any of them.
  const std::vector<BufferRef> &refsOf(const Call &call) {
    auto [entry, isNew] = refs.try_emplace(call.action);
    if (isNew)
      addRefs(call.action, entry->second);
    return entry->second;
  }

  bool touches(const Call &call, int32_t arena) {
    return llvm::any_of(
        refsOf(call), [&](const BufferRef &ref) { return ref.arena == arena; });
  }

  bool touches(const Call &call, Range range) {
    range.begin -= movedBy(call, range.arena);
    return llvm::any_of(refsOf(call), [&](const BufferRef &ref) {
      return range.contains(ref);
    });
  }

  /// Returns whether the called function reads or writes the memory into which
  /// the message is received.
  bool touches(const Call &call, const Collective &message) {
    return llvm::any_of(receivedBy(message), [&](const Range &range) {
      return touches(call, range);
    });
  }

private:
  /// Adds the memory references of an action and of the loops in it.
  void addRefs(uint32_t action, std::vector<BufferRef> &all) {
    for (Command &command : program.actions[action].commands) {
      for (BufferRef *ref : addressesOf(command))
        if (ref->present())
          all.push_back(*ref);
      if (auto *repeat = std::get_if<Repeat>(&command.op))
        addRefs(repeat->action, all);
    }
  }

  Program &program;
  std::map<uint32_t, std::vector<BufferRef>> refs;
};

bool isReceiver(const Action &action, const Collective &message) {
  return message.kind == CollectiveKind::SendRecv &&
         message.positions.size() == 2 &&
         message.positions[1] == int64_t(action.rankClass);
}

size_t waitOf(const Action &action, size_t start) {
  int32_t token = std::get<Collective>(action.commands[start].op).token;
  for (size_t i = start + 1; i < action.commands.size(); ++i)
    if (auto *wait = std::get_if<Wait>(&action.commands[i].op))
      if (wait->token == token)
        return i;
  return start;
}

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

/// The slot of one microbatch's value, in an arena that has a slot for each
/// microbatch in flight, and the commands of a step that access it. Commands
/// are given by their index in the command list.
struct Use {
  /// Offset in the arena of the microbatch's slot (its memory).
  int64_t slot = 0;
  std::vector<size_t> commands;
  size_t writeBegin = 0, writeEnd = 0;
  /// Commands that read the value. The wait for a send is not included,
  /// although the send ends there, because the message may have been sent
  /// before.
  std::vector<size_t> reads;
};

/// Returns the use of the arena by each microbatch that has a value in it: the
/// slot (memory) of the value, and the commands that write and read it. The
/// microbatches are in the order in which their values are written.
llvm::MapVector<int64_t, Use> usesOf(Program &program, Action &step,
                                     Called &called, int32_t arena) {
  std::set<int64_t> slots{0};
  for (const Command &command : step.commands)
    if (auto *call = std::get_if<Call>(&command.op))
      if (called.touches(*call, arena))
        slots.insert(movedBy(*call, arena));
  auto slotOf = [&](int64_t offset) {
    return *std::prev(slots.upper_bound(offset));
  };
  llvm::MapVector<int64_t, Use> uses;
  std::map<int64_t, StringId> writers;
  for (size_t i = 0; i < step.commands.size(); ++i) {
    Command &command = step.commands[i];
    std::optional<Label> label = labelOf(program, command);
    if (!label)
      continue;
    std::optional<int64_t> slot;
    if (auto *call = std::get_if<Call>(&command.op)) {
      if (called.touches(*call, arena))
        slot = movedBy(*call, arena);
    } else {
      for (BufferRef *ref : addressesOf(command))
        if (ref->arena == arena)
          slot = slotOf(ref->offset);
    }
    if (!slot)
      continue;
    auto [entry, isFirst] = uses.insert({label->microbatch, Use()});
    Use &use = entry->second;
    use.commands.push_back(i);
    auto *message = std::get_if<Collective>(&command.op);
    if (isFirst) {
      use.slot = *slot;
      use.writeBegin = i;
      writers[label->microbatch] = command.source;
      use.writeEnd =
          message && isReceiver(step, *message) ? waitOf(step, i) : i;
    } else if (command.source == writers[label->microbatch]) {
      use.writeEnd = i;
    } else {
      use.reads.push_back(i);
    }
  }
  return uses;
}

} // namespace

CommandPlaces check::slotReused(Program &program) {
  CommandPlaces places;
  Called called(program);
  for (Action *step : stepsOf(program))
    for (size_t arena = 0; arena < program.arenas.size(); ++arena) {
      if (program.arenas[arena].lifespan != Lifespan::Slots ||
          program.arenas[arena].rankClass != int64_t(step->rankClass))
        continue;
      auto uses = usesOf(program, *step, called, arena);
      for (const auto &[microbatch, use] : uses) {
        if (use.reads.empty())
          continue;
        // Finds the first other microbatch that writes its value while this
        // value is still needed. The fault makes it use the memory (slot) of
        // this value.
        for (const auto &[other, later] : uses) {
          if (later.slot == use.slot || later.writeBegin <= use.writeEnd ||
              later.writeEnd >= use.reads.back())
            continue;
          std::string where =
              "microbatch " + std::to_string(other) + " takes the slot of " +
              std::to_string(microbatch) + " in " + program.arenas[arena].name +
              " before " +
              program.strings[step->commands[use.reads.back()].source] +
              " has read it";
          places.push_back(
              {where,
               [step, arena = int32_t(arena), from = later, to = use.slot] {
                 for (size_t i : from.commands) {
                   Command &command = step->commands[i];
                   if (auto *call = std::get_if<Call>(&command.op)) {
                     moveTo(*call, arena, to);
                     continue;
                   }
                   for (BufferRef *ref : addressesOf(command))
                     if (ref->arena == arena)
                       ref->offset += to - from.slot;
                 }
               }});
          break;
        }
      }
    }
  return places;
}

//===----------------------------------------------------------------------===//
// Microbatches
//===----------------------------------------------------------------------===//

namespace {

bool isFloat(DType type) {
  return type == DType::F32 || type == DType::F64 || type == DType::BF16;
}

/// Returns whether the called function loads inputs that are certainly
/// different for each microbatch: tokens, labels or floats. Other inputs, such
/// as integer masks, may be equal for all microbatches.
bool keepsData(Program &program, Called &called, const Call &call,
               uint32_t rankClass) {
  for (const Boundary &entry : program.boundary) {
    std::optional<nn::Role> role = nn::symbolizeRole(entry.role);
    if ((nn::isOneOf(role, {nn::Role::Tokens, nn::Role::Labels}) ||
         (role == nn::Role::Input && isFloat(entry.dtype))) &&
        entry.rankClass == int64_t(rankClass)) {
      int64_t bytes = sizeOf(entry.dtype);
      for (int64_t extent : entry.localShape)
        bytes *= extent;
      if (called.touches(call,
                         Range{entry.buffer.arena, entry.buffer.offset, bytes}))
        return true;
    }
  }
  return false;
}

/// Adds faults that swap two consecutive messages between the same ranks, so
/// that each is received into the memory (slot) of the other microbatch. Such a
/// fault is only added if both messages arrive before either of them is read.
void swapReceives(Program &program, Action &step, Called &called,
                  CommandPlaces &places) {
  struct Receive {
    size_t start, wait, reader;
    Label label;
  };
  std::map<std::pair<int64_t, std::string>, std::vector<Receive>> channels;
  for (size_t i = 0; i < step.commands.size(); ++i) {
    auto *message = std::get_if<Collective>(&step.commands[i].op);
    std::optional<Label> label = labelOf(program, step.commands[i]);
    if (!message || !label || !isReceiver(step, *message))
      continue;
    size_t wait = waitOf(step, i), reader = i;
    for (size_t k = wait + 1; k < step.commands.size() && reader == i; ++k)
      if (auto *call = std::get_if<Call>(&step.commands[k].op))
        if (called.touches(*call, *message))
          reader = k;
    if (reader != i)
      channels[{label->stage, label->kind}].push_back(
          {i, wait, reader, *label});
  }
  for (auto &[channel, receives] : channels)
    for (size_t k = 0; k + 1 < receives.size(); ++k) {
      const Receive &a = receives[k], &b = receives[k + 1];
      if (a.reader < b.wait || b.reader < a.wait)
        continue;
      places.push_back(
          {program.strings[step.commands[a.start].source] + " and " +
               program.strings[step.commands[b.start].source] +
               " write each other's slots",
           [&step, a = a.start, b = b.start] {
             auto &first = std::get<Collective>(step.commands[a].op).parts;
             auto &second = std::get<Collective>(step.commands[b].op).parts;
             for (size_t part = 0; part < first.size(); ++part) {
               std::swap(first[part].src, second[part].src);
               std::swap(first[part].dst, second[part].dst);
             }
           }});
    }
}

} // namespace

CommandPlaces check::microbatchSwapped(Program &program) {
  CommandPlaces places;
  Called called(program);
  if (stepsOf(program).empty())
    return places;
  // Calls that load the inputs of a microbatch, grouped by the function that
  // they call.
  std::map<uint32_t, std::vector<Call *>> loads;
  for (size_t k = 0;; ++k) {
    bool found = false;
    for (Action &action : program.actions) {
      if (action.name != program::loadAction(k))
        continue;
      found = true;
      for (Command &command : action.commands)
        if (auto *call = std::get_if<Call>(&command.op))
          if (keepsData(program, called, *call, action.rankClass))
            loads[call->action].push_back(call);
    }
    if (!found)
      break;
  }
  // The fault swaps the inputs of two microbatches in one stage only. If a
  // single stage reads all inputs, this only changes the order of microbatches,
  // and the result stays the same.
  if (loads.size() > 1)
    for (auto &[action, calls] : loads)
      for (size_t k = 0; k + 1 < calls.size(); ++k)
        places.push_back({program.strings[calls[k]->label] + " and " +
                              program.strings[calls[k + 1]->label] + " of " +
                              program.actions[action].name.substr(1) +
                              " keep each other's microbatch",
                          [a = calls[k], b = calls[k + 1]] {
                            std::swap(a->rebase, b->rebase);
                          }});
  for (Action *step : stepsOf(program))
    swapReceives(program, *step, called, places);
  return places;
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

CommandPlaces check::gradientTwice(Program &program) {
  CommandPlaces places;
  Called called(program);
  for (Action *step : stepsOf(program)) {
    // All calls of each function. The fault runs one of them twice, so that a
    // gradient is added twice. Functions with a single call are omitted: this
    // may be the call for the first microbatch, which may write its gradients
    // instead of adding them.
    std::map<uint32_t, std::vector<size_t>> calls;
    for (size_t i = 0; i < step->commands.size(); ++i)
      if (auto *call = std::get_if<Call>(&step->commands[i].op))
        if (labelOf(program, step->commands[i]))
          calls[call->action].push_back(i);
    for (auto &[action, at] : calls) {
      if (at.size() < 2)
        continue;
      const Call &call = std::get<Call>(step->commands[at[0]].op);
      bool adds = llvm::any_of(program.boundary, [&](const Boundary &entry) {
        if (nn::symbolizeRole(entry.role) != nn::Role::Gradient ||
            entry.rankClass != int64_t(step->rankClass))
          return false;
        int64_t bytes = sizeOf(entry.dtype);
        for (int64_t extent : entry.localShape)
          bytes *= extent;
        return called.touches(
            call, Range{entry.buffer.arena, entry.buffer.offset, bytes});
      });
      if (!adds)
        continue;
      for (size_t i : at)
        places.push_back(
            {program.strings[step->commands[i].source] + " runs twice",
             [step, i] {
               Command again = step->commands[i];
               step->commands.insert(step->commands.begin() + i + 1, again);
             }});
    }
  }
  return places;
}

//===----------------------------------------------------------------------===//
// Receives
//===----------------------------------------------------------------------===//

/// Returns faults that move the reader of a message before the start of its
/// receive. If only the wait moved, to after the reader, the result would still
/// be correct whenever the message arrives early.
CommandPlaces check::missingReceive(Program &program) {
  CommandPlaces places;
  Called called(program);
  for (Action *step : stepsOf(program))
    for (size_t start = 0; start < step->commands.size(); ++start) {
      auto *message = std::get_if<Collective>(&step->commands[start].op);
      if (!message || !isReceiver(*step, *message))
        continue;
      auto reads = [&](const Command &command) {
        auto *call = std::get_if<Call>(&command.op);
        return call && called.touches(*call, *message);
      };
      size_t first = waitOf(*step, start) + 1, size = step->commands.size();
      while (first < size && !reads(step->commands[first]))
        ++first;
      if (first == size)
        continue;
      // Commands with the same label as the call, such as copies of its
      // operands, belong to it and are moved together with it.
      StringId label = step->commands[first].source;
      size_t end = first + 1;
      while (step->commands[first - 1].source == label)
        --first;
      while (end < size && step->commands[end].source == label)
        ++end;
      places.push_back({program.strings[label] + " does not wait for " +
                            program.strings[step->commands[start].source],
                        [step, start, first, end] {
                          auto begin = step->commands.begin();
                          std::rotate(begin + start, begin + first,
                                      begin + end);
                        }});
    }
  return places;
}
