//===- VariancePaddingMoves.cpp - padding where elements move ---------------===//
//
// Collectives, slices, reshapes and gathers by index: what becomes of a
// dimension's tiles.
//
//===----------------------------------------------------------------------===//

#include "VariancePadding.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

static int64_t extentOf(Value value, int64_t dim) {
  return cast<RankedTensorType>(value.getType()).getDimSize(dim);
}

/// The dimension, of which a rank has `from` elements, is split further into
/// tiles of `to`.
Extent Padding::splitBy(Extent extent, int64_t from, int64_t to, ArrayRef<Axis> axes,
                        bool isSplit) const {
  int64_t ways = mesh.size(axes);
  bool nests = to * ways == from;
  if (extent.kind == Extent::Real) {
    if (nests)
      return extent;
    return isSplit ? Extent::of(Extent::Unknown) : Extent::padded(from, ways, axes);
  }
  if (extent.kind != Extent::Padded)
    return extent;
  if (!nests && extent.ways != 1)
    return Extent::of(Extent::Unknown);
  extent.ways *= ways;
  llvm::append_range(extent.axes, axes);
  return extent.ways * to == extent.size ? Extent() : extent;
}

/// The tiles over `axes` are laid end to end, so that a rank has `to` elements.
Extent Padding::gatheredBy(Extent extent, int64_t to, ArrayRef<Axis> axes) const {
  if (extent.kind != Extent::Padded)
    return extent;
  int64_t ways = mesh.size(axes);
  ArrayRef<Axis> have = extent.axes;
  bool ends = extent.placed ? have.size() >= axes.size() && have.take_back(axes.size()) == axes
                            : extent.ways % ways == 0;
  if (!ends)
    return Extent::of(Extent::Unknown);
  extent.ways /= ways;
  extent.axes.truncate(extent.placed ? have.size() - axes.size() : 0);
  extent.placed |= extent.ways == 1;
  return extent.ways * to == extent.size ? Extent() : extent;
}

LogicalResult Padding::visitCollective(Operation *op, ArrayRef<Axis> axes) {
  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    Value input = op->getOperand(index);
    if (auto exchange = dyn_cast<ExchangeOp>(op)) {
      auto whole = cast<RankedTensorType>(cast<TypeAttr>(exchange.getGlobal()[index]).getValue());
      for (auto [dim, extent] : llvm::enumerate(all(input)))
        if (extent.kind == Extent::Padded && extent.size != whole.getDimSize(dim))
          return op->emitOpError("operand ")
                 << index << " has a dimension " << dim << " of " << describe(extent)
                 << ", expected " << whole.getDimSize(dim) << ", as the type of the whole says";
      set(result, declared(cast<ShardingAttr>(exchange.getTo()[index]), whole.getShape()));
      continue;
    }
    bool known = extents.contains(input);
    Extents extents = all(input);
    // Sums of zeros are zeros, the largest of equal numbers is that number; a
    // rank that receives nothing has zeros.
    ReduceKind kind = ReduceKind::Sum;
    if (auto reduce = dyn_cast<AllReduceOp>(op))
      kind = reduce.getKind();
    if (auto scatter = dyn_cast<ReduceScatterOp>(op))
      kind = scatter.getKind();
    for (Extent &extent : extents)
      if (kind == ReduceKind::Sum && !isZero(extent.filler) && !isa<AllGatherOp, AllToAllOp>(op))
        extent.filler = {};
    auto split = [&](int64_t dim) {
      extents[dim] = splitBy(extents[dim], extentOf(input, dim), extentOf(result, dim), axes,
                             isSplit(input, dim));
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
    if (auto window = dyn_cast<WindowOp>(op)) {
      int64_t dim = window.getDim(), size = window.getSize(), ways = mesh.size(axes);
      Extent &extent = extents[dim];
      bool fits = extent.kind == Extent::Padded
                      ? extent.size == size && extent.ways == ways &&
                            (!extent.placed || ArrayRef<Axis>(extent.axes) == axes)
                  : extent.kind == Extent::Real ? extentOf(input, dim) * ways == size
                                                : true;
      if (!fits) {
        if (extent.kind == Extent::Real)
          extent = Extent::padded(extentOf(input, dim) * ways, ways, axes);
        return op->emitOpError("takes windows of dimension ")
               << dim << " as one of " << size << " elements; expected " << describe(extent)
               << ", as the operand has";
      }
      // Of another size: the operation does not say how much of the last window
      // is wanted. The same window everywhere is wanted whole.
      extent = Extent::of(window.getStep() == 0 ? Extent::Real : Extent::Unknown);
    }
    if (auto permute = dyn_cast<CollectivePermuteOp>(op); permute && known)
      for (Extent &extent : extents)
        if (llvm::any_of(axes, [&](Axis axis) { return llvm::is_contained(extent.axes, axis); })) {
          extent.axes.clear();
          extent.placed = false;
        }
    set(result, std::move(extents));
  }
  return success();
}

