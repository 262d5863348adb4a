// Converts command lists to the verifier's items. Launches and copies are
// omitted, and called actions are inlined.

#include "cleave/PipelineSchedule/VerifyProgram.h"

#include "Touches.h"
#include "UnderWay.h"

#include <algorithm>
#include <map>
#include <set>

namespace cleave::pipeline {

namespace {

class Lists {
public:
  Lists(const program::Program &source, const std::string &action)
      : source(source), action(action) {}

  Program run() {
    // Among ranks that run identical commands (a class of ranks), the first one
    // represents the others.
    for (int64_t rank = 0; rank < source.numRanks(); ++rank)
      first.try_emplace(source.classOf(rank), rank);
    for (auto [rankClass, rank] : first) {
      indexOf[rankClass] = static_cast<int>(result.ranks.size());
      result.ranks.push_back({indexOf[rankClass], 0, {}, -1});
    }
    for (auto [rankClass, rank] : first)
      for (const program::Action &list : source.actions)
        if (list.name == action && list.rankClass == rankClass)
          walk(list.commands, rank, indexOf[rankClass]);
    return std::move(result);
  }

private:
  void walk(const std::vector<program::Command> &commands, int64_t rank,
            int index) {
    std::map<int32_t, Item> started; // by token
    for (const program::Command &command : commands) {
      if (auto *call = std::get_if<program::Call>(&command.op)) {
        walk(source.actions[call->action].commands, rank, index);
      } else if (auto *wait = std::get_if<program::Wait>(&command.op)) {
        auto start = started.find(wait->token);
        Item item;
        if (start != started.end())
          item = start->second;
        else
          item.what = "token " + std::to_string(wait->token);
        if (start == started.end())
          item.communicator = communicator("none", {rank}, false);
        item.action.phase = Phase::Wait;
        item.label = source.strings[command.source];
        result.ranks[index].items.push_back(item);
        started.erase(wait->token);
      } else if (auto *collective =
                     std::get_if<program::Collective>(&command.op)) {
        Item item;
        if (!read(*collective, rank, item))
          continue;
        item.label = source.strings[command.source];
        item.ticket = tickets++;
        item.action.phase = collective->token < 0 ? Phase::Run : Phase::Start;
        if (collective->token >= 0)
          started[collective->token] = item;
        result.ranks[index].items.push_back(item);
      }
    }
  }

  // Fills `item` for a collective. Returns false if the rank takes no part in
  // it.
  bool read(const program::Collective &collective, int64_t rank, Item &item) {
    std::vector<int64_t> members = membersOf(source, collective, rank);
    if (members.empty())
      return false;
    bool channel = collective.kind == program::CollectiveKind::SendRecv;
    std::string name;
    for (const program::SubAxis &axis : collective.group)
      name += (name.empty() ? "" : ", ") + source.mesh[axis.axis].name;
    if (channel)
      name += ": " + std::to_string(indexOf[source.classOf(members[0])]) +
              " to " + std::to_string(indexOf[source.classOf(members[1])]);
    item.communicator = communicator(name, members, channel);
    item.what = "kind " + std::to_string(static_cast<int>(collective.kind)) +
                ", type " + std::to_string(static_cast<int>(collective.dtype)) +
                ":";
    for (const program::Transfer &part : collective.parts)
      item.what += " " + std::to_string(part.count);
    return true;
  }

  // Returns the communicator of a group, in the order of the group. Each member
  // is represented by the class of ranks (ranks that run identical commands) to
  // which it belongs.
  int communicator(const std::string &name, const std::vector<int64_t> &members,
                   bool channel) {
    std::vector<int> ranks;
    std::set<int> seen;
    for (int64_t member : members)
      if (int index = indexOf[source.classOf(member)];
          seen.insert(index).second)
        ranks.push_back(index);
    auto [entry, fresh] =
        communicators.try_emplace({name, ranks, channel}, communicators.size());
    if (fresh)
      result.communicators.push_back({name, ranks, channel});
    return static_cast<int>(entry->second);
  }

  const program::Program &source;
  const std::string &action;
  Program result;
  std::map<uint32_t, int64_t> first; // first rank of each class
  std::map<uint32_t, int> indexOf;   // its index in the result
  std::map<std::tuple<std::string, std::vector<int>, bool>, size_t>
      communicators;
  int tickets = 0;
};

} // namespace

Program programOf(const program::Program &program, const std::string &action) {
  return Lists(program, action).run();
}

std::vector<Finding> verify(const program::Program &program, size_t most) {
  std::vector<Finding> findings;
  std::set<std::string> seen;
  for (const program::Action &action : program.actions) {
    if (action.isOnlyCalled() || !seen.insert(action.name).second)
      continue;
    for (std::vector<Finding> some :
         {verify(programOf(program, action.name), most),
          checkUnderWay(program, action.name)})
      for (Finding &finding : some) {
        finding.message = "@" + action.name + ": " + finding.message;
        if (findings.size() < most)
          findings.push_back(std::move(finding));
      }
  }
  return findings;
}

} // namespace cleave::pipeline
