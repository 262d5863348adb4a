//===- ReshardSearch.cpp - a search over layouts --------------------------===//
//
// Next the layout with the least modelled time so far plus a lower bound of the
// rest.
//
//===----------------------------------------------------------------------===//

#include "ReshardSearch.h"
#include <queue>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// A plan this close to the lower bound is not searched further for.
constexpr double kSlack = 0.01;

/// A plan takes hardly longer than another if it takes no longer than this.
constexpr double kHardly = 0.03;

/// Collectives in one plan.
constexpr unsigned kMaxCollectives = 4;

class Search {
public:
  Search(const ReshardProblem &problem, const ReshardOptions &options, const SearchLimits &limits)
      : problem(problem), mesh(problem.mesh), model(problem.model), options(options),
        shape(problem.shape), elementBytes(problem.elementBytes), from(problem.from),
        to(problem.to), kept(limits.kept), summing(limits.summing), maxVisits(limits.maxVisits),
        mostReceived(limits.mostReceived) {
    added = to.partial & ~kept;
    makeGoals();
  }

  SmallVector<Move> run() {
    consider(planPlainly(mesh, shape, from, to));
    if (found && options.plain)
      return best;
    for (const Layout &goal : goals) {
      SmallVector<Move> moves;
      if (from != goal)
        moves.push_back(exchange(from, goal));
      finish(goal, moves);
      consider(moves);
    }
    if (makesAddends())
      consider({exchange(from, to)});
    if (unreduced(from) && (!added || makesAddends()))
      consider({exchange(from, to, 2)});
    if (!found || bestCost > bound(from) * (1 + kSlack))
      visitAll();
    preferLess();
    return best;
  }

  /// Of the plan that run() gives, and of the fastest one.
  double chosenCost() const { return found ? problem.cost(problem.measure(best)) : INFINITY; }
  double fastestCost() const { return found ? bestCost : INFINITY; }
  /// What no plan costs less than, and what ranks receive at the least.
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

  /// The axes over which the layout has addends that the target has not, or has
  /// of another kind.
  AxisSet unreduced(const Layout &at) const {
    AxisSet away = to.partial && at.kind == to.kind ? at.partial & ~to.partial : at.partial & ~kept;
    return summing && at.kind == from.kind ? away | (at.partial & from.partial) : away;
  }

  /// What makes addends of a sum of candidates of a maximum needs all of these in
  /// one place.
  static bool isLegal(const Layout &at, const Move &move) {
    AxisSet over = setOf(move.axes);
    return move.kind != Move::Exchange || move.rounds > 1 || !(at.partial & over) ||
           !(move.after.partial & over) || at.kind == ReduceKind::Sum;
  }

  bool isUneven(const Layout &layout) const {
    for (size_t dim = 0; dim < shape.size(); ++dim)
      if (shape[dim] % mesh.size(layout.dims[dim]) != 0)
        return true;
    return false;
  }

  /// In two rounds all ranks take part that may hold the same.
  Move exchange(const Layout &at, const Layout &target, int64_t rounds = 1) const {
    AxisSet axes = mesh.exchangeAxes(shape, at, target) | unreduced(at);
    if (rounds > 1)
      axes |= mesh.everyAxis() & ~(at.used() | target.used());
    return {Move::Exchange, 0, 0, listOf(axes), at.kind, target, rounds};
  }

  /// Whether an exchange can give the target its addends.
  bool makesAddends() const { return added && to.kind == ReduceKind::Sum; }

  bool nests(int64_t dim, ArrayRef<Axis> major, ArrayRef<Axis> minor) const {
    return mesh.nests(shape[dim], major, minor);
  }

