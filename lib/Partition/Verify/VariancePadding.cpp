//===- VariancePadding.cpp - padding through operations -------------------===//
//
// Tracks padding along dimensions through operations. If an operation reduces
// along a dimension with padding, the padding must contain the identity of the
// reduction. A mask (PadMask.h) writes it there; the mask is recognized by its
// form and checked against the tracked size of the dimension.
//
//===----------------------------------------------------------------------===//

#include "cleave/Partition/Verify/VariancePadding.h"
#include "cleave/Partition/Utils/PadMask.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/LocalPlan.h"
#include "cleave/Partition/Propagation/FactorGraph.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

//===----------------------------------------------------------------------===//
// Extents of values
//===----------------------------------------------------------------------===//

std::string cleave::partition::axisName(const MeshAxes &mesh, Axis axis) {
  std::string text;
  llvm::raw_string_ostream out(text);
  AxisRefAttr ref = mesh.ref(axis);
  out << ref.getName();
  if (!ref.isWhole())
    out << ":(" << ref.getPre() << ")" << ref.getSize();
  return text;
}

bool cleave::partition::isZero(Attribute filler) {
  if (auto number = dyn_cast_or_null<FloatAttr>(filler))
    return number.getValue().isZero();
  auto integer = dyn_cast_or_null<IntegerAttr>(filler);
  return integer && integer.getValue().isZero();
}

const Extent &Padding::at(Value value, int64_t dim) const {
  static const Extent real;
  auto it = extents.find(value);
  return it == extents.end() ? real : it->second[dim];
}

Extents Padding::all(Value value) const {
  auto it = extents.find(value);
  if (it != extents.end())
    return it->second;
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return Extents(type ? type.getRank() : 0);
}

void Padding::set(Value value, Extents given) {
  if (llvm::all_of(given, [](const Extent &extent) {
        return extent.kind == Extent::Real;
      }))
    extents.erase(value);
  else
    extents[value] = std::move(given);
}

Extents Padding::declared(ShardingAttr sharding,
                          ArrayRef<int64_t> whole) const {
  Extents result(whole.size());
  Layout layout = mesh.layout(sharding);
  for (auto [extent, size, axes] :
       llvm::zip_equal(result, whole, layout.dims)) {
    int64_t ways = mesh.size(axes);
    if (tileSize(size, ways) * ways != size)
      extent = Extent::padded(size, ways, counted(axes));
  }
  return result;
}

/// Whether some axis may split the dimension.
bool Padding::isSplit(Value value, int64_t dim) const {
  auto it = states.find(value);
  return it == states.end() ||
         llvm::any_of(it->second, [&](const AxisState &state) {
           return state.isSplitOn(dim) || state.kind == AxisState::Varying ||
                  state.maybe;
         });
}

/// Returns the extent of a dimension (its unsharded size and padding). If the
/// dimension has no padding and the axes that split it are known, also computes
/// the unsharded size: the local size times the number of ranks that split the
/// dimension.
Extent Padding::sized(Value value, int64_t dim) const {
  Extent extent = at(value, dim);
  auto it = states.find(value);
  if (extent.kind != Extent::Real || it == states.end())
    return extent;
  for (auto [axis, state] : llvm::enumerate(it->second)) {
    bool whole = state.kind == AxisState::Invariant && !state.dims;
    bool terms = state.kind == AxisState::Partial && !state.maybe;
    if (!whole && !terms && !state.isSurelySplit())
      return extent;
    if (state.isSplitOn(dim))
      extent.axes.push_back(axis);
  }
  extent.axes = counted(extent.axes);
  extent.ways = mesh.size(extent.axes);
  extent.size = extent.ways * typeOf(value).getDimSize(dim);
  return extent;
}

/// The axes with more than one rank.
Axes Padding::counted(ArrayRef<Axis> axes) const {
  return Axes(llvm::make_filter_range(
      axes, [&](Axis axis) { return mesh.size(axis) != 1; }));
}

std::string Padding::describe(const Extent &extent) const {
  std::string text = (Twine(extent.size) + " elements").str();
  if (extent.ways == 1)
    return text;
  if (!extent.placed)
    return text + " split " + std::to_string(extent.ways) + " ways";
  text += extent.axes.size() == 1 ? " split by axis " : " split by axes ";
  llvm::raw_string_ostream out(text);
  llvm::interleaveComma(extent.axes, out,
                        [&](Axis axis) { out << axisName(mesh, axis); });
  return text;
}

