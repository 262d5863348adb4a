// The verifier: what each rank's list must hold, which transfers and
// collectives belong together, and that nobody waits for ever.

#include "cleave/Pipeline/Verify.h"

#include "Deadlock.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

namespace cleave::pipeline {

std::string print(const Item &item) {
  if (!item.isCollective())
    return print(item.action);
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
      program.ranks[rank].items.push_back({action, -1, "", -1, -1});
  }
  return program;
}

namespace {

// One end of a transfer on a rank; `wait` may be missing until it is found.
struct End {
  int rank;
  size_t start;
  std::optional<size_t> wait;
};

// F, I and W of a stage and microbatch; B is both of the latter.
enum Pass { Forward, Input, Weight, passes };

constexpr ActionKind passKinds[] = {ActionKind::F, ActionKind::I,
                                    ActionKind::W};

class Verifier {
public:
  Verifier(const Program &program, size_t most)
      : program(program), most(most) {}

  std::vector<Finding> run() {
    if (!nameReplicas())
      return std::move(findings);
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
    for (size_t rank = 0; rank < program.ranks.size(); ++rank)
      checkStages(static_cast<int>(rank));
    matchCollectives();
    compareReplicas();
    if (std::optional<Finding> finding = findDeadlock(program, joints))
      add(std::move(*finding));
    return std::move(findings);
  }

private:
  using Spot = std::optional<size_t>; // place in the list of a known rank

  struct PassAt {
    int rank = -1;
    size_t index = 0;
  };

  //--- Findings -----------------------------------------------------------//

  void add(Finding finding) {
    if (findings.size() < most)
      findings.push_back(std::move(finding));
  }

  // A sentence about items; the first one begins it.
  void add(const std::string &rule, int rank, size_t index,
           const std::string &why, std::vector<PassAt> others = {}) {
    Finding finding{rule, "", {placeOf(program, rank, index)}};
    finding.message = describe(finding.places[0]) + " " + why;
    for (const PassAt &other : others)
      finding.places.push_back(placeOf(program, other.rank, other.index));
    add(std::move(finding));
  }

  std::string at(const PassAt &place) const {
    Place described = placeOf(program, place.rank, place.index);
    return described.text + " (rank " + std::to_string(place.rank) +
           ", action " + std::to_string(place.index) + ")";
  }

  //--- Reading the lists --------------------------------------------------//

