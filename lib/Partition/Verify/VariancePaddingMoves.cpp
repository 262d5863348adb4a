//===- VariancePaddingMoves.cpp - padding through moves -------------------===//
//
// Determines the extents of dimensions (their unsharded sizes and padding)
// after collectives, slices, reshapes, and reads of elements at given indices.
//
//===----------------------------------------------------------------------===//

#include "cleave/Partition/Verify/VariancePadding.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/ValueUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

static int64_t extentOf(Value value, int64_t dim) {
  return typeOf(value).getDimSize(dim);
}

/// On each rank, `from` elements of a dimension are split by `axes` into tiles
/// of `to` elements. Returns the extent of the dimension after the split.
Extent Padding::splitBy(Extent extent, int64_t from, int64_t to,
                        ArrayRef<Axis> axes, bool isSplit) const {
  int64_t ways = mesh.size(axes);
  bool nests = to * ways == from;
  if (extent.kind == Extent::Real) {
    if (nests)
      return extent;
    return isSplit ? Extent::of(Extent::Unknown)
                   : Extent::padded(from, ways, axes);
  }
  if (extent.kind != Extent::Padded)
    return Extent::of(extent.kind == Extent::Windows ? Extent::Unknown
                                                     : extent.kind);
  if (!nests && extent.ways != 1)
    return Extent::of(Extent::Unknown);
  extent.ways *= ways;
  llvm::append_range(extent.axes, axes);
  return extent.ways * to == extent.size ? Extent() : extent;
}

/// Returns the extent of a dimension after an all-gather over `axes`, which
/// leaves `to` elements on each rank.
Extent Padding::gatheredBy(Extent extent, int64_t to,
                           ArrayRef<Axis> axes) const {
  if (extent.kind != Extent::Padded)
    return Extent::of(extent.kind == Extent::Windows ? Extent::Unknown
                                                     : extent.kind);
  int64_t ways = mesh.size(axes);
  ArrayRef<Axis> have = extent.axes;
  bool ends = extent.placed ? have.size() >= axes.size() &&
                                  have.take_back(axes.size()) == axes
                            : extent.ways % ways == 0;
  if (!ends)
    return Extent::of(Extent::Unknown);
  extent.ways /= ways;
  extent.axes.truncate(extent.placed ? have.size() - axes.size() : 0);
  extent.placed |= extent.ways == 1;
  return extent.ways * to == extent.size ? Extent() : extent;
}

/// Determines the extent of the result of a dist.window, which gives each rank
/// a window (a range of elements, such as its tile and a halo) of a sharded
/// dimension. Does not check where the windows begin: whether they have the
/// elements that their reader needs can only be tested by running the program.
LogicalResult Padding::visitWindow(WindowOp op, Extent &extent,
                                   ArrayRef<Axis> axes) const {
  int64_t dim = op.getDim(), size = op.getSize(), ways = mesh.size(axes);
  int64_t tile = extentOf(op->getOperand(0), dim),
          length = extentOf(op->getResult(0), dim);
  bool fits = extent.kind == Extent::Padded
                  ? extent.size == size && extent.ways == ways &&
                        (!extent.placed || ArrayRef<Axis>(extent.axes) == axes)
              : extent.kind == Extent::Real ? tile * ways == size
                                            : true;
  if (!fits) {
    if (extent.kind == Extent::Real)
      extent = Extent::padded(tile * ways, ways, axes);
    return op->emitOpError("takes windows of dimension ")
           << dim << " as one of " << size << " elements; expected "
           << describe(extent) << ", as the operand has";
  }
  int64_t whole = op.getWhole(), base = op.getBase(), step = op.getStep(),
          stride = op.getStride();
  // A slice of a single element.
  if (step == 0 && length == 1 && whole == 1) {
    extent = Extent();
    return success();
  }
  extent = Extent::padded(whole, ways, axes);
  extent.kind = Extent::Windows;
  extent.placed = step != 0;
  if (step != length * stride || tileSize(whole, ways) != length)
    return success();
  // If each window begins where the window of the previous rank ends, the
  // windows are the tiles of a dimension of `whole` elements. Elements of a
  // window that are outside of the operand's dimension are zero.
  extent = tileOf(extent, length);
  int64_t first = base + whole * stride,
          last = base + (length * ways - 1) * stride;
  if (extent.kind == Extent::Padded &&
      (std::min(first, last) >= size || std::max(first, last) < 0))
    extent.filler = Builder(op.getContext())
                        .getZeroAttr(typeOf(op->getResult(0)).getElementType());
  return success();
}

