// Verifier rules for collectives and replicas.

#include "Report.h"

#include <algorithm>
#include <map>
#include <optional>

namespace cleave::pipeline {

using Spot = std::optional<size_t>; // index in the list of a known rank

namespace {

// Matches collectives: the n-th collective that each member starts on a
// communicator must be the same.
class Matching {
public:
  Matching(const Program &program, std::vector<Joint> &joints, Report &report)
      : program(program), joints(joints), report(report) {}

  void run() {
    size_t count = program.communicators.size();
    // The instances of collectives by communicator and rank, in the order of
    // their starts.
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
          report.add("collective", rank, i,
                     "is on a communicator that rank " + std::to_string(rank) +
                         " is no member of");
          continue;
        }
        readCollective(rank, i, item, started[c][rank]);
      }
    for (size_t c = 0; c < count; ++c)
      matchOne(static_cast<int>(c), started[c]);
  }

private:
  struct Instance {
    size_t start;
    Spot wait;
  };

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
    report.add("wait", rank, index, "waits for a transfer that is not started");
  }

  void matchOne(int c, std::map<int, std::vector<Instance>> &started) {
    const Communicator &communicator = program.communicators[c];
    size_t longest = 0;
    for (auto &[rank, instances] : started) {
      longest = std::max(longest, instances.size());
      for (Instance &instance : instances)
        if (!instance.wait) {
          report.add("wait", rank, instance.start,
                     "is started and never waited for");
          instance.wait = instance.start;
        }
    }
    for (size_t k = 0; k < longest; ++k) {
      Joint joint{{}, c, communicator.channel};
      for (int rank : communicator.ranks)
        if (k < started[rank].size())
          joint.parts.push_back(
              {rank, started[rank][k].start, *started[rank][k].wait});
      const Part &first = joint.parts[0];
      for (int rank : communicator.ranks)
        if (k >= started[rank].size())
          report.add("collective", first.rank, first.start,
                     "is number " + std::to_string(k) + " on communicator " +
                         communicator.name + ", which rank " +
                         std::to_string(rank) + " does not join: it has " +
                         std::to_string(started[rank].size()) + " there");
      const Item &item = program.ranks[first.rank].items[first.start];
      for (const Part &part : joint.parts) {
        const Item &other = program.ranks[part.rank].items[part.start];
        if (other.what == item.what &&
            (isCompute(item.action.action.kind) ||
             other.action.action == item.action.action))
          continue;
        report.add(
            "collective", part.rank, part.start,
            "meets " + report.at({first.rank, first.start}) + " as number " +
                std::to_string(k) + " on communicator " + communicator.name +
                ": all members run the same collectives in the same order",
            {{first.rank, first.start}});
        break;
      }
      if (!joint.transfer || joint.parts.size() == 2)
        joints.push_back(std::move(joint));
    }
  }

  const Program &program;
  std::vector<Joint> &joints;
  Report &report;
};

} // namespace

void matchCollectives(const Program &program, std::vector<Joint> &joints,
                      Report &report) {
  Matching(program, joints, report).run();
}

void compareReplicas(const Program &program, Report &report) {
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
      report.add("replicas", other, i,
                 "differs from " + report.at({first->second, i}) + hint,
                 {{first->second, i}});
    else if (i < b.size())
      report.add("replicas", other, i,
                 "is missing on rank " + std::to_string(first->second) + hint);
    else
      report.add("replicas", first->second, i,
                 "is missing on rank " + std::to_string(rank) + hint);
  }
}

} // namespace cleave::pipeline