  // Numbers replicas from 0 and finds the rank of each place in a pipeline.
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
        add({"range",
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
            (hasMicrobatch(action.kind) &&
             (action.microbatch < 0 ||
              action.microbatch >= program.microbatches))) {
          add("range", rank, i,
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
          add("wait", end.rank, end.start, "is started and never waited for");
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
        add("once", rank, index,
            "repeats " +
                print(
                    Action{action.stage, passKinds[pass], action.microbatch}) +
                " of " + at(places[pass]),
            {places[pass]});
      else
        places[pass] = {rank, index};
    }
  }

  void readTransfer(int rank, size_t index, const LoweredAction &action) {
    std::vector<End> &ends = transfers[{replicaOf[rank], action.action}];
    if (action.phase != Phase::Wait) {
      ends.push_back({rank, index,
                      action.phase == Phase::Run ? Spot(index) : std::nullopt});
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
    add("wait", rank, index,
        later ? "stands before its start" : "waits for what is not started");
  }

  //--- Passes and boundaries ----------------------------------------------//

  void checkPasses(int replica, int stage, int m) {
    const auto &places = passesOf(replica, stage, m);
    for (Pass pass : {Forward, Input, Weight}) {
      if (places[pass].rank >= 0)
        continue;
      add({"once",
           "stage " + std::to_string(stage) + ": " +
               print(Action{stage, passKinds[pass], m}) + " is missing" +
               (replicas > 1 ? " in pipeline " + std::to_string(replica) : ""),
           {}});
    }
    mustPrecede(places[Forward], places[Input], "reads what this computes");
    if (places[Weight].index != places[Input].index) // else one B
      mustPrecede(places[Forward], places[Weight], "reads what this computes");
    mustPrecede(places[Input], places[Weight], "reads what this computes");
  }

  // Both of one stage, so on one rank; B may be the same action.
  void mustPrecede(const PassAt &first, const PassAt &second,
                   const std::string &why) {
    if (first.rank < 0 || second.rank < 0)
      return;
    if (first.rank != second.rank)
      add("order", second.rank, second.index,
          "is not on the rank of " + at(first) + ", where its activations are",
          {first});
    else if (second.index < first.index)
      add("order", first.rank, first.index,
          "stands after " + at(second) + ", which " + why, {second});
  }

  void checkBoundary(int replica, int stage, int m) {
    const auto &below = passesOf(replica, stage, m);
    const auto &above = passesOf(replica, stage + 1, m);
    checkEdge(replica, below[Forward], above[Forward],
              {stage, ActionKind::SendF, m}, {stage + 1, ActionKind::RecvF, m});
    checkEdge(replica, above[Input], below[Input],
              {stage + 1, ActionKind::SendB, m}, {stage, ActionKind::RecvB, m});
  }

  // What `from` computes and `to` reads.
  void checkEdge(int replica, const PassAt &from, const PassAt &to,
                 const Action &send, const Action &receive) {
    if (from.rank < 0 || to.rank < 0)
      return;
    if (from.rank == to.rank) {
      if (to.index < from.index)
        add("order", from.rank, from.index,
            "stands after " + at(to) + ", which reads what this computes",
            {to});
      return;
    }
    const End *sent =
        endOf(replica, send, from, to, "no send of what it computes: ");
    const End *received =
        endOf(replica, receive, to, from, "no receive of what it reads: ");
    if (sent && sent->start < from.index)
      add("transfer", sent->rank, sent->start,
          "sends before " + at(from) + " computes it", {from});
    if (received && *received->wait > to.index)
      add("transfer", received->rank, *received->wait,
          "is complete only after " + at(to) + " has read it", {to});
    if (sent && received) {
      joints.push_back({{{sent->rank, sent->start, *sent->wait},
                         {received->rank, received->start, *received->wait}},
                        -1});
      Channel &channel = channels[{sent->rank, received->rank}];
      channel.sends.push_back({sent->start, channel.sends.size()});
      channel.receives.push_back({received->start, channel.receives.size()});
    }
  }

  // The one end of a transfer, on the rank of `owner`.
  const End *endOf(int replica, const Action &action, const PassAt &owner,
                   const PassAt &other, const std::string &missing) {
    auto found = transfers.find({replica, action});
    const End *end = nullptr;
    if (found != transfers.end())
      for (const End &candidate : found->second) {
        if (candidate.rank != owner.rank)
          continue; // reported as not needed
        if (end)
          add("transfer", candidate.rank, candidate.start,
              "repeats the transfer of " + at({end->rank, end->start}),
              {{end->rank, end->start}});
        else
          end = &candidate;
      }
    needed.insert({owner.rank, action});
    if (!end)
      add("transfer", owner.rank, owner.index,
          "has " + missing + print(action) + " is missing on rank " +
              std::to_string(owner.rank),
          {other});
    else if (int peer = program.ranks[end->rank].items[end->start].action.peer;
             peer >= 0 && peer != program.ranks[other.rank].pipeline)
      add("transfer", end->rank, end->start,
          "is with rank " + std::to_string(peer) + " of the pipeline, but " +
              at(other) + " is on rank " +
              std::to_string(program.ranks[other.rank].pipeline),
          {other});
    return end;
  }

  void checkUnneeded() {
    for (const auto &[key, ends] : transfers)
      for (const End &end : ends)
        if (!needed.count({end.rank, key.second}))
          add("transfer", end.rank, end.start,
              "moves nothing that another rank computes or reads");
  }

  // The n-th send of a channel meets its n-th receive.
  void checkChannels() {
    for (auto &[ranks, channel] : channels) {
      std::sort(channel.sends.begin(), channel.sends.end());
      std::sort(channel.receives.begin(), channel.receives.end());
      for (size_t k = 0; k < channel.sends.size(); ++k) {
        if (channel.sends[k].second == channel.receives[k].second)
          continue;
        PassAt received{ranks.second, channel.receives[k].first};
        add("transfer", ranks.first, channel.sends[k].first,
            "is message " + std::to_string(k) + " from rank " +
                std::to_string(ranks.first) + " to rank " +
                std::to_string(ranks.second) + ", where " + at(received) +
                " is expected: sends and receives are crossed",
            {received});
        break; // what follows is a consequence
      }
    }
  }

  //--- Reductions, gathered parameters, peaks -----------------------------//

  void checkStages(int rank) {
    const std::vector<Item> &items = program.ranks[rank].items;
    std::map<int, Spot> lastReduction; // of all microbatches, by stage
    std::map<std::pair<int, int>, Spot> reduction; // of one
    std::set<int> sharded, gathered;               // stages
    for (const Item &item : items)
      if (item.action.action.kind == ActionKind::Unshard)
        sharded.insert(item.action.action.stage);
    int held = 0, peak = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].isCollective() && isCompute(items[i].action.action.kind))
        continue;
      auto [stage, kind, m] = items[i].action.action;
      Phase phase = items[i].action.phase;
      bool weights = kind == ActionKind::W || kind == ActionKind::B;
      if (weights) {
        Spot reduced = lastReduction[stage];
        if (!reduced)
          reduced = reduction[{stage, m}];
        if (reduced)
          add("reduction", rank, i,
              "computes gradients after " + at({rank, *reduced}) +
                  " has reduced them",
              {{rank, *reduced}});
      }
      if (kind == ActionKind::ReduceGrad && phase != Phase::Wait) {
        Spot &reduced = m < 0 ? lastReduction[stage] : reduction[{stage, m}];
        // A reduction may be several collectives.
        if (reduced && !items[i].isCollective())
          add("reduction", rank, i, "repeats " + at({rank, *reduced}),
              {{rank, *reduced}});
        reduced = i;
      }
      if (isCompute(kind) && kind != ActionKind::W && sharded.count(stage) &&
          !gathered.count(stage))
        add("shard", rank, i,
            "reads parameters of stage " + std::to_string(stage) +
                " that are not gathered; an UNSHARD must stand before it");
      if (kind == ActionKind::Unshard && phase != Phase::Start &&
          !gathered.insert(stage).second)
        add("shard", rank, i, "gathers what is gathered");
      if (kind == ActionKind::Reshard && !gathered.erase(stage))
        add("shard", rank, i, "frees what is not gathered");
      held += kind == ActionKind::F;
      peak = std::max(peak, held);
      held -= weights;
    }
    int declared = program.ranks[rank].peak;
    if (declared >= 0 && declared != peak)
      add({"peak",
           "rank " + std::to_string(rank) + " holds " + std::to_string(peak) +
               " activations at its peak, but its table's replay " +
               std::to_string(declared),
           {}});
  }

