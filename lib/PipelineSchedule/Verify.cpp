// The verifier: checks the contents of each rank's list, matches transfers and
// collectives, and looks for deadlocks.

#include "cleave/PipelineSchedule/Verify.h"

#include "Deadlock.h"
#include "Report.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

namespace cleave::pipeline {

std::string print(const Item &item) {
  if (!item.isCollective())
    return print(item.action);
  if (!item.label.empty())
    return item.label;
  std::string text = isCompute(item.action.action.kind) || !item.what.empty()
                         ? item.what
                         : print(item.action.action);
  return item.action.phase == Phase::Wait ? "WAIT " + text : text;
}

Program programOf(const LoweredTable &table) {
  Program program;
  program.stages = table.stages;
  program.microbatches = table.microbatches;
  program.ranks.resize(table.ranks);
  for (int rank = 0; rank < table.ranks; ++rank) {
    program.ranks[rank].pipeline = rank;
    for (const LoweredAction &action : table.actions[rank])
      program.ranks[rank].items.push_back({action, -1, "", "", -1, -1});
  }
  return program;
}

Program programOf(const LoweredTable &table, const Replay &replay) {
  Program program = programOf(table);
  for (int rank = 0; rank < table.ranks; ++rank)
    program.ranks[rank].peak = replay.rank[rank].peak;
  return program;
}

namespace {

// The send or the receive of a transfer on a rank; `wait` is set when its wait
// is found.
struct End {
  int rank;
  size_t start;
  std::optional<size_t> wait;
};

// The passes of a stage and microbatch: F, I and W; a B is both I and W.
enum Pass { Forward, Input, Weight, passes };

constexpr ActionKind passKinds[] = {ActionKind::F, ActionKind::I,
                                    ActionKind::W};

class Verifier {
public:
  Verifier(const Program &program, size_t most)
      : program(program), report(program, most) {}

  std::vector<Finding> run() {
    if (!nameReplicas())
      return std::move(report.findings);
    readLists();
    for (int replica = 0; replica < replicas; ++replica)
      for (int stage = 0; stage < program.stages; ++stage)
        for (int m = 0; m < program.microbatches; ++m)
          checkPasses(replica, stage, m);
    for (int replica = 0; replica < replicas; ++replica)
      for (int stage = 0; stage + 1 < program.stages; ++stage)
        for (int m = 0; m < program.microbatches; ++m)
          checkBoundary(replica, stage, m);
    checkUnneeded();
    checkChannels();
    checkStages(program, report);
    matchCollectives(program, joints, report);
    compareReplicas(program, report);
    if (std::optional<Finding> finding = findDeadlock(program, joints))
      report.add(std::move(*finding));
    return std::move(report.findings);
  }

private:
  //--- Reading the lists --------------------------------------------------//

  // A replica is one of several equal pipelines along the other mesh axes.
  // Numbers the replicas from 0, and checks that in each replica at most one
  // rank has a given pipeline index.
  bool nameReplicas() {
    std::map<int, int> numbers;
    for (const Program::Rank &rank : program.ranks)
      numbers.try_emplace(rank.replica, 0);
    for (auto &[name, number] : numbers)
      number = replicas++;
    std::set<std::pair<int, int>> taken;
    for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
      const Program::Rank &r = program.ranks[rank];
      replicaOf.push_back(numbers[r.replica]);
      if (!taken.insert({r.replica, r.pipeline}).second) {
        report.add({"range",
                    "rank " + std::to_string(rank) + " has index " +
                        std::to_string(r.pipeline) + " of pipeline " +
                        std::to_string(r.replica) + ", as another rank has",
                    {}});
        return false;
      }
    }
    placesOf.assign(replicas, {});
    for (auto &stages : placesOf)
      stages.assign(static_cast<size_t>(program.stages) * program.microbatches,
                    {});
    return true;
  }

  std::array<PassAt, passes> &passesOf(int replica, int stage, int m) {
    return placesOf[replica]
                   [static_cast<size_t>(stage) * program.microbatches + m];
  }

  void readLists() {
    for (size_t rank = 0; rank < program.ranks.size(); ++rank)
      for (size_t i = 0; i < program.ranks[rank].items.size(); ++i) {
        const Item &item = program.ranks[rank].items[i];
        const Action &action = item.action.action;
        if (item.isCollective() && isCompute(action.kind))
          continue; // belongs to no stage
        if (action.stage < 0 || action.stage >= program.stages ||
            action.microbatch >= program.microbatches ||
            (hasMicrobatch(action.kind) && action.microbatch < 0)) {
          report.add("range", rank, i,
                     "is beyond the " + std::to_string(program.stages) +
                         " stages and " + std::to_string(program.microbatches) +
                         " microbatches");
          continue;
        }
        if (isCompute(action.kind))
          readPass(rank, i, action);
        else if (isTransfer(action.kind))
          readTransfer(rank, i, item.action);
      }
    for (auto &[key, ends] : transfers)
      for (End &end : ends)
        if (!end.wait) {
          report.add("wait", end.rank, end.start,
                     "is started and never waited for");
          end.wait = end.start;
        }
  }

