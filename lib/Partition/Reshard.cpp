//===- Reshard.cpp - moves a value from one layout to another -------------===//
//
// A tile boundary follows from the whole dimension (tile i of ceil(N / n)), so a
// split by {x} and one by {x, y} meet at common boundaries only where tiles
// nest: where tile({x}) = |y| * tile({x, y}). Where padding breaks that, the
// dimension is gathered whole and cut again.
//
//===----------------------------------------------------------------------===//

#include "cleave/Partition/Reshard.h"
#include "cleave/Dialect/Dist/IR/Padding.h"

#include "cleave/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

class Planner {
public:
  Planner(const MeshAxes &mesh, ArrayRef<int64_t> shape, const Layout &from, const Layout &to)
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
  /// Whether tiles of dimension `dim` under `major` are runs of tiles under
  /// `major` and then `minor`. The whole dimension always is: it is padded first.
  bool nests(int64_t dim, ArrayRef<Axis> major, ArrayRef<Axis> minor) const {
    int64_t outer = mesh.size(major), inner = mesh.size(minor);
    return outer == 1 ||
           tileSize(shape[dim], outer) == inner * tileSize(shape[dim], outer * inner);
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

  /// Sums over axes that the target is not partial over. Where the target
  /// splits a dimension by them next, a scatter does half of the work.
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
      for (size_t i = have.size(); i < want.size() && contains(away, want[i]); ++i)
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

  /// A value that all ranks hold becomes addends of it.
  void keepFirst() {
    AxisSet more = to.partial & ~at.partial;
    // Axes that split the value now are gathered first.
    more &= ~at.split();
    if (!more)
      return;
    at.partial |= more;
    at.kind = to.kind;
    // What all ranks hold is a candidate of the maximum on each of them.
    if (to.kind != ReduceKind::Sum)
      return;
    add({Move::KeepFirst, 0, 0, listOf(more), ReduceKind::Sum, {}});
  }

  /// The same axes in other places, tiles of the same shape: every rank's tile
  /// lies whole on some other rank.
  bool tryPermute() {
    if (at.partial != to.partial || at.split() != to.split())
      return false;
    for (size_t dim = 0; dim < shape.size(); ++dim)
      if (mesh.size(at.dims[dim]) != mesh.size(to.dims[dim]))
        return false;
    // Dimensions that stay as they are take no part.
    AxisSet moved = 0;
    for (size_t dim = 0; dim < shape.size(); ++dim)
      if (at.dims[dim] != to.dims[dim])
        moved |= setOf(at.dims[dim]);
    Axes axes = listOf(moved);
    at = to;
    add({Move::Permute, 0, 0, axes, ReduceKind::Sum, {}});
    return true;
  }

  /// Splits by axes that nothing uses yet: later moves carry less.
  void sliceFree() {
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      Axes &have = at.dims[dim];
      const Axes &want = to.dims[dim];
      if (commonPrefix(have, want) != have.size())
        continue;
      Axes axes;
      for (size_t i = have.size(); i < want.size() && !contains(at.used(), want[i]); ++i)
        axes.push_back(want[i]);
      if (axes.empty() || !nests(dim, have, axes))
        continue;
      llvm::append_range(have, axes);
      add({Move::Slice, int64_t(dim), 0, axes, ReduceKind::Sum, {}});
    }
  }

  /// Moves trailing axes from one dimension to another.
  void exchange() {
    for (bool again = true; again;) {
      again = false;
      for (size_t i = 0; i < shape.size() && !again; ++i) {
        size_t keep = commonPrefix(at.dims[i], to.dims[i]);
        for (size_t first = keep; first < at.dims[i].size() && !again; ++first) {
          Axes axes(at.dims[i].begin() + first, at.dims[i].end());
          ArrayRef<Axis> major = ArrayRef<Axis>(at.dims[i]).take_front(first);
          for (size_t j = 0; j < shape.size() && !again; ++j) {
            const Axes &have = at.dims[j], &want = to.dims[j];
            if (i == j || commonPrefix(have, want) != have.size() ||
                want.size() < have.size() + axes.size() ||
                !std::equal(axes.begin(), axes.end(), want.begin() + have.size()))
              continue;
            if (!nests(i, major, axes) || !nests(j, have, axes))
              continue;
            at.dims[i].truncate(first);
            llvm::append_range(at.dims[j], axes);
            add({Move::AllToAll, int64_t(j), int64_t(i), axes, ReduceKind::Sum, {}});
            again = true;
          }
        }
      }
    }
  }