  //--- Collectives --------------------------------------------------------//

  struct Instance {
    size_t start;
    Spot wait;
  };

  void matchCollectives() {
    size_t count = program.communicators.size();
    // By communicator and rank, in the order of starts.
    std::vector<std::map<int, std::vector<Instance>>> started(count);
    for (size_t rank = 0; rank < program.ranks.size(); ++rank)
      for (size_t i = 0; i < program.ranks[rank].items.size(); ++i) {
        const Item &item = program.ranks[rank].items[i];
        if (!item.isCollective())
          continue;
        const size_t c = item.communicator;
        if (c >= count || !std::count(program.communicators[c].ranks.begin(),
                                      program.communicators[c].ranks.end(),
                                      static_cast<int>(rank))) {
          add("collective", rank, i,
              "is on a communicator that rank " + std::to_string(rank) +
                  " is no member of");
          continue;
        }
        readCollective(rank, i, item, started[c][rank]);
      }
    for (size_t c = 0; c < count; ++c)
      matchOne(static_cast<int>(c), started[c]);
  }

  void readCollective(int rank, size_t index, const Item &item,
                      std::vector<Instance> &instances) {
    if (item.action.phase != Phase::Wait) {
      instances.push_back({index, item.action.phase == Phase::Run
                                      ? Spot(index)
                                      : std::nullopt});
      return;
    }
    for (Instance &instance : instances)
      if (!instance.wait &&
          (item.ticket < 0 ||
           program.ranks[rank].items[instance.start].ticket == item.ticket)) {
        instance.wait = index;
        return;
      }
    add("wait", rank, index, "waits for what is not started");
  }