/// Updates an extent after tiles were permuted among ranks. Before the
/// permutation, a rank's coordinates on `extent.axes` give the number of its
/// tile. Replaces these axes by axes on which the coordinates of each rank give
/// the number of the tile that the rank received. If there are no such axes,
/// `placed` becomes false.
void Padding::permute(Extent &extent, ArrayRef<int64_t> pairs,
                      ArrayRef<Axis> axes) const {
  auto moves = [&](Axis axis) { return llvm::is_contained(axes, axis); };
  if (llvm::none_of(extent.axes, moves))
    return;
  if (extent.kind == Extent::Windows)
    extent = Extent::of(Extent::Unknown);
  if (extent.kind != Extent::Padded)
    return;
  int64_t count = mesh.size(axes);
  SmallVector<int64_t> source(count, -1);
  for (size_t i = 0; i < pairs.size(); i += 2)
    source[pairs[i + 1]] = pairs[i];
  auto coordinate = [&](int64_t index, Axis axis) {
    for (Axis minor : llvm::reverse(axes)) {
      if (minor == axis)
        break;
      index /= mesh.size(minor);
    }
    return index % mesh.size(axis);
  };
  // Only axes of the permutation's group can be replaced. So each run of such
  // axes in `extent.axes` is replaced by a run with as many ranks, and all
  // other axes keep their positions in the list.
  Axes placed;
  bool found = !llvm::is_contained(source, -1);
  for (size_t begin = 0; found && begin < extent.axes.size();) {
    if (!moves(extent.axes[begin])) {
      placed.push_back(extent.axes[begin++]);
      continue;
    }
    Axes run;
    while (begin < extent.axes.size() && moves(extent.axes[begin]))
      run.push_back(extent.axes[begin++]);
    SmallVector<int64_t> numbers(count, 0);
    for (int64_t target = 0; target < count; ++target)
      for (Axis axis : run)
        numbers[target] = numbers[target] * mesh.size(axis) +
                          coordinate(source[target], axis);
    Axes minorFirst;
    for (int64_t stride = 1; found && stride < mesh.size(run);) {
      const Axis *next = llvm::find_if(axes, [&](Axis axis) {
        for (int64_t target = 0; target < count; ++target)
          if (numbers[target] / stride % mesh.size(axis) !=
              coordinate(target, axis))
            return false;
        return mesh.size(run) % (stride * mesh.size(axis)) == 0;
      });
      found = next != axes.end();
      if (found) {
        minorFirst.push_back(*next);
        stride *= mesh.size(*next);
      }
    }
    placed.append(minorFirst.rbegin(), minorFirst.rend());
  }
  extent.placed = found;
  extent.axes = found ? placed : Axes();
}

LogicalResult Padding::visitCollective(Operation *op, ArrayRef<Axis> group) {
  Axes axes = counted(group);
  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    Value input = op->getOperand(index);
    if (auto exchange = dyn_cast<ExchangeOp>(op)) {
      auto whole = cast<RankedTensorType>(
          cast<TypeAttr>(exchange.getGlobal()[index]).getValue());
      for (unsigned dim = 0; dim < whole.getRank(); ++dim)
        if (Extent extent = sized(input, dim);
            (extent.kind == Extent::Padded ||
             (extent.kind == Extent::Real && extent.size != 0)) &&
            extent.size != whole.getDimSize(dim))
          return op->emitOpError("operand ")
                 << index << " has a dimension " << dim << " of "
                 << describe(extent) << ", expected " << whole.getDimSize(dim)
                 << ", as the type of the whole says";
      set(result, declared(cast<ShardingAttr>(exchange.getTo()[index]),
                           whole.getShape()));
      continue;
    }
    bool known = extents.contains(input);
    Extents extents = all(input);
    // A reduction keeps the content of padding if it is zero and the reduction
    // is a sum, or if all ranks have the same content and the reduction is a
    // maximum or minimum. A rank that receives nothing has zeros.
    ReduceKind kind = ReduceKind::Sum;
    if (auto reduce = dyn_cast<AllReduceOp>(op))
      kind = reduce.getKind();
    if (auto scatter = dyn_cast<ReduceScatterOp>(op))
      kind = scatter.getKind();
    for (Extent &extent : extents)
      if (kind == ReduceKind::Sum && !isZero(extent.filler) &&
          !isa<AllGatherOp, AllToAllOp>(op))
        extent.filler = {};
    auto split = [&](int64_t dim) {
      extents[dim] = splitBy(extents[dim], extentOf(input, dim),
                             extentOf(result, dim), axes, isSplit(input, dim));
    };
    auto gather = [&](int64_t dim) {
      extents[dim] = gatheredBy(extents[dim], extentOf(result, dim), axes);
    };
    if (auto scatter = dyn_cast<ReduceScatterOp>(op))
      split(scatter.getDims()[index]);
    if (auto all = dyn_cast<AllGatherOp>(op))
      gather(all.getDims()[index]);
    if (auto all = dyn_cast<AllToAllOp>(op)) {
      split(all.getSplitDims()[index]);
      gather(all.getConcatDims()[index]);
    }
    if (auto window = dyn_cast<WindowOp>(op);
        window && failed(visitWindow(window, extents[window.getDim()], axes)))
      return failure();
    if (auto permute = dyn_cast<CollectivePermuteOp>(op); permute && known)
      for (Extent &extent : extents)
        this->permute(extent, permute.getPairs(), axes);
    set(result, std::move(extents));
  }
  return success();
}

