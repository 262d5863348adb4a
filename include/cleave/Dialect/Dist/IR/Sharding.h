//===- Sharding.h - arithmetic on meshes and shardings ----------*- C++ -*-===//
//
// Functions on meshes and shardings that all phases share. They compute sizes
// of axes, shapes of tiles, the elements that a rank holds, and the ranks that
// form a group.
//
// A dimension of N elements split n ways has tiles of ceil(N / n) elements.
// Rank i of the group holds the elements [i * tile, (i + 1) * tile), truncated
// at N. The rest of the tile is padding with undefined content.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_DIALECT_DIST_IR_SHARDING_H
#define CLEAVE_DIALECT_DIST_IR_SHARDING_H

#include "cleave/Dialect/Dist/IR/Dist.h"

namespace cleave::dist {

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// Returns the number of elements of a tile if `size` elements are split `ways`
/// ways.
inline int64_t tileSize(int64_t size, int64_t ways) {
  return (size + ways - 1) / ways;
}

/// Returns the number of elements of tile `index` that are not padding, from 0
/// to the size of a tile.
inline int64_t validExtent(int64_t size, int64_t ways, int64_t index) {
  int64_t tile = tileSize(size, ways);
  return std::clamp<int64_t>(size - index * tile, 0, tile);
}

//===----------------------------------------------------------------------===//
// Axes
//===----------------------------------------------------------------------===//

/// Returns the number of ranks along the axis or sub-axis.
int64_t axisSize(MeshAttr mesh, AxisRefAttr axis);

/// Returns the product of the sizes of the axes, or 1 for no axes.
int64_t axesSize(MeshAttr mesh, llvm::ArrayRef<AxisRefAttr> axes);

/// Returns true if the two sub-axes share some part of an axis.
bool overlaps(MeshAttr mesh, AxisRefAttr a, AxisRefAttr b);

/// Returns true if no factorization of the axis has both sub-axes as parts, for
/// example a sub-axis of 2 from the factorization 2 x 3 and a sub-axis of 3
/// from the factorization 3 x 2.
bool crosses(MeshAttr mesh, AxisRefAttr a, AxisRefAttr b);

/// Returns the text of an error message about two sub-axes `a` and `b` of one
/// axis that cross: no factorization of the axis has both as parts (see
/// `crosses`). The text explains how the tensors `whatA` and `whatB` are split
/// over `a` and `b`, and what to write instead.
std::string explainCrossing(MeshAttr mesh, AxisRefAttr a, llvm::StringRef whatA,
                            AxisRefAttr b, llvm::StringRef whatB);

/// Returns the axis in its canonical form: a sub-axis of full size becomes the
/// whole axis.
AxisRefAttr canonicalAxis(MeshAttr mesh, AxisRefAttr axis);

/// Merges adjacent sub-axes that together are one larger part of an axis:
/// `"x":(1)2, "x":(2)2` is `"x"` if x has size 4.
llvm::SmallVector<AxisRefAttr> canonicalAxes(MeshAttr mesh,
                                             llvm::ArrayRef<AxisRefAttr> axes);

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

/// Returns the coordinates of a rank on the mesh's axes.
llvm::SmallVector<int64_t> rankCoordinates(MeshAttr mesh, int64_t rank);

/// Returns the row-major index of the rank over `axes` in the order listed.
int64_t groupIndex(MeshAttr mesh, llvm::ArrayRef<AxisRefAttr> axes,
                   int64_t rank);

/// Returns the ranks that differ from `rank` only on `axes`, ordered by their
/// index over the axes.
llvm::SmallVector<int64_t>
groupOf(MeshAttr mesh, llvm::ArrayRef<AxisRefAttr> axes, int64_t rank);

/// Returns all groups over `axes`, ordered by their smallest rank.
llvm::SmallVector<llvm::SmallVector<int64_t>>
allGroups(MeshAttr mesh, llvm::ArrayRef<AxisRefAttr> axes);

//===----------------------------------------------------------------------===//
// Shardings
//===----------------------------------------------------------------------===//

/// Returns the shape of a rank's tile of a tensor of `shape`, with padding.
llvm::SmallVector<int64_t> tileShape(MeshAttr mesh, ShardingAttr sharding,
                                     llvm::ArrayRef<int64_t> shape);
mlir::RankedTensorType tileType(MeshAttr mesh, ShardingAttr sharding,
                                mlir::RankedTensorType type);

/// The offset of the tile of `rank` in the whole tensor, and the number of
/// elements of the tile that are not padding, per dimension.
struct TileBounds {
  llvm::SmallVector<int64_t> offsets;
  llvm::SmallVector<int64_t> extents;
};
TileBounds tileBounds(MeshAttr mesh, ShardingAttr sharding,
                      llvm::ArrayRef<int64_t> shape, int64_t rank);

/// Returns true if `fine` splits every dimension by the axes of `coarse` and
/// possibly further, so that going from `coarse` to `fine` is a local slice.
bool refines(MeshAttr mesh, ShardingAttr fine, ShardingAttr coarse);

/// Returns the sharding with canonical axes and closed dimensions.
ShardingAttr canonicalSharding(MeshAttr mesh, ShardingAttr sharding);

} // namespace cleave::dist

#endif
