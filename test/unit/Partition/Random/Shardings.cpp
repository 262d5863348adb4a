// Random meshes and shardings: uneven sizes, axes longer than a dimension,
// several axes on one dimension in any order, sub-axes, partial values, open
// and closed dimensions, priorities, and explicitly replicated axes.

#include "Generator.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::random;

Mesh cleave::random::randomMesh(Random &random, MLIRContext *context) {
  using Sizes = SmallVector<int64_t, 3>;
  static const std::vector<Sizes> choices = {
      {2},       {3},       {4},       {6},    {8},    {2, 2},
      {2, 3},    {3, 2},    {2, 4},    {4, 2}, {2, 6}, {3, 3},
      {2, 2, 2}, {1, 2, 3}, {2, 3, 2}, {12},   {4, 4}, {2, 2, 2, 2}};
  // Ways to split a mesh axis of the given size into sub-axes. The numbers are
  // the products of the sizes of the first sub-axis, the first two sub-axes,
  // and so on: an axis of size 8 with {2, 4} has three sub-axes of size 2. So
  // each number divides the next one.
  static const std::vector<std::pair<int64_t, Sizes>> cuts = {
      {4, {2}},    {6, {2}},    {6, {3}},     {8, {2}},     {8, {4}},
      {8, {2, 4}}, {8, {2, 4}}, {12, {2, 6}}, {12, {3, 6}}, {12, {4}}};
  const Sizes &sizes = random.pick(choices);
  Mesh mesh;
  mesh.name = FlatSymbolRefAttr::get(context, "m");
  SmallVector<MeshAxisAttr> axes;
  const char *names[] = {"x", "y", "z", "w"};
  for (auto [index, size] : llvm::enumerate(sizes)) {
    auto name = StringAttr::get(context, names[index]);
    axes.push_back(MeshAxisAttr::get(context, name, size));
    SmallVector<Sizes> possible;
    for (const auto &[of, cut] : cuts)
      if (of == size)
        possible.push_back(cut);
    auto &parts = mesh.parts.emplace_back();
    if (possible.empty() || random.chance(1, 4)) {
      parts.push_back(AxisRefAttr::get(context, name, 1, 0));
      continue;
    }
    Sizes cut = random.pick(possible);
    cut.push_back(size);
    int64_t at = 1;
    for (int64_t next : cut) {
      parts.push_back(AxisRefAttr::get(context, name, at, next / at));
      at = next;
    }
  }
  mesh.attr = MeshAttr::get(context, axes);
  return mesh;
}

ShardingAttr cleave::random::randomSharding(Random &random, const Mesh &mesh,
                                            RankedTensorType type,
                                            bool mayBePartial) {
  MLIRContext *context = type.getContext();
  SmallVector<AxisRefAttr> units;
  for (const auto &parts : mesh.parts) {
    if (parts.size() > 1 && random.chance(1, 4))
      units.push_back(AxisRefAttr::get(context, parts[0].getName(), 1, 0));
    else
      llvm::append_range(units, parts);
  }
  random.shuffle(units);
  int64_t rank = type.getRank();
  SmallVector<SmallVector<AxisRefAttr>> dims(rank);
  SmallVector<AxisRefAttr> partial, replicated;
  for (AxisRefAttr unit : units) {
    int64_t place = random.below(100);
    if (place < 55 && rank > 0) {
      // Dimensions of size 1 are sharded, too, but rarely.
      int64_t dim = random.below(rank);
      if (type.getDimSize(dim) == 1 && !random.chance(1, 3))
        dim = random.below(rank);
      dims[dim].push_back(unit);
    } else if (place >= 60 && place < 72 && mayBePartial) {
      partial.push_back(unit);
    } else if (place >= 94) {
      replicated.push_back(unit);
    }
  }
  SmallVector<DimShardingAttr> attrs;
  for (const auto &axes : dims)
    attrs.push_back(DimShardingAttr::get(context, axes, random.chance(1, 3)));
  int64_t kind =
      partial.empty() ? 0 : std::max<int64_t>(0, random.below(6) - 3);
  return ShardingAttr::get(context, mesh.name, attrs,
                           kind == 0   ? ReduceKind::Sum
                           : kind == 1 ? ReduceKind::Max
                                       : ReduceKind::Min,
                           partial, replicated,
                           random.chance(1, 6) ? random.between(1, 2) : 0);
}
