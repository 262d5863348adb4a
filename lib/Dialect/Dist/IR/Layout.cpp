//===- Layout.cpp - compact representation of shardings -------------------===//

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/bit.h"
#include <set>

using namespace mlir;
using namespace cleave::dist;

Axes cleave::dist::listOf(AxisSet set) {
  Axes axes;
  for (; set; set &= set - 1)
    axes.push_back(llvm::countr_zero(set));
  return axes;
}

AxisSet Layout::split() const {
  AxisSet set = 0;
  for (const Axes &axes : dims)
    set |= setOf(axes);
  return set;
}

Layout Layout::reduced() const {
  Layout result = *this;
  result.partial = 0;
  result.kind = ReduceKind::Sum;
  return result;
}

MeshAxes::MeshAxes(FlatSymbolRefAttr name, MeshAttr mesh,
                   ArrayRef<AxisRefAttr> refs)
    : symbol(name), meshAttr(mesh) {
  for (MeshAxisAttr axis : mesh.getAxes()) {
    // The cuts that divide the mesh axis into atoms, the parts that are never
    // split further. A cut c says that the axis is the product of a major part
    // of size c and a minor part. Each cut must divide the next one; otherwise
    // the atoms would not be a factorization of the axis.
    std::set<int64_t> cuts = {1, axis.getSize()};
    for (AxisRefAttr ref : refs)
      if (ref.getName() == axis.getName() && !ref.isWhole()) {
        cuts.insert(ref.getPre());
        cuts.insert(ref.getPre() * ref.getSize());
      }
    int64_t at = 1;
    for (int64_t cut : cuts) {
      if (cut == at || cut % at != 0)
        continue;
      atoms.push_back(
          canonicalAxis(mesh, AxisRefAttr::get(mesh.getContext(),
                                               axis.getName(), at, cut / at)));
      sizes.push_back(cut / at);
      at = cut;
    }
  }
}

FailureOr<MeshAxes> MeshAxes::of(Operation *module) {
  MeshOp found;
  bool many = false;
  llvm::SetVector<AxisRefAttr> refs;
  AttrTypeWalker walker;
  walker.addWalk([&](AxisRefAttr ref) { refs.insert(ref); });
  module->walk([&](Operation *op) {
    if (auto mesh = dyn_cast<MeshOp>(op)) {
      many |= found != nullptr;
      found = mesh;
      return;
    }
    for (NamedAttribute attr : op->getAttrs())
      walker.walk(attr.getValue());
  });
  if (!found)
    return module->emitError("there is no dist.mesh in the module"), failure();
  if (many)
    return found->emitError(
               "there is a second dist.mesh; a module is partitioned on one"),
           failure();
  auto name = FlatSymbolRefAttr::get(found.getSymNameAttr());
  MeshAxes axes(name, found.getMesh(), refs.getArrayRef());
  // Each sub-axis must be a product of consecutive atoms (the parts into which
  // the constructor has divided the mesh axis). This fails if two sub-axes
  // split an axis in ways that do not nest, such as 2 x 3 and 3 x 2.
  for (AxisRefAttr ref : refs)
    if (axes.size(axes.decompose(ref)) != axisSize(found.getMesh(), ref))
      return found->emitError("sub-axis ")
                 << ref
                 << " crosses another one of the same axis; they must nest",
             failure();
  if (axes.count() > 64)
    return found->emitError("the mesh has ")
               << axes.count() << " axes and parts of axes, at most 64",
           failure();
  return axes;
}

int64_t MeshAxes::size(ArrayRef<Axis> axes) const {
  int64_t size = 1;
  for (Axis axis : axes)
    size *= sizes[axis];
  return size;
}

Axes MeshAxes::decompose(AxisRefAttr ref) const {
  Axes axes;
  int64_t begin = ref.getPre(), end = begin * axisSize(meshAttr, ref);
  for (auto [index, atom] : llvm::enumerate(atoms))
    if (atom.getName() == ref.getName() && atom.getPre() >= begin &&
        atom.getPre() < end && atom.getPre() * sizes[index] <= end)
      axes.push_back(index);
  return axes;
}

Axes MeshAxes::decompose(ArrayRef<AxisRefAttr> refs) const {
  Axes axes;
  for (AxisRefAttr ref : refs)
    llvm::append_range(axes, decompose(ref));
  return axes;
}

Axes MeshAxes::named(StringRef axis) const {
  Axes axes;
  for (auto [index, atom] : llvm::enumerate(atoms))
    if (atom.getName() == axis)
      axes.push_back(index);
  return axes;
}

AxisListAttr MeshAxes::list(ArrayRef<Axis> axes) const {
  SmallVector<AxisRefAttr> refs;
  for (Axis axis : axes)
    refs.push_back(atoms[axis]);
  return AxisListAttr::get(meshAttr.getContext(),
                           canonicalAxes(meshAttr, refs));
}

Layout MeshAxes::layout(ShardingAttr sharding) const {
  Layout layout;
  for (DimShardingAttr dim : sharding.getDims())
    layout.dims.push_back(decompose(dim.getAxes()));
  layout.partial = setOf(decompose(sharding.getPartial()));
  if (layout.partial)
    layout.kind = sharding.getPartialKind();
  return layout;
}

ShardingAttr MeshAxes::sharding(const Layout &layout,
                                ArrayRef<bool> open) const {
  MLIRContext *context = meshAttr.getContext();
  SmallVector<DimShardingAttr> dims;
  for (auto [index, axes] : llvm::enumerate(layout.dims))
    dims.push_back(DimShardingAttr::get(context, list(axes).getAxes(),
                                        index < open.size() && open[index]));
  return ShardingAttr::get(context, symbol, dims, layout.kind,
                           list(layout.partial).getAxes(),
                           ArrayRef<AxisRefAttr>(), 0);
}

SmallVector<int64_t> MeshAxes::tile(const Layout &layout,
                                    ArrayRef<int64_t> shape) const {
  SmallVector<int64_t> tile;
  for (auto [extent, axes] : llvm::zip_equal(shape, layout.dims))
    tile.push_back(tileSize(extent, size(axes)));
  return tile;
}

RankedTensorType MeshAxes::tile(const Layout &layout,
                                RankedTensorType type) const {
  return type.clone(tile(layout, type.getShape()));
}

bool MeshAxes::nests(int64_t extent, ArrayRef<Axis> major,
                     ArrayRef<Axis> minor) const {
  int64_t outer = size(major), inner = size(minor);
  return outer == 1 ||
         tileSize(extent, outer) == inner * tileSize(extent, outer * inner);
}

AxisSet MeshAxes::exchangeAxes(ArrayRef<int64_t> shape, const Layout &from,
                               const Layout &to) const {
  AxisSet axes = from.partial ^ to.partial;
  for (auto [extent, have, want] : llvm::zip_equal(shape, from.dims, to.dims)) {
    size_t keep = 0;
    while (keep < have.size() && keep < want.size() && have[keep] == want[keep])
      ++keep;
    ArrayRef<Axis> a = have, b = want;
    while (keep > 0 &&
           !(nests(extent, a.take_front(keep), a.drop_front(keep)) &&
             nests(extent, b.take_front(keep), b.drop_front(keep))))
      --keep;
    axes |= setOf(a.drop_front(keep)) | setOf(b.drop_front(keep));
  }
  return axes;
}
