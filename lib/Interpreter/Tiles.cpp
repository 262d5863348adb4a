// Splits whole tensors into tiles, and assembles whole tensors from tiles.

#include "RankOps.h"

using namespace mlir;
using namespace cleave;

/// Calls `visit(position in the tile, position in the whole)` for the elements
/// of a rank's tile that are not padding.
template <typename Visit>
static void forEachValid(const dist::TileBounds &bounds, ArrayRef<int64_t> tile,
                         ArrayRef<int64_t> whole, Visit visit) {
  int64_t count = 1;
  for (int64_t extent : bounds.extents)
    count *= extent;
  for (int64_t flat = 0; flat < count; ++flat) {
    int64_t rest = flat, tileAt = 0, wholeAt = 0, tileStep = 1, wholeStep = 1;
    for (int64_t dim = tile.size() - 1; dim >= 0; --dim) {
      int64_t index = rest % bounds.extents[dim];
      rest /= bounds.extents[dim];
      tileAt += index * tileStep;
      wholeAt += (bounds.offsets[dim] + index) * wholeStep;
      tileStep *= tile[dim];
      wholeStep *= whole[dim];
    }
    visit(tileAt, wholeAt);
  }
}

static void copyElement(Tensor &target, int64_t to, const Tensor &source,
                        int64_t from) {
  if (source.isFloat())
    target.floats[to] = source.floats[from];
  else
    target.ints[to] = source.ints[from];
}

static int64_t rankCount(dist::MeshAttr mesh) {
  int64_t ranks = 1;
  for (dist::MeshAxisAttr axis : mesh.getAxes())
    ranks *= axis.getSize();
  return ranks;
}

RankTensors cleave::shardTensor(const Tensor &whole, dist::MeshAttr mesh,
                                dist::ShardingAttr sharding) {
  RankedTensorType type = dist::tileType(mesh, sharding, whole.type);
  RankTensors tiles(rankCount(mesh), Tensor(type));
  for (auto [rank, tile] : llvm::enumerate(tiles)) {
    poison(tile);
    auto bounds = dist::tileBounds(mesh, sharding, whole.shape(), rank);
    bool holds = dist::groupIndex(mesh, sharding.getPartial(), rank) == 0 ||
                 sharding.getPartialKind() != dist::ReduceKind::Sum;
    forEachValid(bounds, tile.shape(), whole.shape(),
                 [&, &tile = tile](int64_t tileAt, int64_t wholeAt) {
                   if (holds)
                     copyElement(tile, tileAt, whole, wholeAt);
                   else if (tile.isFloat())
                     tile.floats[tileAt] = 0;
                   else
                     tile.ints[tileAt] = 0;
                 });
  }
  return tiles;
}

Assembled cleave::assembleTensor(const RankTensors &tiles,
                                 RankedTensorType wholeType,
                                 dist::MeshAttr mesh,
                                 dist::ShardingAttr sharding) {
  Assembled result;
  result.whole = Tensor(wholeType);
  // If the value is partial, the partial values of each group are combined
  // first, in the order of ranks.
  RankTensors reduced = tiles;
  if (!sharding.getPartial().empty())
    for (ArrayRef<int64_t> group :
         dist::allGroups(mesh, sharding.getPartial())) {
      Tensor total = tiles[group.front()];
      for (int64_t rank : group.drop_front())
        for (int64_t i = 0; i < total.size(); ++i) {
          auto combine = [&](auto &a, auto b) {
            switch (sharding.getPartialKind()) {
            case dist::ReduceKind::Sum:
              if constexpr (std::is_same_v<decltype(b), int64_t>)
                a = addIntegers(wholeType.getElementType(), a, b);
              else
                a += b;
              break;
            case dist::ReduceKind::Max:
              a = std::max(a, b);
              break;
            case dist::ReduceKind::Min:
              a = std::min(a, b);
              break;
            }
          };
          if (total.isFloat())
            combine(total.floats[i], tiles[rank].floats[i]);
          else
            combine(total.ints[i], tiles[rank].ints[i]);
        }
      for (int64_t rank : group)
        reduced[rank] = total;
    }
  std::vector<bool> seen(wholeType.getNumElements());
  for (auto [rank, tile] : llvm::enumerate(reduced)) {
    auto bounds = dist::tileBounds(mesh, sharding, wholeType.getShape(), rank);
    forEachValid(bounds, tile.shape(), wholeType.getShape(),
                 [&, &tile = tile](int64_t tileAt, int64_t wholeAt) {
                   if (!seen[wholeAt]) {
                     seen[wholeAt] = true;
                     copyElement(result.whole, wholeAt, tile, tileAt);
                     return;
                   }
                   double difference;
                   if (tile.isFloat()) {
                     double a = result.whole.floats[wholeAt],
                            b = tile.floats[tileAt];
                     bool same = a == b || (a != a && b != b);
                     difference = same ? 0 : std::abs(a - b);
                     if (difference != difference) // one of them is NaN
                       difference = std::numeric_limits<double>::infinity();
                   } else {
                     difference =
                         result.whole.ints[wholeAt] != tile.ints[tileAt];
                   }
                   result.replicaDifference =
                       std::max(result.replicaDifference, difference);
                 });
  }
  return result;
}

void cleave::pasteTile(Tensor &whole, const Tensor &tile, dist::MeshAttr mesh,
                       dist::ShardingAttr sharding, int64_t rank) {
  forEachValid(dist::tileBounds(mesh, sharding, whole.shape(), rank),
               tile.shape(), whole.shape(),
               [&](int64_t tileAt, int64_t wholeAt) {
                 copyElement(whole, wholeAt, tile, tileAt);
               });
}

void cleave::cutTile(Tensor &tile, const Tensor &whole, dist::MeshAttr mesh,
                     dist::ShardingAttr sharding, int64_t rank) {
  poison(tile);
  forEachValid(dist::tileBounds(mesh, sharding, whole.shape(), rank),
               tile.shape(), whole.shape(),
               [&](int64_t tileAt, int64_t wholeAt) {
                 copyElement(tile, tileAt, whole, wholeAt);
               });
}