  void readPass(int rank, size_t index, const Action &action) {
    auto &places = passesOf(replicaOf[rank], action.stage, action.microbatch);
    for (Pass pass : {Forward, Input, Weight}) {
      bool does = action.kind == passKinds[pass] ||
                  (action.kind == ActionKind::B && pass != Forward);
      if (!does)
        continue;
      if (places[pass].rank >= 0)
        report.add("once", rank, index,
                   "repeats " +
                       print(Action{action.stage, passKinds[pass],
                                    action.microbatch}) +
                       " of " + report.at(places[pass]),
                   {places[pass]});
      else
        places[pass] = {rank, index};
    }
  }

  void readTransfer(int rank, size_t index, const LoweredAction &action) {
    std::vector<End> &ends = transfers[{replicaOf[rank], action.action}];
    if (action.phase != Phase::Wait) {
      ends.push_back({rank, index,
                      action.phase == Phase::Run ? std::optional<size_t>(index)
                                                 : std::nullopt});
      return;
    }
    for (End &end : ends)
      if (end.rank == rank && !end.wait) {
        end.wait = index;
        return;
      }
    bool later = false;
    const std::vector<Item> &items = program.ranks[rank].items;
    for (size_t i = index + 1; i < items.size(); ++i)
      later |= items[i].action.action == action.action &&
               items[i].action.phase == Phase::Start &&
               !items[i].isCollective();
    report.add("wait", rank, index,
               later ? "precedes its start"
                     : "waits for a transfer that is not started");
  }

  //--- Passes and boundaries ----------------------------------------------//

  void checkPasses(int replica, int stage, int m) {
    const auto &places = passesOf(replica, stage, m);
    for (Pass pass : {Forward, Input, Weight}) {
      if (places[pass].rank >= 0)
        continue;
      report.add(
          {"once",
           "stage " + std::to_string(stage) + ": " +
               print(Action{stage, passKinds[pass], m}) + " is missing" +
               (replicas > 1 ? " in pipeline " + std::to_string(replica) : ""),
           {}});
    }
    mustPrecede(places[Forward], places[Input], "reads its result");
    if (places[Weight].index != places[Input].index) // else one B
      mustPrecede(places[Forward], places[Weight], "reads its result");
    mustPrecede(places[Input], places[Weight], "reads its result");
  }

  // Checks that pass `first` is before pass `second` on the same rank. Both are
  // passes of one stage and microbatch. They may be the same action, a complete
  // backward pass (B).
  void mustPrecede(const PassAt &first, const PassAt &second,
                   const std::string &why) {
    if (first.rank < 0 || second.rank < 0)
      return;
    if (first.rank != second.rank)
      report.add("order", second.rank, second.index,
                 "is not on the rank of " + report.at(first) +
                     ", where its activations are",
                 {first});
    else if (second.index < first.index)
      report.add("order", first.rank, first.index,
                 "comes after " + report.at(second) + ", which " + why,
                 {second});
  }

  void checkBoundary(int replica, int stage, int m) {
    const auto &below = passesOf(replica, stage, m);
    const auto &above = passesOf(replica, stage + 1, m);
    checkEdge(replica, below[Forward], above[Forward],
              {stage, ActionKind::SendF, m}, {stage + 1, ActionKind::RecvF, m});
    checkEdge(replica, above[Input], below[Input],
              {stage + 1, ActionKind::SendB, m}, {stage, ActionKind::RecvB, m});
  }

  // Checks that `to` receives the value that `from` computes.
  void checkEdge(int replica, const PassAt &from, const PassAt &to,
                 const Action &send, const Action &receive) {
    if (from.rank < 0 || to.rank < 0)
      return;
    if (from.rank == to.rank) {
      if (to.index < from.index)
        report.add("order", from.rank, from.index,
                   "comes after " + report.at(to) + ", which reads its result",
                   {to});
      else
        checkHandOver(replica, from, to, send, receive);
      return;
    }
    const End *sent =
        endOf(replica, send, from, to, "no send of what it computes: ");
    const End *received =
        endOf(replica, receive, to, from, "no receive of what it reads: ");
    if (sent && sent->start < from.index)
      report.add("transfer", sent->rank, sent->start,
                 "sends before " + report.at(from) + " computes it", {from});
    if (received && *received->wait > to.index)
      report.add("transfer", received->rank, *received->wait,
                 "is complete only after " + report.at(to) + " has read it",
                 {to});
    if (sent && received) {
      joints.push_back({{{sent->rank, sent->start, *sent->wait},
                         {received->rank, received->start, *received->wait}},
                        -1,
                        true});
      Channel &channel = channels[{sent->rank, received->rank}];
      channel.sends.push_back({sent->start, channel.sends.size()});
      channel.receives.push_back({received->start, channel.receives.size()});
    }
  }