/// Merges what is known of two dimensions that have the same layout, as what
/// holds for one also holds for the other.
bool Padding::join(Extent &into, const Extent &other) {
  auto rank = [](const Extent &extent) {
    return extent.kind == Extent::Real
               ? 0
               : extent.kind; // Free, Unknown, Windows, Padded.
  };
  if (into.kind == Extent::Padded && other.kind == Extent::Padded) {
    bool alike = into.size == other.size && into.ways == other.ways &&
                 (!into.placed || !other.placed || into.axes == other.axes);
    if (!into.placed) {
      into.axes = other.axes;
      into.placed = other.placed;
    }
    if (into.filler != other.filler)
      into.filler = {};
    return alike;
  }
  if (into.kind == Extent::Windows && other.kind == Extent::Windows &&
      (into.size != other.size || into.axes != other.axes)) {
    into = Extent::of(Extent::Unknown);
    return true;
  }
  // The dimensions have tiles of equal size. If all tiles of one are full and
  // the last tiles of the other end in padding, the unsharded sizes differ.
  auto differ = [](const Extent &real, const Extent &padded) {
    return real.kind == Extent::Real && real.size != 0 &&
           padded.kind == Extent::Padded && real.size != padded.size;
  };
  if (differ(into, other) || differ(other, into))
    return false;
  // The two dimensions are sharded alike, so both have the same padding. If one
  // is known to have no padding, the other has none either.
  if (into.kind == Extent::Free ||
      (other.kind != Extent::Free && rank(other) > rank(into)))
    into = other;
  into.filler = {};
  return true;
}

/// Rejects dynamic shapes, whose tiles cannot be checked against the whole.
static LogicalResult mustBeStatic(Location loc, const Twine &what, Type local,
                                  Type whole) {
  for (Type type : {local, whole})
    if (auto tensor = dyn_cast_or_null<ShapedType>(type);
        tensor && !tensor.hasStaticShape())
      return emitError(loc)
             << what << " is of type " << type
             << "; expected sizes that are known before the program runs";
  return success();
}

LogicalResult Padding::enter(func::FuncOp func) {
  for (BlockArgument argument : func.getArguments()) {
    unsigned index = argument.getArgNumber();
    auto sharding =
        func.getArgAttrOfType<ShardingAttr>(index, kShardingAttrName);
    auto whole = func.getArgAttrOfType<TypeAttr>(index, kGlobalTypeAttrName);
    if (!sharding)
      continue;
    if (failed(mustBeStatic(
            argument.getLoc(),
            "argument " + Twine(index) + " of @" + func.getName(),
            argument.getType(), whole ? whole.getValue() : Type())))
      return failure();
    if (whole) {
      auto type = cast<RankedTensorType>(whole.getValue());
      if (mesh.tile(mesh.layout(sharding), type).getShape() !=
          typeOf(argument).getShape())
        return emitError(argument.getLoc())
               << "argument " << index << " of @" << func.getName() << " is "
               << argument.getType()
               << ", but the tile that its sharding cuts of its "
                  "dist.global_type is "
               << mesh.tile(mesh.layout(sharding), type);
      set(argument, declared(sharding, type.getShape()));
      continue;
    }
    Extents given;
    for (const Axes &axes : mesh.layout(sharding).dims)
      given.push_back(
          Extent::of(axes.empty() ? Extent::Real : Extent::Unknown));
    set(argument, std::move(given));
  }
  return success();
}

LogicalResult Padding::leave(func::FuncOp func) const {
  Operation *terminator = func.getBody().front().getTerminator();
  for (auto [index, operand] : llvm::enumerate(terminator->getOperands())) {
    auto sharding =
        func.getResultAttrOfType<ShardingAttr>(index, kShardingAttrName);
    auto attr = dyn_cast_or_null<TypeAttr>(
        func.getResultAttr(index, kGlobalTypeAttrName));
    if (!attr || !sharding)
      continue;
    if (failed(mustBeStatic(operand.getLoc(),
                            "result " + Twine(index) + " of @" + func.getName(),
                            operand.getType(), attr.getValue())))
      return failure();
    auto whole = cast<RankedTensorType>(attr.getValue());
    Layout layout = mesh.layout(sharding);
    if (mesh.tile(layout, whole).getShape() != typeOf(operand).getShape())
      return emitError(operand.getLoc())
             << "result " << index << " of @" << func.getName() << " is "
             << operand.getType()
             << ", but the tile that its sharding cuts of its dist.global_type "
                "is "
             << mesh.tile(layout, whole);
    for (unsigned dim = 0; dim < whole.getRank(); ++dim) {
      Extent extent = sized(operand, dim);
      Axes axes = counted(layout.dims[dim]);
      Extent want =
          Extent::padded(whole.getDimSize(dim), mesh.size(axes), axes);
      bool padded = extent.kind == Extent::Padded;
      bool known = padded || (extent.kind == Extent::Real && extent.size != 0);
      if (known && (extent.size != want.size ||
                    (padded && (extent.ways != want.ways ||
                                (extent.placed && extent.axes != want.axes)))))
        return emitError(operand.getLoc())
               << "result " << index << " of @" << func.getName()
               << " has a dimension " << dim << " of " << describe(extent)
               << "; expected " << describe(want)
               << ", as its dist.global_type and sharding say";
    }
  }
  return success();
}

