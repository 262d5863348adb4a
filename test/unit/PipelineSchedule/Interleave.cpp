// Explores all interleavings of the ranks. A state is the position of each rank
// in its list of actions. These positions determine everything else, because
// the n-th send of a channel matches its n-th receive, and the n-th collectives
// of a group's members match. From each state, every rank that can proceed
// takes its next step, until all states have been visited.
//
// Transports are modelled at their worst: a send completes only when the
// receiver is at its Wait, a receive when the send has started, and a
// collective when all members are at their Waits and the previous collective of
// the group has begun.

#include "Interleave.h"

#include <algorithm>
#include <map>
#include <set>

namespace cleave::pipeline::test {

namespace {

constexpr size_t nowhere = ~size_t(0);

// One rank's side of a transfer or collective: the indices of its Start and
// Wait in the rank's list, and the links of the other ranks that take part.
struct Link {
  size_t start = nowhere, wait = nowhere;  // on this rank
  std::vector<std::pair<int, int>> others; // rank, index into its links
};

struct Lists {
  explicit Lists(const Program &program) : program(program) {
    for (const Program::Rank &rank : program.ranks) {
      lists.push_back(rank.items);
      links.emplace_back();
      linkAt.emplace_back(rank.items.size(), -1);
      for (const Item &item : rank.items)
        if (item.action.action.kind == ActionKind::Unshard ||
            item.action.action.kind == ActionKind::Reshard)
          sharded.insert(item.action.action.stage);
    }
  }

  const Program &program;
  std::vector<std::vector<Item>> lists;
  std::vector<std::vector<Link>> links; // by rank
  std::vector<std::vector<int>> linkAt; // by rank and position
  std::string wrong;

  void blame(int rank, size_t place, const std::string &why) {
    if (wrong.empty())
      wrong = "rank " + std::to_string(rank) + " " + print(lists[rank][place]) +
              " " + why;
  }

  // Returns the rank that runs the forward pass (F) of stage `stage` for
  // microbatch `m`, in the same copy of the pipeline as `rank`.
  int owner(int rank, int stage, int m) const {
    for (size_t r = 0; r < lists.size(); ++r)
      if (program.ranks[r].replica == program.ranks[rank].replica)
        for (const Item &item : lists[r])
          if (!item.isCollective() &&
              item.action.action == Action{stage, ActionKind::F, m})
            return static_cast<int>(r);
    return -1;
  }

  // Links each Start on a rank with its Wait, and the n-th send of a channel
  // with its n-th receive.
  void link() {
    std::map<std::pair<int, int>, std::vector<std::pair<int, int>>> sends,
        receives;
    std::map<int, std::map<int, std::vector<int>>> groups; // communicator, rank
    for (size_t r = 0; r < lists.size(); ++r) {
      for (size_t i = 0; i < lists[r].size(); ++i) {
        const Item &item = lists[r][i];
        const Action &action = item.action.action;
        if (!item.isCollective() && !isTransfer(action.kind))
          continue;
        if (item.action.phase == Phase::Wait) {
          int open = -1;
          for (size_t k = 0; k < links[r].size() && open < 0; ++k) {
            const Item &start = lists[r][links[r][k].start];
            if (links[r][k].wait == nowhere &&
                start.communicator == item.communicator &&
                (item.isCollective() ? start.ticket == item.ticket
                                     : start.action.action == action))
              open = static_cast<int>(k);
          }
          if (open < 0) {
            blame(r, i, "waits for nothing");
            continue;
          }
          links[r][open].wait = i;
          linkAt[r][i] = open;
          continue;
        }
        int number = static_cast<int>(links[r].size());
        links[r].push_back(
            {i, item.action.phase == Phase::Run ? i : nowhere, {}});
        linkAt[r][i] = number;
        if (item.isCollective()) {
          groups[item.communicator][r].push_back(number);
          continue;
        }
        bool forward = action.kind == ActionKind::SendF ||
                       action.kind == ActionKind::RecvF;
        int step = forward == isSend(action.kind) ? 1 : -1;
        int peer = owner(r, action.stage + step, action.microbatch);
        if (peer < 0 || peer == static_cast<int>(r)) {
          blame(r, i, "has no other side");
          continue;
        }
        if (isSend(action.kind))
          sends[{r, peer}].push_back({r, number});
        else
          receives[{peer, r}].push_back({r, number});
      }
      for (const Link &link : links[r])
        if (link.wait == nowhere)
          blame(r, link.start, "is never complete");
    }
    for (auto &[channel, list] : sends) {
      auto &other = receives[channel];
      for (size_t k = 0; k < list.size() && k < other.size(); ++k) {
        links[list[k].first][list[k].second].others = {other[k]};
        links[other[k].first][other[k].second].others = {list[k]};
        compare(list[k], other[k]);
      }
    }
    for (auto &[communicator, members] : groups)
      for (int rank : program.communicators[communicator].ranks)
        for (size_t k = 0; k < members[rank].size(); ++k)
          for (int other : program.communicators[communicator].ranks) {
            if (other == rank)
              continue;
            Link &mine = links[rank][members[rank][k]];
            if (k >= members[other].size()) {
              mine.others.push_back({other, -1}); // has no counterpart
              continue;
            }
            mine.others.push_back({other, members[other][k]});
            const Item &a = lists[rank][mine.start];
            const Item &b = lists[other][links[other][members[other][k]].start];
            if (a.what != b.what)
              blame(rank, mine.start, "meets " + b.what);
          }
  }

