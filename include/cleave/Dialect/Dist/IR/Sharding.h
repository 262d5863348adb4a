//===- Sharding.h - arithmetic on meshes and shardings ----------*- C++ -*-===//
//
// What every phase must agree on: how axes multiply, what a tile is, which
// elements a rank holds, which ranks form a group.
//
// Rule of tiles: a dimension of N elements split n ways has tiles of
// ceil(N / n); rank i of the group holds elements [i * tile, (i + 1) * tile),
// cut off at N. The rest of the tile is padding with undefined content.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_DIALECT_DIST_IR_SHARDING_H
#define CLEAVE_DIALECT_DIST_IR_SHARDING_H

#include "cleave/Dialect/Dist/IR/Dist.h"

namespace cleave::dist {

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// The elements of a tile when `size` elements are split `ways` ways.
inline int64_t tileSize(int64_t size, int64_t ways) {
  return (size + ways - 1) / ways;
}

/// The elements of tile `index` that are no padding: [0, tile].
inline int64_t validExtent(int64_t size, int64_t ways, int64_t index) {
  int64_t tile = tileSize(size, ways);
  return std::clamp<int64_t>(size - index * tile, 0, tile);
}

//===----------------------------------------------------------------------===//
// Axes
//===----------------------------------------------------------------------===//

/// The number of ranks along the axis: of a whole axis, its size.
int64_t axisSize(MeshAttr mesh, AxisRefAttr axis);

/// The product of the sizes; 1 for no axes.
int64_t axesSize(MeshAttr mesh, llvm::ArrayRef<AxisRefAttr> axes);

/// True when some rank coordinate belongs to both.
bool overlaps(MeshAttr mesh, AxisRefAttr a, AxisRefAttr b);

/// True when no factorization of the axis has both as parts, as of 2 x 3 and
/// 3 x 2.
bool crosses(MeshAttr mesh, AxisRefAttr a, AxisRefAttr b);

/// For errors: how the tensors `whatA` and `whatB` are split over `a` and `b`,
/// which cross, and what to write instead.
std::string explainCrossing(MeshAttr mesh, AxisRefAttr a, llvm::StringRef whatA,
                            AxisRefAttr b, llvm::StringRef whatB);

/// The axis in its one canonical form: a sub-axis of full size is the whole.
AxisRefAttr canonicalAxis(MeshAttr mesh, AxisRefAttr axis);

/// Merges neighbours that together are one larger part of an axis:
/// `"x":(1)2, "x":(2)2` is `"x"` when x has size 4.
llvm::SmallVector<AxisRefAttr> canonicalAxes(MeshAttr mesh,
                                             llvm::ArrayRef<AxisRefAttr> axes);

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

/// The coordinates of a rank on the mesh's axes.
llvm::SmallVector<int64_t> rankCoordinates(MeshAttr mesh, int64_t rank);

/// The row-major index of the rank over `axes` in the order listed.
int64_t groupIndex(MeshAttr mesh, llvm::ArrayRef<AxisRefAttr> axes,
                   int64_t rank);

/// The ranks that differ from `rank` on `axes` only, ordered by their index
/// over the axes.
llvm::SmallVector<int64_t>
groupOf(MeshAttr mesh, llvm::ArrayRef<AxisRefAttr> axes, int64_t rank);

/// All groups over `axes`, ordered by their smallest rank.
llvm::SmallVector<llvm::SmallVector<int64_t>>
allGroups(MeshAttr mesh, llvm::ArrayRef<AxisRefAttr> axes);

//===----------------------------------------------------------------------===//
// Shardings
//===----------------------------------------------------------------------===//

/// The shape of a tile.
llvm::SmallVector<int64_t> tileShape(MeshAttr mesh, ShardingAttr sharding,
                                     llvm::ArrayRef<int64_t> shape);
mlir::RankedTensorType tileType(MeshAttr mesh, ShardingAttr sharding,
                                mlir::RankedTensorType type);

/// Where the tile of `rank` begins in the whole tensor, and how many elements
/// of it are no padding, per dimension.
struct TileBounds {
  llvm::SmallVector<int64_t> offsets;
  llvm::SmallVector<int64_t> extents;
};
TileBounds tileBounds(MeshAttr mesh, ShardingAttr sharding,
                      llvm::ArrayRef<int64_t> shape, int64_t rank);

/// True when `fine` splits every dimension by the axes of `coarse` and perhaps
/// further, so that going from coarse to fine is a local slice.
bool refines(MeshAttr mesh, ShardingAttr fine, ShardingAttr coarse);

/// The sharding with canonical axes and closed dimensions.
ShardingAttr canonicalSharding(MeshAttr mesh, ShardingAttr sharding);

} // namespace cleave::dist

#endif
