//===- ReshardSteps.cpp - the possible moves of a plan --------------------===//
//
// Lists all moves that a search tries from a layout. ReshardSearch.cpp
// evaluates their cost and selects among them.
//
//===----------------------------------------------------------------------===//

#include "ReshardSteps.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

ReshardSteps::ReshardSteps(const ReshardProblem &problem, AxisSet kept,
                           bool summing)
    : kept(kept), added(problem.to.partial & ~kept), mesh(problem.mesh),
      shape(problem.shape), from(problem.from), to(problem.to),
      summing(summing) {
  makeGoals();
}

AxisSet ReshardSteps::unreduced(const Layout &at) const {
  AxisSet away = to.partial && at.kind == to.kind ? at.partial & ~to.partial
                                                  : at.partial & ~kept;
  return summing && at.kind == from.kind ? away | (at.partial & from.partial)
                                         : away;
}

bool ReshardSteps::isLegal(const Layout &at, const Move &move) {
  AxisSet over = setOf(move.axes);
  return move.kind != Move::Exchange || move.rounds > 1 ||
         !(at.partial & over) || !(move.after.partial & over) ||
         at.kind == ReduceKind::Sum;
}

Move ReshardSteps::exchange(const Layout &at, const Layout &target,
                            int64_t rounds) const {
  AxisSet axes = mesh.exchangeAxes(shape, at, target) | unreduced(at);
  if (rounds > 1)
    axes |= mesh.everyAxis() & ~(at.used() | target.used());
  return {Move::Exchange, 0, 0, listOf(axes), at.kind, target, rounds};
}

bool ReshardSteps::makesPartialSums() const {
  return added && to.kind == ReduceKind::Sum;
}

