// Detects deadlocks as cycles in a graph of events.
//
// Every item of a rank's list is an action of the pipeline schedule, or the
// start of a transfer or collective, or the wait for it. An item has two
// events: reached and done. It is reached when the item before it is done. A
// transfer or collective has two more events: "started", when all members have
// reached their starts, and "may complete", when all members have also reached
// their waits, because a transport may make no progress before that. A member's
// wait is done only after the operation may complete. Transfers are an
// exception in two ways: they may complete before the sender has reached its
// wait, and the receiver's wait is done as soon as both ranks have started the
// transfer.

#include "Deadlock.h"

#include <algorithm>
#include <map>

namespace cleave::pipeline {

Place placeOf(const Program &program, int rank, size_t index) {
  return {rank, index, print(program.ranks[rank].items[index])};
}

std::string describe(const Place &place) {
  return "rank " + std::to_string(place.rank) + ", action " +
         std::to_string(place.index) + ": " + place.text;
}

namespace {

class EventGraph {
public:
  EventGraph(const Program &program, const std::vector<Joint> &joints)
      : program(program) {
    int count = 0;
    for (const Program::Rank &rank : program.ranks) {
      base.push_back(count);
      count += 2 * static_cast<int>(rank.items.size());
    }
    firstJoint = count;
    after.resize(count + 2 * joints.size());
    for (size_t rank = 0; rank < program.ranks.size(); ++rank)
      for (size_t i = 0; i < program.ranks[rank].items.size(); ++i) {
        if (i > 0)
          edge(done(rank, i - 1), reached(rank, i));
        edge(reached(rank, i), done(rank, i));
      }
    for (size_t j = 0; j < joints.size(); ++j)
      addJoint(joints[j], j);
    addOrders(joints);
  }

  // Returns the nodes of a cycle in order; empty if there is no cycle.
  std::vector<int> cycle() const {
    std::vector<int> left(after.size(), 0), ready;
    for (const std::vector<int> &targets : after)
      for (int target : targets)
        ++left[target];
    for (size_t node = 0; node < after.size(); ++node)
      if (left[node] == 0)
        ready.push_back(static_cast<int>(node));
    size_t passed = 0;
    for (; !ready.empty(); ++passed) {
      int node = ready.back();
      ready.pop_back();
      for (int target : after[node])
        if (--left[target] == 0)
          ready.push_back(target);
    }
    if (passed == after.size())
      return {};
    // Each remaining node has a remaining predecessor: follow predecessors
    // until a node repeats.
    std::vector<int> before(after.size(), -1);
    int node = -1;
    for (size_t source = 0; source < after.size(); ++source)
      if (left[source] > 0)
        for (int target : after[source])
          if (left[target] > 0 && before[target] < 0) {
            before[target] = static_cast<int>(source);
            node = target;
          }
    std::vector<bool> seen(after.size());
    while (!seen[node]) {
      seen[node] = true;
      node = before[node];
    }
    std::vector<int> nodes;
    for (int at = node; nodes.empty() || at != node; at = before[at])
      nodes.push_back(at);
    std::reverse(nodes.begin(), nodes.end());
    return nodes;
  }

  // Returns the item of a rank's list to which the event `node` belongs;
  // nullopt if the event belongs to a transfer or collective of several ranks.
  std::optional<Part> itemOf(int node) const {
    if (node >= firstJoint)
      return std::nullopt;
    size_t rank =
        std::upper_bound(base.begin(), base.end(), node) - base.begin() - 1;
    size_t index = (node - base[rank]) / 2;
    return Part{static_cast<int>(rank), index, index};
  }

private:
  int reached(int rank, size_t index) const {
    return base[rank] + 2 * static_cast<int>(index);
  }
  int done(int rank, size_t index) const { return reached(rank, index) + 1; }
  int started(size_t joint) const {
    return firstJoint + 2 * static_cast<int>(joint);
  }

