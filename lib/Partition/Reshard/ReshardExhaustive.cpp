//===- ReshardExhaustive.cpp - all plans of up to three moves -------------===//
//
// The search in ReshardSearch.cpp only tries moves that reshards typically
// need. If its plan costs far more than the lower bound, and the tensor has few
// possible layouts, this file tries all plans of up to three moves.
//
//===----------------------------------------------------------------------===//

#include "ReshardExhaustive.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

std::vector<Layout> cleave::partition::layoutsOf(const MeshAxes &mesh,
                                                 unsigned rank, size_t most) {
  std::vector<Layout> all;
  Layout layout(rank);
  // Inserts each axis at every position of each list of axes, so that each
  // order of axes occurs once.
  auto visit = [&](auto &&self, unsigned axis) -> void {
    if (all.size() > most)
      return;
    if (axis == mesh.count()) {
      all.push_back(layout);
      return;
    }
    self(self, axis + 1);
    layout.partial |= AxisSet(1) << axis;
    self(self, axis + 1);
    layout.partial &= ~(AxisSet(1) << axis);
    for (Axes &dim : layout.dims)
      for (size_t place = 0; place <= dim.size(); ++place) {
        dim.insert(dim.begin() + place, Axis(axis));
        self(self, axis + 1);
        dim.erase(dim.begin() + place);
      }
  };
  visit(visit, 0);
  if (all.size() > most)
    all.clear();
  return all;
}

bool ReshardProblem::allows(const Layout &layout) const {
  if (layout == from || layout == to)
    return true;
  return llvm::product_of(mesh.tile(layout, shape)) <= largestTile &&
         (mayReplicate || layout.split());
}

double ReshardProblem::cost(const MoveCost &moved) const {
  return moved.seconds + kMeanWeight * moved.received * elementBytes *
                             model.leastSecondsPerByte();
}

MoveCost ReshardProblem::measure(ArrayRef<Move> moves) const {
  MoveCost total;
  const Layout *at = &from;
  for (const Move &move : moves) {
    MoveCost moved = costOf(mesh, model, shape, elementBytes, *at, move);
    total.seconds += moved.seconds;
    total.received += moved.received;
    at = &move.after;
  }
  return total;
}

namespace {

/// A step from one layout to another: a single move, or no move if the layouts
/// are equal.
struct Step {
  double cost = 0, received = 0;
  std::optional<Move> move;
};
using Steps = SmallVector<Step, 2>;

class Exhaustive {
public:
  Exhaustive(const ReshardProblem &problem, ArrayRef<Layout> layouts)
      : problem(problem) {
    for (const Layout &layout : layouts)
      if (problem.allows(layout))
        allowed.push_back(&layout);
  }