void Padding::visitPlace(Operation *op, ArrayRef<Axis> axes) {
  if (op->getNumOperands() == 0)
    return;
  Value input = op->getOperand(0), result = op->getResult(0);
  Extents extents = all(input);
  if (auto slice = dyn_cast<dist::SliceOp>(op)) {
    int64_t dim = slice.getDim();
    extents[dim] = splitBy(extents[dim], extentOf(input, dim), extentOf(result, dim), axes,
                           isSplit(input, dim));
  } else {
    for (Extent &extent : extents)
      if (!isZero(extent.filler))
        extent.filler = {};
  }
  set(result, std::move(extents));
}

/// Elements stay in row-major order: a dimension goes where as many elements
/// are before it and it has as many itself. Tiles of one element may be of any
/// dimension there.
void Padding::visitReshape(Operation *op) {
  Value input = op->getOperand(0), result = op->getResult(0);
  auto known = extents.find(input);
  if (known == extents.end()) {
    set(result, all(result));
    return;
  }
  Extents from = known->second;
  auto fromShape = cast<RankedTensorType>(input.getType()).getShape();
  auto toShape = cast<RankedTensorType>(result.getType()).getShape();
  bool allFree = llvm::all_of(from, [](const Extent &e) { return e.kind == Extent::Free; });
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
      else if (size > 1 && extent > 1 ? otherBegin < end && otherEnd > begin
                                      : otherBegin <= end && otherEnd >= begin)
        to[other] = Extent::of(Extent::Unknown);
    }
  }
  set(result, std::move(to));
}

namespace {

/// Indices less where the rank's tile begins: `subi index, offset`.
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

/// A gather along a dimension that ends in padding must not be told to read it:
/// it counts up to the whole's size, or indices beyond it are sent outside.
LogicalResult Padding::visitGather(Operation *op, Extents &result) const {
  auto gather = cast<nn::GatherOp>(op);
  int64_t dim = gather.getDim();
  const Extent &extent = at(gather.getTable(), dim);
  if (extent.kind != Extent::Padded)
    return success();
  int64_t tile = extentOf(gather.getTable(), dim);
  Value indices = gather.getIndices();
  auto wrong = [&](const Twine &expected) {
    return op->emitOpError("reads dimension ")
           << dim << " of type " << gather.getTable().getType() << ", of " << describe(extent)
           << ", whose last tiles end in padding, by index; expected " << expected;
  };
  // select(index < N, index - offset, -1).
  auto choice = indices.getDefiningOp<arith::SelectOp>();
  LocalIndex local(choice ? choice.getTrueValue() : indices);
  bool counts = !choice && local.index && local.index.getDefiningOp<nn::IotaOp>() &&
                cast<RankedTensorType>(indices.getType()).getRank() == 1;
  if (!local.offset || (!choice && !counts))
    return wrong("indices less the tile's offset, -1 where they are not less than " +
                 Twine(extent.size));
  Axes axes = mesh.decompose(local.offset.getAxes().getAxes());
  ArrayRef<Axis> have = extent.axes;
  if (int64_t(local.offset.getTile()) != tile ||
      (extent.placed &&
       (have.size() < axes.size() || have.take_back(axes.size()) != ArrayRef<Axis>(axes))))
    return wrong("the offset of a tile of " + Twine(tile) +
                 " elements over the axes that split it");
  if (counts) {
    // The tile at its place among zeros.
    int64_t size = extentOf(gather.getIndices(), 0);
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
  bool guarded = compare && compare.getPredicate() == arith::CmpIPredicate::slt &&
                 compare.getLhs() == local.index &&
                 matchPattern(compare.getRhs(), m_Constant(&bound)) && bound.isSplat() &&
                 bound.getSplatValue<APInt>().getSExtValue() <= extent.size &&
                 matchPattern(choice.getFalseValue(), m_Constant(&outside)) && outside.isSplat() &&
                 outside.getSplatValue<APInt>().isNegative();
  if (!guarded)
    return wrong("-1 for indices that are not less than " + Twine(extent.size));
  return success();
}