  void matchOne(int c, std::map<int, std::vector<Instance>> &started) {
    const Communicator &communicator = program.communicators[c];
    size_t longest = 0;
    for (auto &[rank, instances] : started) {
      longest = std::max(longest, instances.size());
      for (Instance &instance : instances)
        if (!instance.wait) {
          add("wait", rank, instance.start, "is started and never waited for");
          instance.wait = instance.start;
        }
    }
    for (size_t k = 0; k < longest; ++k) {
      Joint joint{{}, c};
      for (int rank : communicator.ranks)
        if (k < started[rank].size())
          joint.parts.push_back(
              {rank, started[rank][k].start, *started[rank][k].wait});
      const Part &first = joint.parts[0];
      for (int rank : communicator.ranks)
        if (k >= started[rank].size())
          add("collective", first.rank, first.start,
              "is number " + std::to_string(k) + " on communicator " +
                  communicator.name + ", which rank " + std::to_string(rank) +
                  " does not join: it has " +
                  std::to_string(started[rank].size()) + " there");
      const Item &item = program.ranks[first.rank].items[first.start];
      for (const Part &part : joint.parts) {
        const Item &other = program.ranks[part.rank].items[part.start];
        if (other.what == item.what &&
            (isCompute(item.action.action.kind) ||
             other.action.action == item.action.action))
          continue;
        add("collective", part.rank, part.start,
            "meets " + at({first.rank, first.start}) + " as number " +
                std::to_string(k) + " on communicator " + communicator.name +
                ": all members run the same collectives in the same order",
            {{first.rank, first.start}});
        break;
      }
      joints.push_back(std::move(joint));
    }
  }

  //--- Replicas -----------------------------------------------------------//

  void compareReplicas() {
    std::map<int, int> firstOf; // by index on the pipeline axis
    for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
      auto [first, fresh] = firstOf.try_emplace(program.ranks[rank].pipeline,
                                                static_cast<int>(rank));
      if (fresh)
        continue;
      const std::vector<Item> &a = program.ranks[first->second].items;
      const std::vector<Item> &b = program.ranks[rank].items;
      auto same = [](const Item &x, const Item &y) {
        return x.action == y.action && x.what == y.what &&
               x.isCollective() == y.isCollective();
      };
      size_t i =
          std::mismatch(a.begin(), a.end(), b.begin(), b.end(), same).first -
          a.begin();
      if (i == a.size() && i == b.size())
        continue;
      const int other = static_cast<int>(rank);
      std::string hint = ": replicas of rank " +
                         std::to_string(program.ranks[rank].pipeline) +
                         " of the pipeline must have equal lists";
      if (i < a.size() && i < b.size())
        add("replicas", other, i,
            "differs from " + at({first->second, i}) + hint,
            {{first->second, i}});
      else if (i < b.size())
        add("replicas", other, i,
            "is missing on rank " + std::to_string(first->second) + hint);
      else
        add("replicas", first->second, i,
            "is missing on rank " + std::to_string(rank) + hint);
    }
  }

  // Starts in list order beside the message that they belong to.
  struct Channel {
    std::vector<std::pair<size_t, size_t>> sends, receives;
  };

  const Program &program;
  size_t most;
  std::vector<Finding> findings;
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