void Padding::visitPlace(Operation *op, ArrayRef<Axis> group) {
  Axes axes = counted(group);
  if (op->getNumOperands() == 0)
    return;
  Value input = op->getOperand(0), result = op->getResult(0);
  Extents extents = all(input);
  if (auto slice = dyn_cast<dist::SliceOp>(op)) {
    int64_t dim = slice.getDim();
    extents[dim] = splitBy(extents[dim], extentOf(input, dim),
                           extentOf(result, dim), axes, isSplit(input, dim));
  } else {
    for (Extent &extent : extents)
      if (!isZero(extent.filler))
        extent.filler = {};
  }
  set(result, std::move(extents));
}

/// Determines the extents of a result's dimensions (their unsharded sizes and
/// padding) after a reshape. A result dimension gets the extent of an operand
/// dimension if both have the same local size and the same product of the local
/// sizes before them. If an operand dimension has the local size 1, several
/// result dimensions may correspond to it, and their extents are unknown.
LogicalResult Padding::visitReshape(Operation *op) {
  Value input = op->getOperand(0), result = op->getResult(0);
  auto known = extents.find(input);
  if (known == extents.end()) {
    set(result, all(result));
    return success();
  }
  Extents from = known->second;
  auto fromShape = typeOf(input).getShape();
  auto toShape = typeOf(result).getShape();
  bool allFree = llvm::all_of(
      from, [](const Extent &e) { return e.kind == Extent::Free; });
  Extents to(toShape.size(), Extent::of(allFree ? Extent::Free : Extent::Real));
  int64_t before = 1;
  for (auto [dim, size] : llvm::enumerate(fromShape)) {
    int64_t begin = before, end = before *= size;
    if (allFree || from[dim].kind == Extent::Real)
      continue;
    int64_t place = 1;
    for (auto [other, extent] : llvm::enumerate(toShape)) {
      int64_t otherBegin = place, otherEnd = place *= extent;
      if (otherBegin == begin && extent == size && size > 1)
        to[other] = from[dim];
      else if (size > 1 && extent > 1
                   ? otherBegin < end && otherEnd > begin
                   : otherBegin <= end && otherEnd >= begin) {
        if (from[dim].kind == Extent::Padded && size > 1 && extent > 1)
          return op->emitOpError("merges or divides dimension ")
                 << dim << " of type " << input.getType() << ", of "
                 << describe(from[dim])
                 << ", which ends in padding; expected a dimension without: "
                    "gathered and cut to "
                 << from[dim].size << " elements (nn.slice)";
        to[other] = Extent::of(Extent::Unknown);
      }
    }
  }
  set(result, std::move(to));
  return success();
}

namespace {

/// An index value of the form `subi index, offset`, where `offset` is the
/// offset of the rank's tile.
struct LocalIndex {
  Value index;
  TileOffsetOp offset;

  explicit LocalIndex(Value value) {
    auto sub = value.getDefiningOp<arith::SubIOp>();
    if (!sub)
      return;
    index = sub.getLhs();
    Value begin = sub.getRhs();
    if (auto broadcast = begin.getDefiningOp<nn::BroadcastOp>())
      begin = broadcast.getInput();
    if (auto narrow = begin.getDefiningOp<arith::TruncIOp>())
      begin = narrow.getIn();
    offset = begin.getDefiningOp<TileOffsetOp>();
  }
};

} // namespace