  /// Layouts that are the target but for addends that cost nothing to make: all
  /// but the first rank drop theirs, or tiles become addends.
  void makeGoals() {
    Layout goal = to;
    goal.partial = kept;
    if (!kept)
      goal.kind = ReduceKind::Sum;
    goals.push_back(goal);
    if (!added || to.kind != ReduceKind::Sum)
      return;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      Axes order = inOrder(added, from.dims[dim]);
      if (!goal.dims[dim].empty())
        continue;
      goals.push_back(goal);
      llvm::append_range(goals.back().dims[dim], order);
    }
  }

  /// The axes of the set, those that `like` lists first and in its order.
  static Axes inOrder(AxisSet set, ArrayRef<Axis> like) {
    Axes order;
    for (Axis axis : like)
      if (contains(set, axis))
        order.push_back(axis);
    llvm::append_range(order, listOf(set & ~setOf(order)));
    return order;
  }

  /// The free moves from a goal to the target.
  void finish(const Layout &goal, SmallVector<Move> &moves) const {
    if (goal == to)
      return;
    for (size_t dim = 0; dim < shape.size(); ++dim)
      if (size_t more = goal.dims[dim].size() - to.dims[dim].size()) {
        ArrayRef<Axis> axes = goal.dims[dim];
        moves.push_back({Move::Embed, int64_t(dim), 0, Axes(axes.take_back(more)), to.kind, to});
        return;
      }
    moves.push_back({Move::KeepFirst, 0, 0, listOf(added), to.kind, to});
  }

  void consider(ArrayRef<Move> moves) {
    if (moves.empty() ? from != to : moves.back().after != to)
      return;
    const Layout *at = &from;
    for (const Move &move : moves) {
      if (!isLegal(*at, move) || !problem.allows(move.after))
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

  /// Of the plans that were known from the start the one by which ranks receive
  /// least, if it takes hardly longer than the one that was found. `bestCost` stays
  /// that of the fastest.
  void preferLess() {
    MoveCost least = problem.measure(best);
    double limit = least.seconds * (1 + kHardly);
    for (const SmallVector<Move> &moves : direct) {
      MoveCost other = problem.measure(moves);
      if (other.seconds > limit || other.received >= least.received * (1 - kGain))
        continue;
      least = other;
      best = moves;
    }
  }

  /// The least that some rank must still receive, and that ranks must on average.
  /// Two rounds receive no more of addends than must be.
  struct Remaining {
    double most = 0, mean = 0;
  };
  Remaining remaining(const Layout &at) const {
    auto estimate = [&](const Move &move) {
      return estimateExchange(mesh, shape, at, move.after, setOf(move.axes), move.rounds,
                              uncounted);
    };
    if (at == to)
      return {};
    if (unreduced(at)) {
      double mean = estimate(exchange(at, makesAddends() ? to : goals[0], 2)).received;
      if (makesAddends())
        mean = std::min(mean, estimate(exchange(at, to)).received);
      return {mean, mean};
    }
    if (at.partial == to.partial || (!makesAddends() && at.partial == kept)) {
      ExchangeEstimate left = estimate(exchange(at, at.partial == to.partial ? to : goals[0]));
      return {left.mostReceived, left.received};
    }
    if (makesAddends()) {
      // Who has which addend is free.
      double mean = estimate(exchange(at, to)).received;
      return {mean, mean};
    }
    return {};
  }

  /// A lower bound of what remains: what a rank must receive, over the fastest links.
  double bound(const Layout &at) const { return bound(remaining(at)); }
  double bound(Remaining left) const {
    auto [most, mean] = left;
    if (most <= 0)
      return 0;
    return model.leastLatency() +
           elementBytes * model.leastSecondsPerByte() * (most + kMeanWeight * mean);
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
      expand(node, entry.node);
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
    auto [at, isNew] = reached.try_emplace(keyOf(node.layout), int(nodes.size()));
    if (!isNew) {
      const Node &other = nodes[at->second];
      if (node.cost > other.cost || (node.cost == other.cost && node.depth >= other.depth))
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
    bool free =
        move.kind == Move::Slice || move.kind == Move::KeepFirst || move.kind == Move::Embed;
    if (!free && (node.collectives >= kMaxCollectives || move.axes.empty()))
      return;
    if (!isLegal(node.layout, move) || !problem.allows(move.after))
      return;
    if (auto at = reached.find(keyOf(move.after)); at != reached.end() &&
                                                   nodes[at->second].cost <= node.cost &&
                                                   nodes[at->second].depth <= node.depth + 1)
      return;
    Node next;
    double enough = found ? bestCost * (1 - kGain) - node.cost : INFINITY;
    MoveCost moved = costOf(mesh, model, shape, elementBytes, node.layout, move, enough);
    next.cost = node.cost + problem.cost(moved);
    next.received = node.received + moved.received;
    if (moved.seconds >= enough || (found && next.cost >= bestCost * (1 - kGain)))
      return;
    next.layout = move.after;
    next.parent = index;
    next.collectives = node.collectives + !free;
    next.depth = node.depth + 1;
    next.move = std::move(move);
    push(std::move(next));
  }

  /// Lists of the axes of a set by which a dimension may be split further.
  SmallVector<Axes> lists(AxisSet set, ArrayRef<Axis> have, const Axes &want,
                          ArrayRef<Axis> like) const {
    SmallVector<Axes> all;
    auto add = [&](Axes axes) {
      if (!axes.empty() && !llvm::is_contained(all, axes))
        all.push_back(std::move(axes));
    };
    // As the target goes on.
    if (have.size() < want.size() && ArrayRef<Axis>(want).take_front(have.size()) == have) {
      Axes axes;
      for (size_t i = have.size(); i < want.size() && contains(set, want[i]); ++i) {
        axes.push_back(want[i]);
        add(axes);
      }
    }
    add(inOrder(set, like));
    add(listOf(set & (from.used() | to.used())));
    for (Axis axis : listOf(set))
      add({axis});
    return all;
  }

  void expand(const Node &node, int index) {
    const Layout at = node.layout;
    AxisSet unused = mesh.everyAxis() & ~at.used(), left = unreduced(at);
    // Copies are addends, all but the first of which are dropped, or candidates
    // of a maximum as they are.
    if (AxisSet more = added & unused; more && !left) {
      Layout after = at;
      after.partial |= more;
      after.kind = to.kind;
      step(node, index, {Move::KeepFirst, 0, 0, listOf(more), to.kind, after});
    }
    if (!at.partial || at.kind == ReduceKind::Sum)
      embed(at, node, index);
    if (left)
      reduce(at, left, node, index);
    gather(at, node, index);
    for (size_t dim = 0; dim < shape.size(); ++dim)
      for (const Axes &axes : lists(unused, at.dims[dim], to.dims[dim], from.dims[dim])) {
        if (!nests(dim, at.dims[dim], axes))
          continue;
        Layout after = at;
        llvm::append_range(after.dims[dim], axes);
        step(node, index, {Move::Slice, int64_t(dim), 0, axes, ReduceKind::Sum, after});
      }
    exchanges(at, node, index);
  }

  /// Sums of addends that the target does not have.
  void reduce(const Layout &at, AxisSet away, const Node &node, int index) {
    auto reduced = [&](AxisSet set) {
      Layout after = at;
      after.partial &= ~set;
      if (!after.partial)
        after.kind = ReduceKind::Sum;
      return after;
    };
    step(node, index, {Move::AllReduce, 0, 0, listOf(away), at.kind, reduced(away)});
    for (size_t dim = 0; dim < shape.size(); ++dim)
      for (const Axes &axes : lists(away, at.dims[dim], to.dims[dim], {})) {
        Layout after = reduced(setOf(axes));
        llvm::append_range(after.dims[dim], axes);
        // Without padding, and where tiles do not nest.
        if (isUneven(at) || isUneven(after))
          step(node, index, exchange(at, after));
        if (!nests(dim, at.dims[dim], axes))
          continue;
        step(node, index, {Move::ReduceScatter, int64_t(dim), 0, axes, at.kind, after});
      }
  }

  /// Trailing axes of a dimension leave it, for another dimension or for none.
  void gather(const Layout &at, const Node &node, int index) {
    for (size_t dim = 0; dim < shape.size(); ++dim)
      for (size_t keep = 0; keep < at.dims[dim].size(); ++keep) {
        ArrayRef<Axis> major = ArrayRef<Axis>(at.dims[dim]).take_front(keep);
        Axes axes(at.dims[dim].begin() + keep, at.dims[dim].end());
        Layout after = at;
        after.dims[dim].truncate(keep);
        if (isUneven(at) || isUneven(after))
          step(node, index, exchange(at, after));
        // Tiles become addends where they are.
        if (!at.partial || at.kind == ReduceKind::Sum) {
          Layout addends = after;
          addends.partial |= setOf(axes);
          AxisSet over = mesh.exchangeAxes(shape, at, addends);
          if (keep > 0)
            step(node, index, {Move::Exchange, 0, 0, listOf(over), ReduceKind::Sum, addends});
        }
        if (!nests(dim, major, axes))
          continue;
        step(node, index, {Move::AllGather, int64_t(dim), 0, axes, ReduceKind::Sum, after});
        for (size_t other = 0; other < shape.size(); ++other) {
          if (other == dim || !nests(other, at.dims[other], axes))
            continue;
          Layout moved = after;
          llvm::append_range(moved.dims[other], axes);
          step(node, index,
               {Move::AllToAll, int64_t(other), int64_t(dim), axes, ReduceKind::Sum, moved});
        }
      }
  }

  /// Tiles of a dimension become addends of all of it. (Of a dimension that stays
  /// split nothing could prove it.)
  void embed(const Layout &at, const Node &node, int index) {
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      if (at.dims[dim].empty())
        continue;
      Layout after = at;
      Axes axes = std::exchange(after.dims[dim], {});
      after.partial |= setOf(axes);
      after.kind = ReduceKind::Sum;
      step(node, index, {Move::Embed, int64_t(dim), 0, axes, ReduceKind::Sum, after});
    }
  }

  /// To where nothing remains but a gather, or nothing at all.
  void exchanges(const Layout &at, const Node &node, int index) {
    if (makesAddends())
      exchangeAll(at, to, node, index);
    spread(at, node, index);
    if (at.partial & added && !unreduced(at))
      return;
    for (const Layout &goal : goals) {
      if (at == goal)
        continue;
      exchangeAll(at, goal, node, index);
      AxisSet unused = mesh.everyAxis() & ~goal.used();
      for (size_t dim = 0; dim < shape.size(); ++dim)
        for (const Axes &axes : lists(unused, goal.dims[dim], {}, from.dims[dim])) {
          if (!nests(dim, goal.dims[dim], axes))
            continue;
          Layout after = goal;
          llvm::append_range(after.dims[dim], axes);
          if (after != at)
            step(node, index, exchange(at, after));
        }
    }
  }

  /// What leaves the dimensions becomes addends of the target's tiles, to be added
  /// up with those that there are: most elements stay where they are.
  void spread(const Layout &at, const Node &node, int index) {
    if ((at.partial && at.kind != ReduceKind::Sum) || (to.partial && to.kind != ReduceKind::Sum))
      return;
    // Axes that split both either move at once or once they are added up.
    SmallVector<AxisSet> choices = {at.partial, at.used()};
    for (const Axes &axes : to.dims)
      for (size_t keep = axes.size(); keep-- > 0;)
        choices.push_back(at.partial | (setOf(ArrayRef<Axis>(axes).drop_front(keep)) & at.used()));
    for (AxisSet away : choices) {
      Layout after = to;
      for (auto [axes, have] : llvm::zip_equal(after.dims, at.dims)) {
        size_t keep = 0;
        while (keep < axes.size() && keep < have.size() && axes[keep] == have[keep])
          ++keep;
        Axes moved(axes.begin() + keep, axes.end());
        llvm::erase_if(moved, [&](Axis axis) { return contains(away, axis); });
        axes.truncate(keep);
        llvm::append_range(axes, moved);
      }
      after.partial |= at.used() & ~after.split();
      AxisSet axes = mesh.exchangeAxes(shape, at, after);
      if (after != at && after != to)
        step(node, index, {Move::Exchange, 0, 0, listOf(axes), ReduceKind::Sum, after});
    }
  }

  /// At once, or added first where what is to be copied is best.
  void exchangeAll(const Layout &at, const Layout &target, const Node &node, int index) {
    step(node, index, exchange(at, target));
    if (unreduced(at))
      step(node, index, exchange(at, target, 2));
  }

  struct Entry {
    double bound;
    unsigned depth;
    int node;
    bool operator<(const Entry &other) const { // the largest is taken first
      return std::tie(bound, depth, node) > std::tie(other.bound, other.depth, other.node);
    }
  };

  const ReshardProblem &problem;
  const MeshAxes &mesh;
  const cost::LinkModel &model;
  const ReshardOptions &options;
  ArrayRef<int64_t> shape;
  int64_t elementBytes;
  const Layout &from, &to;
  /// Partial axes that stay, and those that the target has besides.
  AxisSet kept, added = 0;
  /// Addends that the target wants, too, are summed on the way.
  bool summing;
  unsigned maxVisits;
  double mostReceived;
  SmallVector<Layout> goals;

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
  key.append(reinterpret_cast<const char *>(&layout.partial), sizeof(layout.partial));
  key.push_back(layout.partial ? char(layout.kind) : 0);
  return key;
}

FoundPlan cleave::partition::searchPlan(const ReshardProblem &problem,
                                        const ReshardOptions &options, const SearchLimits &limits) {
  Search search(problem, options, limits);
  FoundPlan plan;
  plan.moves = search.run();
  plan.cost = search.chosenCost();
  plan.fastestCost = search.fastestCost();
  plan.leastCost = search.leastCost();
  plan.leastReceived = search.leastReceived();
  return plan;
}