void Padding::visitConstant(Operation *op) {
  for (Value result : op->getResults())
    if (auto type = dyn_cast<RankedTensorType>(result.getType()))
      set(result, Extents(type.getRank(), Extent::of(Extent::Free)));
}

void Padding::slice(Value whole, Value element) {
  Extents extents = all(whole);
  extents.erase(extents.begin());
  set(element, std::move(extents));
}

void Padding::stack(Value element, Value whole) {
  Extents extents = all(element);
  extents.insert(extents.begin(), Extent());
  extents.front().size = typeOf(whole).getDimSize(0);
  set(whole, std::move(extents));
}

void Padding::carry(Value init, Value argument) {
  Extents given = all(init);
  for (auto [dim, extent] : llvm::enumerate(given)) {
    extent.filler = {};
    // Until the yielded value has been visited, it is not known whether the
    // carried value is padded: a constant may stand for a tile or for a whole
    // tensor, and tiles of unknown size may have padding.
    if (extent.kind == Extent::Free ||
        (extent.kind == Extent::Real && sized(init, dim).size == 0) ||
        extent.kind == Extent::Windows)
      extent.kind = Extent::Unknown;
  }
  set(argument, std::move(given));
}

LogicalResult Padding::merge(Operation *op, Value value, Value yielded) {
  Extents merged = all(value);
  for (auto [dim, extent] : llvm::enumerate(merged)) {
    extent = sized(value, dim);
    Extent before = extent, other = sized(yielded, dim);
    if (!join(extent, other))
      return op->emitOpError("carries a dimension ")
             << dim << " of " << describe(before) << " that is yielded with "
             << describe(other);
    if (extent.kind == Extent::Real)
      extent = Extent();
  }
  set(value, std::move(merged));
  return success();
}

bool Padding::learn(Value argument, Value result) {
  bool more = false;
  Extents known = all(argument);
  for (auto [extent, after] : llvm::zip_equal(known, all(result)))
    if (extent.kind == Extent::Unknown && after.kind == Extent::Padded) {
      extent = after;
      extent.filler = {};
      more = true;
    }
  if (more)
    set(argument, std::move(known));
  return more;
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

std::optional<Padding::Mask> Padding::maskOf(arith::SelectOp op) const {
  std::optional<PadMask> mask = PadMask::of(op);
  if (!mask)
    return std::nullopt;
  return Mask{mask->dim, mask->size, mask->tile,
              counted(mesh.decompose(mask->axes.getAxes())), mask->filler};
}

LogicalResult Padding::visitMask(arith::SelectOp op, const Mask &mask) {
  Value value = op.getTrueValue();
  Extents result = all(value);
  Extent &extent = result[mask.dim];
  int64_t tile = typeOf(value).getDimSize(mask.dim),
          ways = mesh.size(mask.axes);
  Extent said = Extent::padded(mask.size, ways, mask.axes, mask.filler);
  auto wrong = [&](const Twine &expected) {
    return op.emitOpError("masks dimension ")
           << mask.dim << " of type " << value.getType() << " as one of "
           << describe(said) << " into tiles of " << mask.tile << "; expected "
           << expected;
  };
  if (mask.tile != tile)
    return wrong("the offset to be counted in tiles of " + Twine(tile) +
                 ", as the dimension has");
  switch (extent.kind) {
  case Extent::Padded:
    if (extent.size != mask.size || extent.ways != ways ||
        (extent.placed && extent.axes != mask.axes))
      return wrong(describe(extent) + ", as the dimension has");
    if (!extent.placed)
      return wrong("the mask before the tiles are sent to ranks that no order "
                   "of axes numbers");
    break;
  case Extent::Real:
    if (mask.size < tile * ways)
      return wrong(
          "no mask: the dimension has no padding, and elements would be lost");
    break;
  case Extent::Free:
  case Extent::Unknown:
  case Extent::Windows:
    if (tileSize(mask.size, ways) != tile)
      return wrong("a size of which a tile has " + Twine(tile) + " elements");
    if (auto it = states.find(value); it != states.end())
      for (unsigned axis = 0; axis < mesh.count(); ++axis) {
        const AxisState &state = it->second[axis];
        bool counted = llvm::is_contained(mask.axes, Axis(axis));
        if (counted ? state.isSurelySplit() && !state.isSplitOn(mask.dim)
                    : state.isSurelySplitOn(mask.dim))
          return wrong("the axes that split the dimension: it is " +
                       state.str() + " over axis " + axisName(mesh, axis));
      }
    break;
  }
  // Some elements are padding both along this dimension and along another one.
  // The mask has replaced them, too, so the content of the other dimension's
  // padding is known only if it equals the mask's filler.
  for (Extent &other : result)
    if (other.filler != mask.filler)
      other.filler = {};
  if (extent.kind != Extent::Real)
    extent = said;
  set(op.getResult(), std::move(result));
  return success();
}
