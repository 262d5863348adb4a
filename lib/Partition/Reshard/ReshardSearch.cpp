//===- ReshardSearch.cpp - a search over layouts --------------------------===//
//
// A* search: visits next the layout with the least modelled time so far plus a
// lower bound of the remaining time.
//
//===----------------------------------------------------------------------===//

#include "ReshardSearch.h"
#include "ReshardSteps.h"
#include <queue>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// The search ends when the best plan costs at most this share more than the
/// lower bound.
constexpr double kSlack = 0.01;

/// A plan counts as hardly slower than another if it takes at most this share
/// longer.
constexpr double kHardly = 0.03;

/// The largest number of collectives in one plan.
constexpr unsigned kMaxCollectives = 4;

class Search {
public:
  Search(const ReshardProblem &problem, const ReshardOptions &options,
         const SearchLimits &limits)
      : problem(problem), mesh(problem.mesh), model(problem.model),
        options(options), shape(problem.shape),
        elementBytes(problem.elementBytes), from(problem.from), to(problem.to),
        steps(problem, limits.kept, limits.summing),
        maxVisits(limits.maxVisits), mostReceived(limits.mostReceived) {}

  SmallVector<Move> run() {
    consider(planPlainly(mesh, shape, from, to));
    if (found && options.plain)
      return best;
    for (const Layout &goal : steps.goals) {
      SmallVector<Move> moves;
      if (from != goal)
        moves.push_back(steps.exchange(from, goal));
      steps.finish(goal, moves);
      consider(moves);
    }
    if (steps.makesPartialSums())
      consider({steps.exchange(from, to)});
    if (steps.unreduced(from) && (!steps.added || steps.makesPartialSums()))
      consider({steps.exchange(from, to, 2)});
    if (!found || bestCost > bound(from) * (1 + kSlack))
      visitAll();
    preferLess();
    return best;
  }

  /// The cost of the plan that the search returns, and the cost of the fastest
  /// plan that it found.
  double chosenCost() const {
    return found ? problem.cost(problem.measure(best)) : INFINITY;
  }
  double fastestCost() const { return found ? bestCost : INFINITY; }
  /// Lower bounds for all plans: of the cost, and of the mean number of
  /// elements that ranks receive.
  double leastCost() const { return bound(from); }
  double leastReceived() const { return remaining(from).mean; }

private:
  struct Node {
    Layout layout;
    double cost = 0, bound = 0;
    int parent = -1;
    double received = 0, remaining = 0;
    unsigned collectives = 0, depth = 0;
    Move move;
  };

  void consider(ArrayRef<Move> moves) {
    if (moves.empty() ? from != to : moves.back().after != to)
      return;
    const Layout *at = &from;
    for (const Move &move : moves) {
      if (!steps.isLegal(*at, move) || !problem.allows(move.after))
        return;
      at = &move.after;
    }
    MoveCost moved = problem.measure(moves);
    if (moved.received > mostReceived)
      return;
    double total = problem.cost(moved);
    if (!found || total < bestCost * (1 - kGain)) {
      best.assign(moves.begin(), moves.end());
      bestCost = total;
      found = true;
    }
    direct.emplace_back(moves);
  }

  /// Compares `best` with the plans that were known before the search. If one
  /// of them receives fewer elements and takes hardly longer, it becomes
  /// `best`. `bestCost` remains the cost of the fastest plan.
  void preferLess() {
    MoveCost least = problem.measure(best);
    double limit = least.seconds * (1 + kHardly);
    for (const SmallVector<Move> &moves : direct) {
      MoveCost other = problem.measure(moves);
      if (other.seconds > limit ||
          other.received >= least.received * (1 - kGain))
        continue;
      least = other;
      best = moves;
    }
  }

  /// Lower bounds of the number of elements that must still be received: by the
  /// busiest rank (`most`), and by a rank on average (`mean`). If partial sums
  /// must still be reduced, these are the numbers of an exchange in two rounds.
  /// It receives the fewest partial sums: the first round reduces each element
  /// on one rank only, and the second round copies the results.
  struct Remaining {
    double most = 0, mean = 0;
  };
  Remaining remaining(const Layout &at) const {
    auto estimate = [&](const Move &move) {
      return estimateExchange(mesh, shape, at, move.after, setOf(move.axes),
                              move.rounds, uncounted);
    };
    if (at == to)
      return {};
    if (steps.unreduced(at)) {
      double mean =
          estimate(steps.exchange(
                       at, steps.makesPartialSums() ? to : steps.goals[0], 2))
              .received;
      if (steps.makesPartialSums())
        mean = std::min(mean, estimate(steps.exchange(at, to)).received);
      return {mean, mean};
    }
    if (at.partial == to.partial ||
        (!steps.makesPartialSums() && at.partial == steps.kept)) {
      ExchangeEstimate left = estimate(
          steps.exchange(at, at.partial == to.partial ? to : steps.goals[0]));
      return {left.mostReceived, left.received};
    }
    if (steps.makesPartialSums()) {
      // Any rank may hold any partial sum.
      double mean = estimate(steps.exchange(at, to)).received;
      return {mean, mean};
    }
    return {};
  }

