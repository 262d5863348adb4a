//===- StreamTiles.cpp - reading gathered dimensions by tiles -------------===//

#include "StreamTiles.h"
#include "cleave/Partition/Utils/CollectiveParts.h"

#include "cleave/Dialect/Dist/IR/Padding.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

int64_t partition::dimOf(const TensorFactors &dims, int64_t factor) {
  for (auto [dim, made] : llvm::enumerate(dims))
    if (made.size() == 1 && made[0] == factor)
      return dim;
  return -1;
}

/// If a slice along `dim` cut the padding off a gathered value, returns the
/// input of this slice; otherwise returns the value itself.
static Value throughPadding(Value value, int64_t dim) {
  if (auto slice = value.getDefiningOp<nn::SliceOp>()) {
    bool cuts =
        llvm::all_of(slice.getOffsets(), [](int64_t at) { return at == 0; }) &&
        llvm::all_of(slice.getStrides(),
                     [](int64_t step) { return step == 1; });
    for (auto [index, size] :
         llvm::enumerate(typeOf(slice.getInput()).getShape()))
      cuts &= int64_t(index) == dim || size == typeOf(value).getDimSize(index);
    if (cuts)
      return slice.getInput();
  }
  return value;
}

static bool findGather(Stream &stream, unsigned operand) {
  int64_t dim = dimOf(stream.rule.operands[operand], stream.factor);
  Value whole = throughPadding(stream.op->getOperand(operand), dim);
  auto gather = whole.getDefiningOp<AllGatherOp>();
  if (dim < 0 || !gather)
    return false;
  unsigned part = cast<OpResult>(whole).getResultNumber();
  if (gather.getDims()[part] != dim ||
      (stream.axes && gather.getAxes() != stream.axes))
    return false;
  stream.axes = gather.getAxes();
  stream.tile = typeOf(gather.getInputs()[part]).getDimSize(dim);
  stream.gathered.push_back({operand, dim, gather, part});
  return true;
}

std::optional<Stream> partition::findStream(StreamingInterface op,
                                            const MeshAxes &mesh) {
  Stream stream;
  stream.op = op;
  stream.rule = ShardingRule::of(op);
  stream.factor = op.getStreamedFactor();
  stream.whole = stream.rule.factors[stream.factor].size;
  for (unsigned operand : op.getStreamedOperands())
    if (!findGather(stream, operand))
      return std::nullopt;
  stream.ranks = axesSize(mesh.mesh(), stream.axes.getAxes());
  // The tile of the last rank must have elements that are not padding.
  if (stream.ranks < 2 || stream.tile * (stream.ranks - 1) >= stream.whole)
    return std::nullopt;
  return stream;
}

bool Stream::isGathered(unsigned operand) const {
  return llvm::any_of(
      gathered, [&](const StreamTile &tile) { return tile.index == operand; });
}

double partition::bytesOfTiles(const Stream &stream) {
  llvm::SetVector<Value> tiles;
  for (const StreamTile &tile : stream.gathered)
    tiles.insert(tile.collective->getOperand(tile.part));
  double bytes = 0;
  for (Value tile : tiles)
    bytes += cleave::bytesOf(tile.getType());
  return bytes;
}

double partition::bytesOfTheRest(const Stream &stream) {
  double bytes = 0;
  for (auto [index, operand] : llvm::enumerate(stream.op->getOperands()))
    if (!stream.isGathered(index))
      bytes += cleave::bytesOf(operand.getType());
  for (auto [index, dims] : llvm::enumerate(stream.rule.results))
    if (dimOf(dims, stream.factor) < 0)
      bytes += cleave::bytesOf(stream.op->getResult(index).getType());
  return bytes;
}

void Stream::erase() {
  // From readers to their operands.
  SmallVector<Operation *> dead;
  auto drop = [&](ArrayRef<StreamTile> tiles) {
    dead.clear();
    for (const StreamTile &tile : tiles)
      if (!llvm::is_contained(dead, tile.collective))
        dead.push_back(tile.collective);
    for (Operation *collective : dead) {
      llvm::SetVector<Value> inputs(llvm::from_range,
                                    collective->getOperands());
      if (isa<CollectiveOpInterface>(collective))
        dropUnreadParts(collective);
      else if (collective->use_empty())
        collective->erase();
      for (Value input : inputs)
        if (auto pad = input.getDefiningOp<nn::PadOp>();
            pad && pad->use_empty())
          pad.erase();
    }
  };
  drop(scattered);
  llvm::SetVector<Value> read(llvm::from_range, op->getOperands());
  op->erase();
  for (Value value : read)
    if (auto slice = value.getDefiningOp<nn::SliceOp>();
        slice && slice->use_empty())
      slice.erase();
  drop(gathered);
}