std::optional<Lookup> Lookup::of(Operation *op) {
  if (auto gather = dyn_cast<nn::GatherOp>(op))
    return Lookup{0, 1, int64_t(gather.getDim())};
  if (isa<nn::GroupedDotOp>(op))
    return Lookup{1, 2, 0};
  return std::nullopt;
}

/// Checks an operation that reads elements at given indices of a dimension that
/// ends in padding. It must not read padding: indices must be less than the
/// unsharded size, or those that are not must be replaced by an index outside
/// of all tiles.
LogicalResult Padding::visitLookup(Operation *op, const Lookup &lookup,
                                   Extents &result) const {
  Value table = op->getOperand(lookup.table),
        indices = op->getOperand(lookup.indices);
  int64_t dim = lookup.dim, tile = extentOf(table, dim);
  // True for a gather whose indices are a list (a tensor of rank 1). It can
  // move elements to other positions along the dimension. So it can select the
  // rank's tile from a window, or place the tile among zeros.
  bool places = isa<nn::GatherOp>(op) && typeOf(indices).getRank() == 1;
  const Extent &extent = at(table, dim);
  // If the dimension is a window that dist.window gave the rank, the gather can
  // select the rank's tile from this window. The tile may begin at a different
  // position in the window of each rank.
  if (extent.kind == Extent::Windows && places) {
    Extent windows = extent;
    windows.placed = true;
    result[dim] = tileOf(windows, extentOf(indices, 0));
  }
  if (extent.kind != Extent::Padded)
    return success();
  auto wrong = [&](const Twine &expected) {
    return op->emitOpError("reads dimension ")
           << dim << " of type " << table.getType() << ", of "
           << describe(extent)
           << ", whose last tiles end in padding, by index; expected "
           << expected;
  };
  // select(index < N, index - offset, -1).
  auto choice = indices.getDefiningOp<arith::SelectOp>();
  LocalIndex local(choice ? choice.getTrueValue() : indices);
  bool counts = places && !choice && local.index &&
                local.index.getDefiningOp<nn::IotaOp>();
  if (!local.offset || (!choice && !counts))
    return wrong(
        "indices less the tile's offset, -1 where they are not less than " +
        Twine(extent.size));
  Axes axes = counted(mesh.decompose(local.offset.getAxes().getAxes()));
  ArrayRef<Axis> have = extent.axes;
  // The offset must be the offset of the rank's tile, computed from the same
  // axes that split the dimension. Without a select, the gather places the tile
  // at this offset among zeros, as a step of an all-gather. Then the offset may
  // be computed from only the minor ones of these axes.
  bool over = choice ? have == ArrayRef<Axis>(axes)
                     : have.size() >= axes.size() &&
                           have.take_back(axes.size()) == ArrayRef(axes);
  if (int64_t(local.offset.getTile()) != tile || !extent.placed || !over)
    return wrong("the offset of a tile of " + Twine(tile) +
                 " elements over the axes that split it");
  if (counts) {
    // The gather's result has the rank's tile at the tile's offset, and zeros
    // elsewhere. So its unsharded size is the size that an all-gather over
    // `axes` would give.
    int64_t size = extentOf(indices, 0);
    Extent whole = gatheredBy(extent, size, axes);
    whole.filler = {};
    if (whole.kind == Extent::Padded && whole.ways == 1 && size <= whole.size)
      whole = Extent();
    else if (size != tile * mesh.size(axes))
      whole = Extent::of(Extent::Unknown);
    result[dim] = whole;
    return success();
  }
  auto compare = choice.getCondition().getDefiningOp<arith::CmpIOp>();
  DenseIntElementsAttr bound, outside;
  bool guarded =
      compare && compare.getPredicate() == arith::CmpIPredicate::slt &&
      compare.getLhs() == local.index &&
      matchPattern(compare.getRhs(), m_Constant(&bound)) && bound.isSplat() &&
      bound.getSplatValue<APInt>().getSExtValue() <= extent.size &&
      matchPattern(choice.getFalseValue(), m_Constant(&outside)) &&
      outside.isSplat() && outside.getSplatValue<APInt>().isNegative();
  if (!guarded)
    return wrong("-1 for indices that are not less than " + Twine(extent.size));
  return success();
}