  // Checks the copy of a value that stays on its rank. A send and a receive on
  // this rank, which do not wait for each other, may make such a copy.
  void checkHandOver(int replica, const PassAt &from, const PassAt &to,
                     const Action &send, const Action &receive) {
    bool either = false;
    for (const Action &action : {send, receive}) {
      auto found = transfers.find({replica, action});
      either |=
          found != transfers.end() &&
          std::any_of(found->second.begin(), found->second.end(),
                      [&](const End &end) { return end.rank == from.rank; });
    }
    if (!either)
      return;
    const End *sent =
        endOf(replica, send, from, to, "no send of what it computes: ");
    const End *received =
        endOf(replica, receive, to, from, "no receive of what it reads: ");
    if (!sent || !received)
      return;
    if (sent->start < from.index || received->start < sent->start ||
        *received->wait > to.index)
      report.add("transfer", received->rank, received->start,
                 "must hand over between " + report.at(from) + " and " +
                     report.at(to) + ", after its send",
                 {from, to});
  }

  // Returns the send or receive `action` on the rank of `owner`. Reports it if
  // it is missing or occurs more than once.
  const End *endOf(int replica, const Action &action, const PassAt &owner,
                   const PassAt &other, const std::string &missing) {
    auto found = transfers.find({replica, action});
    const End *end = nullptr;
    if (found != transfers.end())
      for (const End &candidate : found->second) {
        if (candidate.rank != owner.rank)
          continue; // reported as not needed
        if (end)
          report.add("transfer", candidate.rank, candidate.start,
                     "repeats the transfer of " +
                         report.at({end->rank, end->start}),
                     {{end->rank, end->start}});
        else
          end = &candidate;
      }
    needed.insert({owner.rank, action});
    if (!end)
      report.add("transfer", owner.rank, owner.index,
                 "has " + missing + print(action) + " is missing on rank " +
                     std::to_string(owner.rank),
                 {other});
    else if (int peer = program.ranks[end->rank].items[end->start].action.peer;
             peer >= 0 && peer != program.ranks[other.rank].pipeline)
      report.add("transfer", end->rank, end->start,
                 "is with rank " + std::to_string(peer) +
                     " of the pipeline, but " + report.at(other) +
                     " is on rank " +
                     std::to_string(program.ranks[other.rank].pipeline),
                 {other});
    return end;
  }

  void checkUnneeded() {
    for (const auto &[key, ends] : transfers)
      for (const End &end : ends)
        if (!needed.count({end.rank, key.second}))
          report.add("transfer", end.rank, end.start,
                     "moves nothing that another rank computes or reads");
  }

  // Checks that the n-th send of a channel matches its n-th receive.
  void checkChannels() {
    for (auto &[ranks, channel] : channels) {
      std::sort(channel.sends.begin(), channel.sends.end());
      std::sort(channel.receives.begin(), channel.receives.end());
      for (size_t k = 0; k < channel.sends.size(); ++k) {
        if (channel.sends[k].second == channel.receives[k].second)
          continue;
        PassAt received{ranks.second, channel.receives[k].first};
        report.add("transfer", ranks.first, channel.sends[k].first,
                   "is message " + std::to_string(k) + " from rank " +
                       std::to_string(ranks.first) + " to rank " +
                       std::to_string(ranks.second) + ", where " +
                       report.at(received) +
                       " is expected: sends and receives are crossed",
                   {received});
        break; // later mismatches are consequences
      }
    }
  }

  // The sends and receives of a channel. Each is a pair: the index of the
  // transfer's start in its rank's list, and the number of its message.
  struct Channel {
    std::vector<std::pair<size_t, size_t>> sends, receives;
  };

  const Program &program;
  Report report;
  int replicas = 0;
  std::vector<int> replicaOf; // by rank, from 0
  std::vector<std::vector<std::array<PassAt, passes>>> placesOf; // by replica
  std::map<std::pair<int, Action>, std::vector<End>> transfers;  // by replica
  std::set<std::pair<int, Action>> needed;                       // by rank
  std::map<std::pair<int, int>, Channel> channels; // sender, receiver
  std::vector<Joint> joints;
};

} // namespace

std::vector<Finding> verify(const Program &program, size_t most) {
  return Verifier(program, most).run();
}

std::vector<Finding> verify(const LoweredTable &table, size_t most) {
  return verify(programOf(table), most);
}

} // namespace cleave::pipeline