TileEmitter::TileEmitter(Stream &stream, const MeshAxes &mesh)
    : stream(stream), mesh(mesh), builder(stream.op), loc(stream.op->getLoc()),
      expr(builder, loc) {}

void TileEmitter::nameIndices() {
  stream.op.nameIndices(builder);
  stream.rule = ShardingRule::of(stream.op);
}

Value TileEmitter::ownIndex() {
  if (!own)
    own = AxisIndexOp::create(builder, loc, scalar(), mesh.name(), stream.axes);
  return own;
}

Value TileEmitter::cleared(const StreamTile &tile) {
  Value value = tile.collective->getOperand(tile.part);
  if (!stream.isPadded())
    return value;
  RankedTensorType type = typeOf(value);
  auto select = arith::SelectOp::create(
      builder, loc, expr.broadcast(inside(ownIndex()), type, {tile.dim}), value,
      expr.splat(type, 0));
  select->setAttr(kPadMaskAttrName, builder.getUnitAttr());
  return copyMarks(select)->getResult(0);
}

Value TileEmitter::inside(Value index) {
  auto type = RankedTensorType::get({stream.tile}, builder.getI64Type());
  Value begin =
      expr.make<arith::MulIOp>(index, expr.splatInt(scalar(), stream.tile));
  Value left =
      expr.make<arith::SubIOp>(expr.splatInt(scalar(), stream.whole), begin);
  return expr.compare(arith::CmpIPredicate::slt, expr.make<nn::IotaOp>(type, 0),
                      expr.broadcast(left, type, {}));
}

Operation *TileEmitter::emitPart(ArrayRef<Value> tiles, Value origin) {
  SmallVector<Value> operands(stream.op->getOperands());
  for (auto [tile, value] : llvm::zip_equal(stream.gathered, tiles))
    operands[tile.index] = value;
  for (auto [index, operand] : llvm::enumerate(operands))
    if (!stream.isGathered(index))
      if (int64_t dim = dimOf(stream.rule.operands[index], stream.factor);
          dim >= 0)
        operand = partOf(operand, dim, origin);
  Operation *part = builder.clone(*stream.op);
  part->setOperands(operands);
  for (auto [index, result] : llvm::enumerate(part->getResults()))
    if (int64_t dim = dimOf(stream.rule.results[index], stream.factor);
        dim >= 0) {
      SmallVector<int64_t> shape(typeOf(result).getShape());
      shape[dim] = stream.tile;
      result.setType(typeOf(result).clone(shape));
    }
  if (stream.isPadded()) {
    builder.setInsertionPoint(part);
    cast<StreamingInterface>(part).maskTile(builder, inside(origin));
    builder.setInsertionPoint(stream.op);
  }
  return part;
}

Value TileEmitter::partOf(Value value, int64_t dim, Value origin) {
  RankedTensorType type = typeOf(value);
  SmallVector<int64_t> shape(type.getShape());
  if (stream.isPadded()) {
    SmallVector<int64_t> low(shape.size()), high(shape.size());
    high[dim] = stream.tile * stream.ranks - stream.whole;
    shape[dim] = stream.tile * stream.ranks;
    value = nn::PadOp::create(builder, loc, type.clone(shape), value, low, high,
                              APFloat(0.0));
  }
  shape[dim] = stream.ranks;
  shape.insert(shape.begin() + dim + 1, stream.tile);
  Value parts = expr.make<nn::ReshapeOp>(type.clone(shape), value);
  return expr.make<nn::GatherOp>(parts, origin, uint64_t(dim));
}

Operation *TileEmitter::copyMarks(Operation *op) {
  for (NamedAttribute mark : stream.op->getDiscardableAttrs())
    if (!op->hasAttr(mark.getName()))
      op->setAttr(mark.getName(), mark.getValue());
  return op;
}