  std::optional<SmallVector<Move>> run(double limit, double mostReceived) {
    struct End {
      const Layout *layout;
      Steps steps;
    };
    std::vector<End> firsts, lasts;
    for (const Layout *layout : allowed) {
      auto offer = [&](std::vector<End> &ends, Steps steps) {
        llvm::erase_if(steps, [&](const Step &step) {
          return step.received > mostReceived;
        });
        if (!steps.empty())
          ends.push_back({layout, std::move(steps)});
      };
      offer(firsts, between(problem.from, *layout, limit));
      offer(lasts, between(*layout, problem.to, limit));
    }
    std::optional<SmallVector<Move>> best;
    for (const End &first : firsts)
      for (const End &last : lasts) {
        double least = INFINITY, received = INFINITY;
        for (const Step &a : first.steps)
          for (const Step &c : last.steps) {
            least = std::min(least, a.cost + c.cost);
            received = std::min(received, a.received + c.received);
          }
        if (least >= limit || received > mostReceived)
          continue;
        Steps middle = between(*first.layout, *last.layout, limit - least);
        for (const Step &a : first.steps)
          for (const Step &b : middle)
            for (const Step &c : last.steps) {
              double cost = a.cost + b.cost + c.cost;
              if (cost >= limit ||
                  a.received + b.received + c.received > mostReceived)
                continue;
              limit = cost;
              best.emplace();
              for (const Step *step : {&a, &b, &c})
                if (step->move)
                  best->push_back(*step->move);
            }
      }
    return best;
  }

private:
  /// Returns the steps between two layouts that cost less than `enough`. A step
  /// is left out if another one is better in both cost and received elements.
  Steps between(const Layout &from, const Layout &to, double enough) const {
    Steps steps;
    if (from == to) {
      steps.emplace_back();
      return steps;
    }
    const MeshAxes &mesh = problem.mesh;
    auto offer = [&](Move move) {
      MoveCost moved = costOf(mesh, problem.model, problem.shape,
                              problem.elementBytes, from, move, enough);
      Step step = {problem.cost(moved), moved.received, std::move(move)};
      if (moved.seconds >= enough || step.cost >= enough)
        return;
      for (const Step &other : steps)
        if (other.cost <= step.cost && other.received <= step.received)
          return;
      llvm::erase_if(steps, [&](const Step &other) {
        return step.cost <= other.cost && step.received <= other.received;
      });
      steps.push_back(std::move(step));
    };
    AxisSet gone = from.partial & ~to.partial,
            come = to.partial & ~from.partial;
    if (from.dims == to.dims) {
      if (!gone && !(come & from.used())) {
        offer({Move::KeepFirst, 0, 0, listOf(come), ReduceKind::Sum, to});
        return steps;
      }
      if (!come)
        offer({Move::AllReduce, 0, 0, listOf(gone), ReduceKind::Sum, to});
    } else if (collective(from, to, gone, come, offer)) {
      return steps;
    }
    // Over an axis over which the value is partial both before and after, an
    // exchange may leave it partial or reduce it.
    AxisSet axes = mesh.exchangeAxes(problem.shape, from, to),
            common = from.partial & to.partial;
    AxisSet unused = mesh.everyAxis() & ~(from.used() | to.used());
    auto exchange = [&](AxisSet over, int64_t rounds) {
      offer({Move::Exchange, 0, 0, listOf(over), ReduceKind::Sum, to, rounds});
    };
    exchange(axes, 1);
    if (gone) {
      exchange(axes, 2);
      if (unused)
        exchange(axes | unused, 2);
    }
    if (common) {
      exchange(axes | common, 1);
      exchange(axes | common, 2);
      if (unused)
        exchange(axes | common | unused, 2);
    }
    return steps;
  }

  /// Calls `offer` with the collectives that lead from one layout to the other.
  /// The layouts may differ only in the minor axes of one dimension, or of two
  /// dimensions of which one loses axes and the other gains axes. Returns true
  /// if one of these moves is free, so that no other move is needed.
  template <class Offer>
  bool collective(const Layout &from, const Layout &to, AxisSet gone,
                  AxisSet come, Offer offer) const {
    const MeshAxes &mesh = problem.mesh;
    int shrunk = -1, grown = -1;
    Axes lost, won;
    for (auto [dim, a, b] : llvm::enumerate(from.dims, to.dims)) {
      ArrayRef<Axis> have = a, want = b;
      if (have == want)
        continue;
      bool grows = have.size() < want.size();
      ArrayRef<Axis> few = grows ? have : want, many = grows ? want : have;
      int &place = grows ? grown : shrunk;
      Axes &moved = grows ? won : lost;
      if (place >= 0 || have.size() == want.size() ||
          many.take_front(few.size()) != few)
        return false;
      place = dim;
      moved = Axes(many.drop_front(few.size()));
      if (!mesh.nests(problem.shape[dim], few, moved))
        return false;
    }
    if (grown >= 0 && shrunk < 0) {
      if (!come && !gone) {
        offer({Move::Slice, grown, 0, won, ReduceKind::Sum, to});
        return true;
      }
      if (!come && gone == setOf(won))
        offer({Move::ReduceScatter, grown, 0, won, ReduceKind::Sum, to});
    } else if (grown < 0 && shrunk >= 0) {
      if (!gone && come == setOf(lost) && to.dims[shrunk].empty()) {
        offer({Move::Embed, shrunk, 0, lost, ReduceKind::Sum, to});
        return true;
      }
      if (!come && !gone)
        offer({Move::AllGather, shrunk, 0, lost, ReduceKind::Sum, to});
    } else if (grown >= 0 && shrunk >= 0 && !come && !gone && lost == won) {
      offer({Move::AllToAll, grown, shrunk, lost, ReduceKind::Sum, to});
    }
    return false;
  }

  const ReshardProblem &problem;
  std::vector<const Layout *> allowed;
};

} // namespace

std::optional<SmallVector<Move>>
cleave::partition::cheapestOfAll(const ReshardProblem &problem,
                                 ArrayRef<Layout> layouts, double limit,
                                 double mostReceived) {
  return Exhaustive(problem, layouts).run(limit, mostReceived);
}