  void compare(std::pair<int, int> send, std::pair<int, int> receive) {
    const Item &a = lists[send.first][links[send.first][send.second].start];
    const Item &b =
        lists[receive.first][links[receive.first][receive.second].start];
    bool forward = a.action.action.kind == ActionKind::SendF;
    Action wanted{a.action.action.stage + (forward ? 1 : -1),
                  forward ? ActionKind::RecvF : ActionKind::RecvB,
                  a.action.action.microbatch};
    if (b.action.action != wanted)
      blame(receive.first, links[receive.first][receive.second].start,
            "receives " + print(a));
  }

  //--- Checks of a single rank --------------------------------------------//

  // Walks the actions of one rank in the order of its list, and reports the
  // first action that cannot run there, for example because it has no input.
  void run(int rank) {
    std::set<Action> done;      // passes; B as I and W
    std::set<Action> arrived;   // receives that are complete
    std::set<int> gathered;     // stages
    std::map<Action, int> sums; // of weights: how often reduced
    auto need = [&](size_t i, bool there, const char *what) {
      if (!there)
        blame(rank, i, what);
    };
    for (size_t i = 0; i < lists[rank].size(); ++i) {
      const Item &item = lists[rank][i];
      if (item.isCollective() && isCompute(item.action.action.kind))
        continue;
      auto [s, kind, m] = item.action.action;
      bool startsHere = item.action.phase != Phase::Wait;
      bool endsHere = item.action.phase != Phase::Start;
      if (isCompute(kind) && sharded.count(s))
        need(i, gathered.count(s), "has no parameters");
      switch (kind) {
      case ActionKind::F:
        need(i,
             s == 0 || done.count({s - 1, ActionKind::F, m}) ||
                 arrived.count({s, ActionKind::RecvF, m}),
             "has no input");
        need(i, done.insert({s, ActionKind::F, m}).second, "runs twice");
        break;
      case ActionKind::I:
      case ActionKind::B:
        need(i, done.count({s, ActionKind::F, m}), "has no activations");
        need(i,
             s + 1 == program.stages || done.count({s + 1, ActionKind::I, m}) ||
                 arrived.count({s, ActionKind::RecvB, m}),
             "has no cotangent");
        need(i, done.insert({s, ActionKind::I, m}).second, "runs twice");
        if (kind == ActionKind::I)
          break;
        [[fallthrough]];
      case ActionKind::W:
        need(i, done.count({s, ActionKind::I, m}),
             "has no gradient of its input");
        need(i, done.insert({s, ActionKind::W, m}).second, "runs twice");
        sums[{s, ActionKind::W, m}] = 0;
        break;
      case ActionKind::SendF:
        need(i, !startsHere || done.count({s, ActionKind::F, m}),
             "has nothing to send");
        break;
      case ActionKind::SendB:
        need(i, !startsHere || done.count({s, ActionKind::I, m}),
             "has nothing to send");
        break;
      case ActionKind::RecvF:
      case ActionKind::RecvB:
        if (endsHere)
          need(i, arrived.insert(item.action.action).second, "receives twice");
        break;
      case ActionKind::ReduceGrad: {
        // The rank reduces the gradients that it has accumulated for the stage
        // over the data ranks, which run the same stage on other samples.
        bool any = false;
        for (auto &[sum, times] : sums)
          if (sum.stage == s && (m < 0 || sum.microbatch == m)) {
            ++times;
            any = true;
          }
        need(i, any, "reduces nothing");
        reduces = true;
        break;
      }
      case ActionKind::Unshard:
        need(i, runs(rank, s), "is of a stage elsewhere");
        need(i, gathered.insert(s).second, "gathers twice");
        break;
      case ActionKind::Reshard:
        need(i, gathered.erase(s), "frees what is not there");
        break;
      }
    }
    allSums.insert(sums.begin(), sums.end());
    finished.insert(done.begin(), done.end());
    total += done.size();
  }