  void gather(size_t dim) {
    Axes &have = at.dims[dim];
    size_t keep = commonPrefix(have, to.dims[dim]);
    // A split that goes on where tiles do not nest starts over.
    if (keep == have.size() &&
        (keep == to.dims[dim].size() ||
         nests(dim, have, ArrayRef<Axis>(to.dims[dim]).drop_front(keep))))
      return;
    while (keep > 0 &&
           !(nests(dim, ArrayRef<Axis>(have).take_front(keep),
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

/// Pads or cuts the end of one dimension to `size`.
Value resize(OpBuilder &builder, Location loc, Value value, int64_t dim, int64_t size) {
  auto type = cast<RankedTensorType>(value.getType());
  int64_t have = type.getDimSize(dim);
  if (have == size)
    return value;
  SmallVector<int64_t> shape(type.getShape()), zeros(type.getRank(), 0);
  shape[dim] = size;
  if (size > have) {
    SmallVector<int64_t> high(zeros);
    high[dim] = size - have;
    return nn::PadOp::create(builder, loc, type.clone(shape), value, zeros, high, APFloat(0.0));
  }
  SmallVector<int64_t> ones(type.getRank(), 1);
  return nn::SliceOp::create(builder, loc, type.clone(shape), value, zeros, shape, ones);
}

} // namespace

SmallVector<Move> cleave::partition::planReshard(const MeshAxes &mesh, ArrayRef<int64_t> shape,
                                                 const Layout &from, const Layout &to) {
  if (from == to)
    return {};
  // Addends over an axis that splits the value now: gather first.
  if (AxisSet clash = to.partial & from.split()) {
    Layout middle = from;
    for (Axes &axes : middle.dims)
      llvm::erase_if(axes, [&](Axis axis) { return contains(clash, axis); });
    SmallVector<Move> moves = planReshard(mesh, shape, from, middle);
    llvm::append_range(moves, planReshard(mesh, shape, middle, to));
    return moves;
  }
  return Planner(mesh, shape, from, to).run();
}

int64_t cleave::partition::sentBytes(const MeshAxes &mesh, ArrayRef<int64_t> shape,
                                     int64_t elementBytes, const Layout &from,
                                     ArrayRef<Move> moves) {
  int64_t sent = 0;
  Layout at = from;
  for (const Move &move : moves) {
    auto bytes = [&](const Layout &layout) {
      int64_t elements = elementBytes;
      for (int64_t extent : mesh.tile(layout, shape))
        elements *= extent;
      return elements;
    };
    int64_t n = mesh.size(move.axes);
    switch (move.kind) {
    case Move::AllReduce:
      sent += 2 * (n - 1) * bytes(at) / n;
      break;
    case Move::ReduceScatter:
      sent += (n - 1) * bytes(move.after);
      break;
    case Move::AllGather:
      sent += (n - 1) * bytes(at);
      break;
    case Move::AllToAll:
      sent += (n - 1) * bytes(at) / n;
      break;
    case Move::Permute:
      sent += bytes(at);
      break;
    case Move::KeepFirst:
    case Move::Slice:
      break;
    }
    at = move.after;
  }
  return sent;
}

/// For a permutation: source and target, alternating, as indices over `axes`.
static SmallVector<int64_t> permutation(const MeshAxes &mesh, const Layout &from, const Layout &to,
                                        ArrayRef<Axis> axes) {
  // Coordinates of a group index on each axis, and the tile that they hold.
  int64_t count = mesh.size(axes);
  auto tileOf = [&](const Layout &layout, int64_t index) {
    SmallVector<int64_t, 8> coordinate(64, 0);
    for (Axis axis : llvm::reverse(axes)) {
      coordinate[axis] = index % mesh.size(axis);
      index /= mesh.size(axis);
    }
    int64_t tile = 0;
    for (const Axes &dim : layout.dims)
      for (Axis axis : dim)
        if (llvm::is_contained(axes, axis))
          tile = tile * mesh.size(axis) + coordinate[axis];
    return tile;
  };
  SmallVector<int64_t> holder(count), pairs;
  for (int64_t index = 0; index < count; ++index)
    holder[tileOf(from, index)] = index;
  for (int64_t index = 0; index < count; ++index) {
    pairs.push_back(holder[tileOf(to, index)]);
    pairs.push_back(index);
  }
  return pairs;
}

Value cleave::partition::emitReshard(OpBuilder &builder, Location loc, const MeshAxes &mesh,
                                     RankedTensorType type, Value local, const Layout &from,
                                     ArrayRef<Move> moves, Purpose purpose) {
  MLIRContext *context = builder.getContext();
  auto purposeAttr = PurposeAttr::get(context, purpose);
  Layout at = from;
  // Of the collective just made, whose payload is a tile in `layout`.
  auto note = [&](const Layout &layout, Value payload, Operation *collective) {
    notePadding(collective, mesh, layout, type, cast<RankedTensorType>(payload.getType()));
    return collective->getResult(0);
  };
  for (const Move &move : moves) {
    auto have = cast<RankedTensorType>(local.getType());
    RankedTensorType want = mesh.tile(move.after, type);
    AxisListAttr axes = mesh.list(move.axes);
    auto kind = ReduceKindAttr::get(context, move.reduce);
    auto dims = builder.getDenseI64ArrayAttr({move.dim});
    int64_t n = mesh.size(move.axes);
    switch (move.kind) {
    case Move::AllReduce:
      local = note(at, local,
                   AllReduceOp::create(builder, loc, TypeRange{have}, kind, ValueRange{local},
                                       mesh.name(), axes, purposeAttr));
      break;
    case Move::ReduceScatter:
      local = resize(builder, loc, local, move.dim, n * want.getDimSize(move.dim));
      local = note(at, local,
                   ReduceScatterOp::create(builder, loc, TypeRange{want}, kind, ValueRange{local},
                                           dims, mesh.name(), axes, purposeAttr));
      break;
    case Move::KeepFirst:
      local = KeepFirstOp::create(builder, loc, have, local, mesh.name(), axes);
      break;
    case Move::AllToAll: {
      local = resize(builder, loc, local, move.dim, n * want.getDimSize(move.dim));
      SmallVector<int64_t> shape(want.getShape());
      shape[move.concat] = n * have.getDimSize(move.concat);
      local = note(at, local,
                   AllToAllOp::create(builder, loc, TypeRange{type.clone(shape)},
                                      ValueRange{local}, dims,
                                      builder.getDenseI64ArrayAttr({move.concat}), mesh.name(),
                                      axes, purposeAttr));
      local = resize(builder, loc, local, move.concat, want.getDimSize(move.concat));
      break;
    }
    case Move::AllGather: {
      SmallVector<int64_t> shape(have.getShape());
      shape[move.dim] *= n;
      auto gather = AllGatherOp::create(builder, loc, TypeRange{type.clone(shape)},
                                        ValueRange{local}, dims, mesh.name(), axes, purposeAttr);
      local = note(move.after, gather->getResult(0), gather);
      local = resize(builder, loc, local, move.dim, want.getDimSize(move.dim));
      break;
    }
    case Move::Slice:
      local = dist::SliceOp::create(builder, loc, want, local, builder.getI64IntegerAttr(move.dim),
                                    mesh.name(), axes);
      break;
    case Move::Permute:
      local = note(at, local,
                   CollectivePermuteOp::create(
                       builder, loc, TypeRange{have}, ValueRange{local},
                       builder.getDenseI64ArrayAttr(permutation(mesh, at, move.after, move.axes)),
                       mesh.name(), axes, purposeAttr));
      break;
    }
    at = move.after;
  }
  return local;
}
