//===- PlainReshard.cpp - a reshard without a search ----------------------===//
//
// Plans a reshard by a fixed sequence: first reductions (reduce-scatters where
// the target is split), then slices, which are free, all-to-alls, all-gathers,
// and last the slices that were not possible before. The search in
// ReshardSearch.cpp starts from this plan, and keeps it if no other plan is
// better.
//
//===----------------------------------------------------------------------===//

#include "ReshardCost.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

class Planner {
public:
  Planner(const MeshAxes &mesh, ArrayRef<int64_t> shape, const Layout &from,
          const Layout &to)
      : mesh(mesh), shape(shape), at(from), to(to) {}

  SmallVector<Move> run() {
    reducePartial();
    keepFirst();
    if (at == to)
      return moves;
    if (tryPermute())
      return moves;
    sliceFree();
    exchange();
    for (size_t dim = 0; dim < shape.size(); ++dim)
      gather(dim);
    for (size_t dim = 0; dim < shape.size(); ++dim)
      slice(dim);
    return moves;
  }

private:
  bool nests(int64_t dim, ArrayRef<Axis> major, ArrayRef<Axis> minor) const {
    return mesh.nests(shape[dim], major, minor);
  }

  static size_t commonPrefix(ArrayRef<Axis> a, ArrayRef<Axis> b) {
    size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i])
      ++i;
    return i;
  }

  void add(Move move) {
    move.after = at;
    moves.push_back(std::move(move));
  }

  /// Reduces over the axes over which the source is partial and the target is
  /// not. If the target splits a dimension further by these axes, uses a
  /// reduce-scatter, which moves half as many bytes as an all-reduce.
  void reducePartial() {
    AxisSet away = at.partial & ~to.partial;
    if (at.partial && to.partial && at.kind != to.kind)
      away = at.partial;
    if (!away)
      return;
    ReduceKind kind = at.kind;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      const Axes &have = at.dims[dim], &want = to.dims[dim];
      if (commonPrefix(have, want) != have.size())
        continue;
      Axes axes;
      for (size_t i = have.size(); i < want.size() && contains(away, want[i]);
           ++i)
        axes.push_back(want[i]);
      if (axes.empty() || !nests(dim, have, axes))
        continue;
      away &= ~setOf(axes);
      at.partial &= ~setOf(axes);
      llvm::append_range(at.dims[dim], axes);
      add({Move::ReduceScatter, int64_t(dim), 0, axes, kind, {}});
    }
    if (away) {
      at.partial &= ~away;
      add({Move::AllReduce, 0, 0, listOf(away), kind, {}});
    }
    if (!at.partial)
      at.kind = ReduceKind::Sum;
  }

  /// Turns a replicated value into partial results.
  void keepFirst() {
    AxisSet more = to.partial & ~at.partial;
    // Axes that still split the value must be gathered before the value can be
    // partial over them.
    more &= ~at.split();
    if (!more)
      return;
    at.partial |= more;
    at.kind = to.kind;
    // For a maximum or minimum, a replicated value is already a valid partial
    // result.
    if (to.kind != ReduceKind::Sum)
      return;
    add({Move::KeepFirst, 0, 0, listOf(more), ReduceKind::Sum, {}});
  }

  /// Emits a permutation if source and target are split by the same axes, but
  /// in other dimensions, and their tiles have the same shape. Then each rank
  /// needs exactly one whole tile, which another rank holds.
  bool tryPermute() {
    if (at.partial != to.partial || at.split() != to.split())
      return false;
    for (size_t dim = 0; dim < shape.size(); ++dim)
      if (mesh.size(at.dims[dim]) != mesh.size(to.dims[dim]))
        return false;
    // Unchanged dimensions take no part.
    AxisSet moved = 0;
    for (size_t dim = 0; dim < shape.size(); ++dim)
      if (at.dims[dim] != to.dims[dim])
        moved |= setOf(at.dims[dim]);
    Axes axes = listOf(moved);
    at = to;
    add({Move::Permute, 0, 0, axes, ReduceKind::Sum, {}});
    return true;
  }

  /// Splits the value by axes that are still unused, so that later moves
  /// transfer less.
  void sliceFree() {
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      Axes &have = at.dims[dim];
      const Axes &want = to.dims[dim];
      if (commonPrefix(have, want) != have.size())
        continue;
      Axes axes;
      for (size_t i = have.size();
           i < want.size() && !contains(at.used(), want[i]); ++i)
        axes.push_back(want[i]);
      if (axes.empty() || !nests(dim, have, axes))
        continue;
      llvm::append_range(have, axes);
      add({Move::Slice, int64_t(dim), 0, axes, ReduceKind::Sum, {}});
    }
  }

  /// Moves the minor axes of a dimension to another dimension by all-to-alls.
  void exchange() {
    for (bool again = true; again;) {
      again = false;
      for (size_t i = 0; i < shape.size() && !again; ++i) {
        size_t keep = commonPrefix(at.dims[i], to.dims[i]);
        for (size_t first = keep; first < at.dims[i].size() && !again;
             ++first) {
          Axes axes(at.dims[i].begin() + first, at.dims[i].end());
          ArrayRef<Axis> major = ArrayRef<Axis>(at.dims[i]).take_front(first);
          for (size_t j = 0; j < shape.size() && !again; ++j) {
            const Axes &have = at.dims[j], &want = to.dims[j];
            if (i == j || commonPrefix(have, want) != have.size() ||
                want.size() < have.size() + axes.size() ||
                !std::equal(axes.begin(), axes.end(),
                            want.begin() + have.size()))
              continue;
            if (!nests(i, major, axes) || !nests(j, have, axes))
              continue;
            at.dims[i].truncate(first);
            llvm::append_range(at.dims[j], axes);
            add({Move::AllToAll,
                 int64_t(j),
                 int64_t(i),
                 axes,
                 ReduceKind::Sum,
                 {}});
            again = true;
          }
        }
      }
    }
  }

  void gather(size_t dim) {
    Axes &have = at.dims[dim];
    size_t keep = commonPrefix(have, to.dims[dim]);
    // Gathers a dimension if the tiles of the target are not parts of the
    // current tiles.
    if (keep == have.size() &&
        (keep == to.dims[dim].size() ||
         nests(dim, have, ArrayRef<Axis>(to.dims[dim]).drop_front(keep))))
      return;
    while (keep > 0 && !(nests(dim, ArrayRef<Axis>(have).take_front(keep),
                               ArrayRef<Axis>(have).drop_front(keep)) &&
                         nests(dim, ArrayRef<Axis>(have).take_front(keep),
                               ArrayRef<Axis>(to.dims[dim]).drop_front(keep))))
      --keep;
    if (keep == have.size())
      return;
    Axes axes(have.begin() + keep, have.end());
    have.truncate(keep);
    add({Move::AllGather, int64_t(dim), 0, axes, ReduceKind::Sum, {}});
  }

  void slice(size_t dim) {
    Axes &have = at.dims[dim];
    if (have == to.dims[dim])
      return;
    Axes axes(to.dims[dim].begin() + have.size(), to.dims[dim].end());
    have = to.dims[dim];
    add({Move::Slice, int64_t(dim), 0, axes, ReduceKind::Sum, {}});
  }

  const MeshAxes &mesh;
  ArrayRef<int64_t> shape;
  Layout at;
  const Layout &to;
  SmallVector<Move> moves;
};

} // namespace

SmallVector<Move> cleave::partition::planPlainly(const MeshAxes &mesh,
                                                 ArrayRef<int64_t> shape,
                                                 const Layout &from,
                                                 const Layout &to) {
  if (from == to)
    return {};
  // If the target is partial over an axis that splits the value, the value is
  // gathered over this axis first.
  if (AxisSet clash = to.partial & from.split()) {
    Layout middle = from;
    for (Axes &axes : middle.dims)
      llvm::erase_if(axes, [&](Axis axis) { return contains(clash, axis); });
    SmallVector<Move> moves = planPlainly(mesh, shape, from, middle);
    llvm::append_range(moves, planPlainly(mesh, shape, middle, to));
    return moves;
  }
  return Planner(mesh, shape, from, to).run();
}