  bool runs(int rank, int stage) const {
    return std::any_of(
        lists[rank].begin(), lists[rank].end(), [&](const Item &item) {
          return !item.isCollective() && isCompute(item.action.action.kind) &&
                 item.action.action.stage == stage;
        });
  }

  std::set<Action> finished;
  size_t total = 0;
  std::set<int> sharded; // stages that gather and free their parameters
  std::map<Action, int> allSums;
  bool reduces = false;

  void complete() {
    size_t all = size_t(3) * program.stages * program.microbatches;
    if (wrong.empty() && (finished.size() != all || total != all))
      wrong = "a pass is missing or runs on two ranks";
    for (const auto &[sum, times] : allSums)
      if (wrong.empty() && times != reduces)
        wrong = print(sum) + " is reduced " + std::to_string(times) + " times";
  }

  //--- All interleavings --------------------------------------------------//

  using State = std::vector<size_t>;

  // Returns whether a rank has started an operation. `at` has the index of the
  // next operation of each rank. If this next operation is the given one and
  // blocks, it counts as started.
  bool hasStarted(const State &at, int rank, const Link &link) const {
    return at[rank] > link.start ||
           (at[rank] == link.start && link.wait == link.start);
  }
  bool atWait(const State &at, int rank, const Link &link) const {
    return link.wait != nowhere && at[rank] >= link.wait;
  }

  bool canMove(const State &at, int rank) const {
    size_t place = at[rank];
    if (place == lists[rank].size())
      return false;
    const Item &item = lists[rank][place];
    int number = linkAt[rank][place];
    if (number < 0 || item.action.phase == Phase::Start)
      return true;
    const Link &link = links[rank][number];
    if (link.others.empty())
      return item.isCollective();
    for (auto [other, theirs] : link.others) {
      if (theirs < 0)
        return false;
      const Link &them = links[other][theirs];
      bool receives =
          !item.isCollective() && isReceive(item.action.action.kind);
      if (!(receives ? hasStarted(at, other, them) : atWait(at, other, them)))
        return false;
    }
    return true;
  }

  void explore(Outcome &outcome) {
    std::set<State> seen;
    std::vector<State> open = {State(lists.size(), 0)};
    seen.insert(open[0]);
    while (!open.empty()) {
      State at = std::move(open.back());
      open.pop_back();
      bool moves = false, end = true;
      for (size_t rank = 0; rank < lists.size(); ++rank) {
        end &= at[rank] == lists[rank].size();
        if (!canMove(at, static_cast<int>(rank)))
          continue;
        moves = true;
        State next = at;
        ++next[rank];
        if (seen.insert(next).second)
          open.push_back(std::move(next));
      }
      if (moves || end)
        continue;
      for (size_t rank = 0; rank < lists.size(); ++rank)
        if (at[rank] < lists[rank].size())
          outcome.deadlock += "rank " + std::to_string(rank) + " at " +
                              print(lists[rank][at[rank]]) + "; ";
      break;
    }
    outcome.states = seen.size();
  }
};

} // namespace

Outcome interleave(const Program &program) {
  Lists lists(program);
  lists.link();
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    lists.run(static_cast<int>(rank));
  lists.complete();
  Outcome outcome;
  outcome.wrong = lists.wrong;
  lists.explore(outcome);
  return outcome;
}

} // namespace cleave::pipeline::test