  /// Returns a lower bound of the remaining time: the elements that a rank must
  /// still receive, over the fastest links.
  double bound(const Layout &at) const { return bound(remaining(at)); }
  double bound(Remaining left) const {
    auto [most, mean] = left;
    if (most <= 0)
      return 0;
    return model.leastLatency() + elementBytes * model.leastSecondsPerByte() *
                                      (most + kMeanWeight * mean);
  }

  //===--------------------------------------------------------------------===//
  // Search
  //===--------------------------------------------------------------------===//

  void visitAll() {
    Node start;
    start.layout = from;
    push(std::move(start));
    for (unsigned visits = 0; !open.empty() && visits < maxVisits;) {
      Entry entry = open.top();
      open.pop();
      if (entry.bound >= bestCost * (1 - kGain))
        return;
      Node node = nodes[entry.node];
      if (reached.lookup(keyOf(node.layout)) != entry.node)
        continue;
      ++visits;
      if (node.layout == to) {
        best = pathTo(entry.node);
        bestCost = node.cost;
        found = true;
        continue;
      }
      steps.expand(node.layout,
                   [&](Move move) { step(node, entry.node, std::move(move)); });
    }
  }

  SmallVector<Move> pathTo(int node) const {
    SmallVector<Move> moves;
    for (; nodes[node].parent >= 0; node = nodes[node].parent)
      moves.push_back(nodes[node].move);
    std::reverse(moves.begin(), moves.end());
    return moves;
  }

  void push(Node node) {
    auto [at, isNew] =
        reached.try_emplace(keyOf(node.layout), int(nodes.size()));
    if (!isNew) {
      const Node &other = nodes[at->second];
      if (node.cost > other.cost ||
          (node.cost == other.cost && node.depth >= other.depth))
        return;
    }
    if (isNew) {
      Remaining left = remaining(node.layout);
      node.bound = bound(left);
      node.remaining = left.mean;
    } else {
      node.bound = nodes[at->second].bound;
      node.remaining = nodes[at->second].remaining;
    }
    double least = node.cost + node.bound;
    if ((found && least >= bestCost * (1 - kGain)) ||
        node.received + node.remaining > mostReceived) {
      if (isNew)
        reached.erase(at);
      return;
    }
    at->second = nodes.size();
    open.push({least, node.depth, int(nodes.size())});
    nodes.push_back(std::move(node));
  }

  void step(const Node &node, int index, Move move) {
    bool free = move.kind == Move::Slice || move.kind == Move::KeepFirst ||
                move.kind == Move::Embed;
    if (!free && (node.collectives >= kMaxCollectives || move.axes.empty()))
      return;
    if (!steps.isLegal(node.layout, move) || !problem.allows(move.after))
      return;
    if (auto at = reached.find(keyOf(move.after));
        at != reached.end() && nodes[at->second].cost <= node.cost &&
        nodes[at->second].depth <= node.depth + 1)
      return;
    Node next;
    double enough = found ? bestCost * (1 - kGain) - node.cost : INFINITY;
    MoveCost moved =
        costOf(mesh, model, shape, elementBytes, node.layout, move, enough);
    next.cost = node.cost + problem.cost(moved);
    next.received = node.received + moved.received;
    if (moved.seconds >= enough ||
        (found && next.cost >= bestCost * (1 - kGain)))
      return;
    next.layout = move.after;
    next.parent = index;
    next.collectives = node.collectives + !free;
    next.depth = node.depth + 1;
    next.move = std::move(move);
    push(std::move(next));
  }

  struct Entry {
    double bound;
    unsigned depth;
    int node;
    bool operator<(const Entry &other) const { // the queue pops the largest
      return std::tie(bound, depth, node) >
             std::tie(other.bound, other.depth, other.node);
    }
  };

  const ReshardProblem &problem;
  const MeshAxes &mesh;
  const cost::LinkModel &model;
  const ReshardOptions &options;
  ArrayRef<int64_t> shape;
  int64_t elementBytes;
  const Layout &from, &to;
  const ReshardSteps steps;
  unsigned maxVisits;
  double mostReceived;

  std::vector<Node> nodes;
  llvm::StringMap<int> reached;
  std::priority_queue<Entry> open;
  SmallVector<Move> best;
  SmallVector<SmallVector<Move>> direct;
  double bestCost = 0;
  bool found = false;
};

} // namespace

std::string cleave::partition::keyOf(const Layout &layout) {
  std::string key;
  for (const Axes &axes : layout.dims) {
    key.append(axes.begin(), axes.end());
    key.push_back(char(0x7f));
  }
  key.append(reinterpret_cast<const char *>(&layout.partial),
             sizeof(layout.partial));
  key.push_back(layout.partial ? char(layout.kind) : 0);
  return key;
}

FoundPlan cleave::partition::searchPlan(const ReshardProblem &problem,
                                        const ReshardOptions &options,
                                        const SearchLimits &limits) {
  Search search(problem, options, limits);
  FoundPlan plan;
  plan.moves = search.run();
  plan.cost = search.chosenCost();
  plan.fastestCost = search.fastestCost();
  plan.leastCost = search.leastCost();
  plan.leastReceived = search.leastReceived();
  return plan;
}
