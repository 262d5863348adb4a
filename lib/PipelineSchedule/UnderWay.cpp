// Checks the accesses of every command between the start of a transfer and its
// wait.

#include "UnderWay.h"

#include "Deadlock.h"
#include "Touches.h"

#include <algorithm>
#include <map>
#include <optional>

namespace cleave::pipeline {

namespace {

struct Transfer {
  Place place;
  std::vector<Touch> touches;
};

// Checks that no command of a list writes memory that a transfer in flight
// reads, or accesses memory that the transfer writes. The commands of the
// functions that the list calls are checked as well.
class List {
public:
  List(const program::Program &program, int64_t rank)
      : program(program), rank(rank) {}

  std::optional<Finding> run(const program::Action &action) {
    walk(action.commands, nullptr);
    return std::move(finding);
  }

private:
  // `call` is the command that calls the function with these commands; null for
  // the top-level list.
  void walk(const std::vector<program::Command> &commands,
            const program::Command *call) {
    std::map<int32_t, int> started; // keys of `open`, by token
    for (size_t i = 0; i < commands.size() && !finding; ++i) {
      const program::Command &command = commands[i];
      if (!call)
        index = i;
      if (auto *inner = std::get_if<program::Call>(&command.op)) {
        walk(program.actions[inner->action].commands, &command);
        continue;
      }
      if (auto *wait = std::get_if<program::Wait>(&command.op)) {
        if (auto found = started.find(wait->token); found != started.end())
          open.erase(found->second);
        continue;
      }
      auto *collective = std::get_if<program::Collective>(&command.op);
      bool starts = collective && collective->token >= 0;
      if (open.empty() && !starts)
        continue;
      std::vector<Touch> touches = touchesOf(program, command, rank);
      if (call)
        move(touches, std::get<program::Call>(call->op));
      for (const auto &[number, transfer] : open)
        check(command, call, touches, transfer);
      if (starts) {
        started[collective->token] = transfers;
        open[transfers++] = {placeOf(command, call), std::move(touches)};
      }
    }
  }

  // "1F0 (matmul)".
  Place placeOf(const program::Command &command,
                const program::Command *call) const {
    std::string text = program.strings[command.source];
    if (call) {
      const std::string &caller = program.strings[call->source];
      text = text.empty() ? caller : caller + " (" + text + ")";
    }
    return {static_cast<int>(program.classOf(rank)), index, text};
  }

  static void move(std::vector<Touch> &touches, const program::Call &call) {
    for (Touch &touch : touches)
      for (const program::Rebase &rebase : call.rebase)
        if (rebase.arena == touch.arena) {
          touch.begin += rebase.offset;
          touch.end += rebase.offset;
        }
  }

  void check(const program::Command &command, const program::Command *call,
             const std::vector<Touch> &touches, const Transfer &transfer) {
    for (const Touch &held : transfer.touches)
      for (const Touch &touch : touches) {
        bool harmless =
            held.access == Access::Read && touch.access != Access::Write;
        if (finding || harmless || !touch.overlaps(held))
          continue;
        const Place place = placeOf(command, call);
        finding = {
            "transfer",
            describe(place) +
                (touch.access == Access::Write ? " writes " : " touches ") +
                nameOf(program, touch) + ", which " + transfer.place.text +
                " (action " + std::to_string(transfer.place.index) +
                ") still " +
                (held.access == Access::Read ? "reads" : "writes") +
                ": its wait must come first",
            {place, transfer.place}};
      }
  }

  const program::Program &program;
  const int64_t rank;
  size_t index = 0; // in the top-level list
  int transfers = 0;
  std::map<int, Transfer> open;
  std::optional<Finding> finding;
};

} // namespace

std::vector<Finding> checkUnderWay(const program::Program &program,
                                   const std::string &action) {
  // The first rank of each group of ranks that run identical commands.
  std::map<uint32_t, int64_t> first;
  for (int64_t rank = 0; rank < program.numRanks(); ++rank)
    first.try_emplace(program.classOf(rank), rank);
  std::vector<Finding> findings;
  for (const program::Action &list : program.actions)
    if (auto rank = first.find(list.rankClass);
        list.name == action && rank != first.end())
      if (std::optional<Finding> finding =
              List(program, rank->second).run(list))
        findings.push_back(std::move(*finding));
  return findings;
}

} // namespace cleave::pipeline
