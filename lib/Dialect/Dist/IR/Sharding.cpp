//===- Sharding.cpp - arithmetic on meshes and shardings ------------------===//

#include "cleave/Dialect/Dist/IR/Sharding.h"
#include <algorithm>

using namespace mlir;
using namespace cleave::dist;

//===----------------------------------------------------------------------===//
// Axes
//===----------------------------------------------------------------------===//

int64_t cleave::dist::axisSize(MeshAttr mesh, AxisRefAttr axis) {
  return axis.isWhole() ? mesh.getAxisSize(axis.getName()) : axis.getSize();
}

int64_t cleave::dist::axesSize(MeshAttr mesh, ArrayRef<AxisRefAttr> axes) {
  int64_t size = 1;
  for (AxisRefAttr axis : axes)
    size *= axisSize(mesh, axis);
  return size;
}

bool cleave::dist::overlaps(MeshAttr mesh, AxisRefAttr a, AxisRefAttr b) {
  if (a.getName() != b.getName())
    return false;
  return a.getPre() < b.getPre() * axisSize(mesh, b) &&
         b.getPre() < a.getPre() * axisSize(mesh, a);
}

bool cleave::dist::crosses(MeshAttr mesh, AxisRefAttr a, AxisRefAttr b) {
  if (a.getName() != b.getName())
    return false;
  auto divide = [](int64_t x, int64_t y) { return x % y == 0 || y % x == 0; };
  int64_t endA = a.getPre() * axisSize(mesh, a),
          endB = b.getPre() * axisSize(mesh, b);
  return !divide(a.getPre(), b.getPre()) || !divide(a.getPre(), endB) ||
         !divide(endA, b.getPre()) || !divide(endA, endB);
}

/// Returns a sub-axis that an error message suggests instead of `b`, which
/// crosses `a`: it has the size of `b` and does not cross `a`. It is a part of
/// the same axis after, before or within `a`. Returns null if the axis has no
/// such sub-axis.
static AxisRefAttr besideOf(MeshAttr mesh, AxisRefAttr a, AxisRefAttr b) {
  int64_t whole = mesh.getAxisSize(a.getName()), size = axisSize(mesh, b);
  int64_t end = a.getPre() * axisSize(mesh, a);
  auto made = [&](int64_t pre) {
    return AxisRefAttr::get(a.getContext(), a.getName(), pre, size);
  };
  if (whole % (end * size) == 0)
    return made(end);
  if (a.getPre() % size == 0)
    return made(a.getPre() / size);
  if (axisSize(mesh, a) % size == 0)
    return made(a.getPre());
  return {};
}

std::string cleave::dist::explainCrossing(MeshAttr mesh, AxisRefAttr a,
                                          StringRef whatA, AxisRefAttr b,
                                          StringRef whatB) {
  std::string text;
  llvm::raw_string_ostream out(text);
  auto print = [&](AxisRefAttr axis) {
    out << axis.getName() << ":(" << axis.getPre() << ")"
        << axisSize(mesh, axis);
  };
  auto blocks = [&](AxisRefAttr axis) {
    out << axis.getPre() << " and " << axis.getPre() * axisSize(mesh, axis);
  };
  out << whatA << " is split over ";
  print(a);
  out << " and " << whatB << " over ";
  print(b);
  out << ", sub-axes that cross: the axis " << a.getName() << " of size "
      << mesh.getAxisSize(a.getName()) << " is cut into ";
  blocks(a);
  out << " blocks by the one and ";
  blocks(b);
  out << " by the other, and of two such numbers one must divide the other; ";
  if (AxisRefAttr other = besideOf(mesh, a, b)) {
    out << "for the latter write ";
    print(other);
  } else if (AxisRefAttr other = besideOf(mesh, b, a)) {
    out << "for the former write ";
    print(other);
  } else {
    out << "choose sizes that do, or leave one of them whole";
  }
  return text;
}

AxisRefAttr cleave::dist::canonicalAxis(MeshAttr mesh, AxisRefAttr axis) {
  if (!axis.isWhole() && axis.getPre() == 1 &&
      axis.getSize() == mesh.getAxisSize(axis.getName()))
    return AxisRefAttr::get(axis.getContext(), axis.getName(), 1, 0);
  return axis;
}