  void edge(int from, int to) { after[from].push_back(to); }

  void addJoint(const Joint &joint, size_t j) {
    int all = started(j), met = all + 1;
    edge(all, met);
    for (size_t p = 0; p < joint.parts.size(); ++p) {
      const Part &part = joint.parts[p];
      edge(reached(part.rank, part.start), all);
      bool receiver = joint.transfer && p == 1;
      bool sender = joint.transfer && p == 0;
      edge(receiver ? all : met, done(part.rank, part.wait));
      if (!sender)
        edge(reached(part.rank, part.wait), met);
    }
  }

  // Adds the order in which a communicator or stream runs its operations, which
  // is that of their starts.
  void addOrders(const std::vector<Joint> &joints) {
    std::map<int, size_t> lastOf; // by communicator
    std::map<std::pair<int, int>, std::vector<std::pair<size_t, size_t>>>
        streams;
    for (size_t j = 0; j < joints.size(); ++j) {
      int communicator = joints[j].communicator;
      if (communicator >= 0) {
        auto [last, first] = lastOf.try_emplace(communicator, j);
        if (!first)
          edge(started(last->second), started(j));
        last->second = j;
      }
      for (const Part &part : joints[j].parts) {
        int stream = program.ranks[part.rank].items[part.start].stream;
        if (stream >= 0)
          streams[{part.rank, stream}].push_back({part.start, j});
      }
    }
    for (auto &[stream, entries] : streams) {
      std::sort(entries.begin(), entries.end());
      for (size_t i = 1; i < entries.size(); ++i)
        edge(started(entries[i - 1].second), started(entries[i].second));
    }
  }

  const Program &program;
  std::vector<int> base; // first node of a rank
  int firstJoint = 0;
  std::vector<std::vector<int>> after;
};

} // namespace

std::optional<Finding> findDeadlock(const Program &program,
                                    const std::vector<Joint> &joints) {
  EventGraph graph(program, joints);
  std::vector<int> cycle = graph.cycle();
  if (cycle.empty())
    return std::nullopt;
  // Lets the cycle begin where it enters a rank from another rank.
  auto joint = std::find_if(cycle.begin(), cycle.end(),
                            [&](int node) { return !graph.itemOf(node); });
  if (joint != cycle.end())
    std::rotate(cycle.begin(), joint, cycle.end());
  // Each time the cycle enters a rank: the first and the last item of the
  // rank's list that the cycle passes through.
  std::vector<std::pair<Part, Part>> stretches;
  bool fresh = true;
  for (int node : cycle) {
    std::optional<Part> item = graph.itemOf(node);
    if (!item) {
      fresh = true;
      continue;
    }
    if (fresh || stretches.back().second.rank != item->rank)
      stretches.push_back({*item, *item});
    stretches.back().second = *item;
    fresh = false;
  }
  // Rotates the cycle so that the error message does not depend on the order of
  // the search.
  std::rotate(stretches.begin(),
              std::min_element(stretches.begin(), stretches.end(),
                               [](const auto &a, const auto &b) {
                                 return std::pair(a.first.rank, a.first.start) <
                                        std::pair(b.first.rank, b.first.start);
                               }),
              stretches.end());
  Finding finding{"deadlock", "ranks wait for each other in a circle: ", {}};
  for (size_t i = 0; i < stretches.size(); ++i) {
    auto [first, last] = stretches[i];
    Place from = placeOf(program, first.rank, first.start);
    Place to = placeOf(program, last.rank, last.start);
    finding.places.push_back(from);
    finding.message += i ? "; " : "";
    finding.message += describe(from);
    if (last.start != first.start) {
      finding.places.push_back(to);
      finding.message +=
          " comes before action " + std::to_string(to.index) + ": " + to.text;
    }
    finding.message += i + 1 < stretches.size() ? ", for which the next waits"
                                                : ", for which the first waits";
  }
  return finding;
}

} // namespace cleave::pipeline