void ReshardSteps::makeGoals() {
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

Axes ReshardSteps::inOrder(AxisSet set, ArrayRef<Axis> like) {
  Axes order;
  for (Axis axis : like)
    if (contains(set, axis))
      order.push_back(axis);
  llvm::append_range(order, listOf(set & ~setOf(order)));
  return order;
}

void ReshardSteps::finish(const Layout &goal, SmallVector<Move> &moves) const {
  if (goal == to)
    return;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (size_t more = goal.dims[dim].size() - to.dims[dim].size()) {
      ArrayRef<Axis> axes = goal.dims[dim];
      moves.push_back({Move::Embed, int64_t(dim), 0, Axes(axes.take_back(more)),
                       to.kind, to});
      return;
    }
  moves.push_back({Move::KeepFirst, 0, 0, listOf(added), to.kind, to});
}

bool ReshardSteps::isUneven(const Layout &layout) const {
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (shape[dim] % mesh.size(layout.dims[dim]) != 0)
      return true;
  return false;
}

bool ReshardSteps::nests(int64_t dim, ArrayRef<Axis> major,
                         ArrayRef<Axis> minor) const {
  return mesh.nests(shape[dim], major, minor);
}

SmallVector<Axes> ReshardSteps::lists(AxisSet set, ArrayRef<Axis> have,
                                      const Axes &want,
                                      ArrayRef<Axis> like) const {
  SmallVector<Axes> all;
  auto add = [&](Axes axes) {
    if (!axes.empty() && !llvm::is_contained(all, axes))
      all.push_back(std::move(axes));
  };
  // The next axes of the target.
  if (have.size() < want.size() &&
      ArrayRef<Axis>(want).take_front(have.size()) == have) {
    Axes axes;
    for (size_t i = have.size(); i < want.size() && contains(set, want[i]);
         ++i) {
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

void ReshardSteps::expand(const Layout &at, Step step) const {
  AxisSet unused = mesh.everyAxis() & ~at.used(), left = unreduced(at);
  // A replicated value becomes partial sums, without communication, if all
  // ranks but the first set their copy to zero. For a maximum or minimum, equal
  // copies already are partial results.
  if (AxisSet more = added & unused; more && !left) {
    Layout after = at;
    after.partial |= more;
    after.kind = to.kind;
    step({Move::KeepFirst, 0, 0, listOf(more), to.kind, after});
  }
  if (!at.partial || at.kind == ReduceKind::Sum)
    embed(at, step);
  if (left)
    reduce(at, left, step);
  gather(at, step);
  for (size_t dim = 0; dim < shape.size(); ++dim)
    for (const Axes &axes :
         lists(unused, at.dims[dim], to.dims[dim], from.dims[dim])) {
      if (!nests(dim, at.dims[dim], axes))
        continue;
      Layout after = at;
      llvm::append_range(after.dims[dim], axes);
      step({Move::Slice, int64_t(dim), 0, axes, ReduceKind::Sum, after});
    }
  exchanges(at, step);
}

void ReshardSteps::reduce(const Layout &at, AxisSet away, Step step) const {
  auto reduced = [&](AxisSet set) {
    Layout after = at;
    after.partial &= ~set;
    if (!after.partial)
      after.kind = ReduceKind::Sum;
    return after;
  };
  step({Move::AllReduce, 0, 0, listOf(away), at.kind, reduced(away)});
  for (size_t dim = 0; dim < shape.size(); ++dim)
    for (const Axes &axes : lists(away, at.dims[dim], to.dims[dim], {})) {
      Layout after = reduced(setOf(axes));
      llvm::append_range(after.dims[dim], axes);
      // An exchange is also tried where collectives would need padding, or
      // where the new tiles are not parts of the present ones, since it works
      // in both cases.
      if (isUneven(at) || isUneven(after))
        step(exchange(at, after));
      if (!nests(dim, at.dims[dim], axes))
        continue;
      step({Move::ReduceScatter, int64_t(dim), 0, axes, at.kind, after});
    }
}

void ReshardSteps::gather(const Layout &at, Step step) const {
  for (size_t dim = 0; dim < shape.size(); ++dim)
    for (size_t keep = 0; keep < at.dims[dim].size(); ++keep) {
      ArrayRef<Axis> major = ArrayRef<Axis>(at.dims[dim]).take_front(keep);
      Axes axes(at.dims[dim].begin() + keep, at.dims[dim].end());
      Layout after = at;
      after.dims[dim].truncate(keep);
      if (isUneven(at) || isUneven(after))
        step(exchange(at, after));
      // Tiles become partial sums in place.
      if (!at.partial || at.kind == ReduceKind::Sum) {
        Layout terms = after;
        terms.partial |= setOf(axes);
        AxisSet over = mesh.exchangeAxes(shape, at, terms);
        if (keep > 0)
          step({Move::Exchange, 0, 0, listOf(over), ReduceKind::Sum, terms});
      }
      if (!nests(dim, major, axes))
        continue;
      step({Move::AllGather, int64_t(dim), 0, axes, ReduceKind::Sum, after});
      for (size_t other = 0; other < shape.size(); ++other) {
        if (other == dim || !nests(other, at.dims[other], axes))
          continue;
        Layout moved = after;
        llvm::append_range(moved.dims[other], axes);
        step({Move::AllToAll, int64_t(other), int64_t(dim), axes,
              ReduceKind::Sum, moved});
      }
    }
}

void ReshardSteps::embed(const Layout &at, Step step) const {
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (at.dims[dim].empty())
      continue;
    Layout after = at;
    Axes axes = std::exchange(after.dims[dim], {});
    after.partial |= setOf(axes);
    after.kind = ReduceKind::Sum;
    step({Move::Embed, int64_t(dim), 0, axes, ReduceKind::Sum, after});
  }
}

void ReshardSteps::exchanges(const Layout &at, Step step) const {
  if (makesPartialSums())
    exchangeAll(at, to, step);
  spread(at, step);
  if (at.partial & added && !unreduced(at))
    return;
  for (const Layout &goal : goals) {
    if (at == goal)
      continue;
    exchangeAll(at, goal, step);
    AxisSet unused = mesh.everyAxis() & ~goal.used();
    for (size_t dim = 0; dim < shape.size(); ++dim)
      for (const Axes &axes :
           lists(unused, goal.dims[dim], {}, from.dims[dim])) {
        if (!nests(dim, goal.dims[dim], axes))
          continue;
        Layout after = goal;
        llvm::append_range(after.dims[dim], axes);
        if (after != at)
          step(exchange(at, after));
      }
  }
}

void ReshardSteps::spread(const Layout &at, Step step) const {
  if ((at.partial && at.kind != ReduceKind::Sum) ||
      (to.partial && to.kind != ReduceKind::Sum))
    return;
  // Axes that split both layouts may move to other dimensions before the
  // reduction or after it.
  SmallVector<AxisSet> choices = {at.partial, at.used()};
  for (const Axes &axes : to.dims)
    for (size_t keep = axes.size(); keep-- > 0;)
      choices.push_back(
          at.partial |
          (setOf(ArrayRef<Axis>(axes).drop_front(keep)) & at.used()));
  for (AxisSet away : choices) {
    Layout after = to;
    for (auto [axes, have] : llvm::zip_equal(after.dims, at.dims)) {
      size_t keep = 0;
      while (keep < axes.size() && keep < have.size() &&
             axes[keep] == have[keep])
        ++keep;
      Axes moved(axes.begin() + keep, axes.end());
      llvm::erase_if(moved, [&](Axis axis) { return contains(away, axis); });
      axes.truncate(keep);
      llvm::append_range(axes, moved);
    }
    after.partial |= at.used() & ~after.split();
    AxisSet axes = mesh.exchangeAxes(shape, at, after);
    if (after != at && after != to)
      step({Move::Exchange, 0, 0, listOf(axes), ReduceKind::Sum, after});
  }
}

void ReshardSteps::exchangeAll(const Layout &at, const Layout &target,
                               Step step) const {
  step(exchange(at, target));
  if (unreduced(at))
    step(exchange(at, target, 2));
}