SmallVector<AxisRefAttr>
cleave::dist::canonicalAxes(MeshAttr mesh, ArrayRef<AxisRefAttr> axes) {
  SmallVector<AxisRefAttr> result;
  for (AxisRefAttr axis : axes) {
    // A part of size 1 splits nothing.
    if (axisSize(mesh, axis) == 1)
      continue;
    if (!result.empty()) {
      AxisRefAttr last = result.back();
      int64_t lastSize = axisSize(mesh, last);
      if (last.getName() == axis.getName() &&
          last.getPre() * lastSize == axis.getPre()) {
        result.back() = canonicalAxis(
            mesh,
            AxisRefAttr::get(axis.getContext(), axis.getName(), last.getPre(),
                             lastSize * axisSize(mesh, axis)));
        continue;
      }
    }
    result.push_back(canonicalAxis(mesh, axis));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

SmallVector<int64_t> cleave::dist::rankCoordinates(MeshAttr mesh,
                                                   int64_t rank) {
  ArrayRef<MeshAxisAttr> axes = mesh.getAxes();
  SmallVector<int64_t> coordinates(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    coordinates[i] = rank % axes[i].getSize();
    rank /= axes[i].getSize();
  }
  return coordinates;
}

/// The ranks along an axis: the distance between the numbers of neighbours, and
/// how many ranks there are.
namespace {
struct Stride {
  int64_t stride; // ranks between neighbours
  int64_t size;
};
} // namespace

static Stride strideOf(MeshAttr mesh, AxisRefAttr axis) {
  int64_t stride = 1;
  for (MeshAxisAttr meshAxis : llvm::reverse(mesh.getAxes())) {
    if (meshAxis.getName() == axis.getName()) {
      int64_t size = axisSize(mesh, axis);
      return {stride * (meshAxis.getSize() / (axis.getPre() * size)), size};
    }
    stride *= meshAxis.getSize();
  }
  llvm_unreachable("the axis is not one of the mesh; verifyAxes comes first");
}

int64_t cleave::dist::groupIndex(MeshAttr mesh, ArrayRef<AxisRefAttr> axes,
                                 int64_t rank) {
  int64_t index = 0;
  for (AxisRefAttr axis : axes) {
    Stride s = strideOf(mesh, axis);
    index = index * s.size + rank / s.stride % s.size;
  }
  return index;
}

SmallVector<int64_t>
cleave::dist::groupOf(MeshAttr mesh, ArrayRef<AxisRefAttr> axes, int64_t rank) {
  SmallVector<int64_t> members;
  SmallVector<Stride> strides;
  for (AxisRefAttr axis : axes) {
    strides.push_back(strideOf(mesh, axis));
    rank -= rank / strides.back().stride % strides.back().size *
            strides.back().stride;
  }
  members.push_back(rank);
  for (Stride s : strides) {
    SmallVector<int64_t> next;
    for (int64_t member : members)
      for (int64_t i = 0; i < s.size; ++i)
        next.push_back(member + i * s.stride);
    members = std::move(next);
  }
  return members;
}

SmallVector<SmallVector<int64_t>>
cleave::dist::allGroups(MeshAttr mesh, ArrayRef<AxisRefAttr> axes) {
  SmallVector<SmallVector<int64_t>> groups;
  for (int64_t rank = 0, end = mesh.getNumRanks(); rank < end; ++rank)
    if (groupIndex(mesh, axes, rank) == 0)
      groups.push_back(groupOf(mesh, axes, rank));
  return groups;
}

//===----------------------------------------------------------------------===//
// Shardings
//===----------------------------------------------------------------------===//

SmallVector<int64_t> cleave::dist::tileShape(MeshAttr mesh,
                                             ShardingAttr sharding,
                                             ArrayRef<int64_t> shape) {
  SmallVector<int64_t> tile;
  for (auto [size, dim] : llvm::zip_equal(shape, sharding.getDims()))
    tile.push_back(tileSize(size, axesSize(mesh, dim.getAxes())));
  return tile;
}

RankedTensorType cleave::dist::tileType(MeshAttr mesh, ShardingAttr sharding,
                                        RankedTensorType type) {
  return type.clone(tileShape(mesh, sharding, type.getShape()));
}

TileBounds cleave::dist::tileBounds(MeshAttr mesh, ShardingAttr sharding,
                                    ArrayRef<int64_t> shape, int64_t rank) {
  TileBounds bounds;
  for (auto [size, dim] : llvm::zip_equal(shape, sharding.getDims())) {
    int64_t ways = axesSize(mesh, dim.getAxes());
    int64_t index = groupIndex(mesh, dim.getAxes(), rank);
    bounds.offsets.push_back(index * tileSize(size, ways));
    bounds.extents.push_back(validExtent(size, ways, index));
  }
  return bounds;
}

/// Returns whether the list `axes` begins with the axes in `prefix`. An axis
/// may also be written as the list of its parts.
static bool isPrefix(MeshAttr mesh, ArrayRef<AxisRefAttr> prefix,
                     ArrayRef<AxisRefAttr> axes) {
  SmallVector<AxisRefAttr> p = canonicalAxes(mesh, prefix),
                           a = canonicalAxes(mesh, axes);
  if (p.size() > a.size())
    return false;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == a[i])
      continue;
    // The last axis of the prefix may be the major part of the corresponding,
    // larger sub-axis of `axes`.
    if (i + 1 != p.size() || p[i].getName() != a[i].getName() ||
        p[i].getPre() != a[i].getPre())
      return false;
    if (axisSize(mesh, a[i]) % axisSize(mesh, p[i]) != 0)
      return false;
  }
  return true;
}

bool cleave::dist::refines(MeshAttr mesh, ShardingAttr fine,
                           ShardingAttr coarse) {
  if (fine.getMesh() != coarse.getMesh() || fine.getRank() != coarse.getRank())
    return false;
  for (auto [fineDim, coarseDim] :
       llvm::zip_equal(fine.getDims(), coarse.getDims()))
    if (!isPrefix(mesh, coarseDim.getAxes(), fineDim.getAxes()))
      return false;
  return true;
}

ShardingAttr cleave::dist::canonicalSharding(MeshAttr mesh,
                                             ShardingAttr sharding) {
  MLIRContext *context = sharding.getContext();
  SmallVector<DimShardingAttr> dims;
  for (DimShardingAttr dim : sharding.getDims())
    dims.push_back(DimShardingAttr::get(
        context, canonicalAxes(mesh, dim.getAxes()), false));
  return ShardingAttr::get(context, sharding.getMesh(), dims,
                           sharding.getPartialKind(),
                           canonicalAxes(mesh, sharding.getPartial()), {}, 0);
}
