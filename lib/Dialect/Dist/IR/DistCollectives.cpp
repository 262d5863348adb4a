//===- DistCollectives.cpp - verifiers and volumes of collectives ---------===//

#include "cleave/Dialect/Dist/IR/Exchange.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace cleave::dist;

//===----------------------------------------------------------------------===//
// Shared
//===----------------------------------------------------------------------===//

/// Checks the constraints that all collectives share, (C1) and (C2) of
/// dist.all_reduce in DistOps.td: valid axes, and as many results as operands
/// (at least one). Returns the number of ranks in a group.
template <typename OpTy>
static FailureOr<int64_t> checkedGroupSize(OpTy op,
                                           SymbolTableCollection &symbols) {
  auto mesh = symbols.lookupNearestSymbolFrom<MeshOp>(op, op.getMeshAttr());
  if (!mesh) {
    op.emitOpError("there is no mesh ") << op.getMeshAttr();
    return failure();
  }
  ArrayRef<AxisRefAttr> axes = op.getAxes().getAxes();
  if (failed(verifyAxes([&] { return op.emitOpError(); }, axes,
                        mesh.getMesh()))) // (C1)
    return failure();
  if (op.getInputs().empty() ||
      op.getInputs().size() != op.getResults().size()) { // (C2)
    op.emitOpError("has ")
        << op.getInputs().size() << " operands and " << op.getResults().size()
        << " results, expected at least one and as many of both";
    return failure();
  }
  return axesSize(mesh.getMesh(), axes);
}

static LogicalResult checkDims(Operation *op, StringRef name,
                               ArrayRef<int64_t> dims) {
  if (dims.size() != op->getNumOperands())
    return op->emitOpError(name)
           << " has " << dims.size() << " entries, expected "
           << op->getNumOperands() << ", one for each operand";
  for (auto [operand, dim] : llvm::zip_equal(op->getOperands(), dims)) {
    int64_t rank = cast<RankedTensorType>(operand.getType()).getRank();
    if (dim < 0 || dim >= rank)
      return op->emitOpError(name)
             << " has dimension " << dim << ", out of range for a rank-" << rank
             << " operand";
  }
  return success();
}

static LogicalResult checkResult(Operation *op, unsigned index,
                                 ArrayRef<int64_t> want) {
  auto type =
      cast<RankedTensorType>(op->getOperand(index).getType()).clone(want);
  if (op->getResult(index).getType() != type)
    return op->emitOpError("type ")
           << op->getResult(index).getType() << " of result " << index
           << " does not follow from the operand; expected " << type;
  return success();
}

static LogicalResult checkDivides(Operation *op, int64_t size, int64_t dim,
                                  int64_t group) {
  if (size % group != 0)
    return op->emitOpError("dimension ")
           << dim << " of size " << size << " does not divide by the group of "
           << group << "; pad it first";
  return success();
}

static int64_t bytesOf(TypeRange types) {
  int64_t bytes = 0;
  for (Type type : types) {
    auto tensor = cast<RankedTensorType>(type);
    int64_t bits = tensor.getElementType().isIntOrFloat()
                       ? tensor.getElementTypeBitWidth()
                       : 64;
    bytes += tensor.getNumElements() * llvm::divideCeil(bits, 8);
  }
  return bytes;
}

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

LogicalResult AllReduceOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(checkedGroupSize(*this, symbols)))
    return failure();
  for (unsigned i = 0; i < getNumOperands(); ++i) // (AR1)
    if (failed(checkResult(
            *this, i,
            cast<RankedTensorType>(getOperand(i).getType()).getShape())))
      return failure();
  return success();
}

LogicalResult AllGatherOp::verifySymbolUses(SymbolTableCollection &symbols) {
  FailureOr<int64_t> group = checkedGroupSize(*this, symbols);
  if (failed(group) || failed(checkDims(*this, "dims", getDims()))) // (AG1)
    return failure();
  for (auto [i, dim] : llvm::enumerate(getDims())) { // (AG2)
    SmallVector<int64_t> want(
        cast<RankedTensorType>(getOperand(i).getType()).getShape());
    want[dim] *= *group;
    if (failed(checkResult(*this, i, want)))
      return failure();
  }
  return success();
}

LogicalResult
ReduceScatterOp::verifySymbolUses(SymbolTableCollection &symbols) {
  FailureOr<int64_t> group = checkedGroupSize(*this, symbols);
  if (failed(group) || failed(checkDims(*this, "dims", getDims()))) // (RS1)
    return failure();
  for (auto [i, dim] : llvm::enumerate(getDims())) { // (RS2)
    SmallVector<int64_t> want(
        cast<RankedTensorType>(getOperand(i).getType()).getShape());
    if (failed(checkDivides(*this, want[dim], dim, *group)))
      return failure();
    want[dim] /= *group;
    if (failed(checkResult(*this, i, want)))
      return failure();
  }
  return success();
}

LogicalResult AllToAllOp::verifySymbolUses(SymbolTableCollection &symbols) {
  FailureOr<int64_t> group = checkedGroupSize(*this, symbols);
  if (failed(group) || failed(checkDims(*this, "split", getSplitDims())) ||
      failed(checkDims(*this, "concat", getConcatDims()))) // (AA1)
    return failure();
  for (unsigned i = 0; i < getNumOperands(); ++i) {
    int64_t split = getSplitDims()[i], concat = getConcatDims()[i];
    if (split == concat) // (AA1)
      return emitOpError("splits and concatenates dimension ")
             << split << " of operand " << i << ", expected two different ones";
    SmallVector<int64_t> want(
        cast<RankedTensorType>(getOperand(i).getType()).getShape());
    if (failed(checkDivides(*this, want[split], split, *group))) // (AA2)
      return failure();
    want[split] /= *group;
    want[concat] *= *group;
    if (failed(checkResult(*this, i, want)))
      return failure();
  }
  return success();
}

LogicalResult AllToAllVOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (getInputs().size() != 1) // (AV1)
    return emitOpError("has ")
           << getInputs().size() << " operands beside the counts, expected one";
  FailureOr<int64_t> group = checkedGroupSize(*this, symbols);
  if (failed(group))
    return failure();
  auto type = cast<RankedTensorType>(getInputs()[0].getType());
  if (type.getRank() < 2 || type.getDimSize(0) != *group) // (AV1)
    return emitOpError("has operand ")
           << type << ", expected one of " << *group << " blocks of rows: ["
           << *group << ", rows, ...]";
  if (getResult(0).getType() != type)
    return emitOpError("result type ")
           << getResult(0).getType()
           << " does not follow from the operand; expected " << type;
  if (getSent().getType().getShape() != ArrayRef<int64_t>(*group)) // (AV2)
    return emitOpError("counts have type ")
           << getSent().getType() << ", expected one number for each of "
           << *group << " ranks";
  int64_t rows = *group * type.getDimSize(1), positions = 1;
  if (AxisListAttr by = getByAttr()) { // (AV3)
    MeshAttr mesh =
        symbols.lookupNearestSymbolFrom<MeshOp>(*this, getMeshAttr()).getMesh();
    if (failed(verifyAxes([&] { return emitOpError(); }, by.getAxes(), mesh)))
      return failure();
    positions = axesSize(mesh, by.getAxes());
  }
  if (int64_t(getExpected().size()) != positions)
    return emitOpError("has ")
           << getExpected().size() << " numbers of expected rows, expected "
           << positions;
  for (int64_t expected : getExpected())
    if (expected < 0 || expected > rows)
      return emitOpError("expects ") << expected << " rows, but has " << rows;
  return success();
}

LogicalResult PlanRowsOp::verify() { // (PR2)
  auto shapeOf = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getShape();
  };
  int64_t rows = cast<RankedTensorType>(getIds().getType()).getNumElements();
  ArrayRef<int64_t> sources = shapeOf(getSources());
  if (sources.size() != 3 || sources[0] * sources[2] < rows)
    return emitOpError("sources has sizes [")
           << sources
           << "], expected [rounds, ranks, places] with a place in a round for "
              "each of "
           << rows << " rows";
  auto expect = [&](StringRef name, Value value,
                    ArrayRef<int64_t> want) -> LogicalResult {
    if (shapeOf(value) == want)
      return success();
    return emitOpError() << name << " has sizes [" << shapeOf(value)
                         << "], expected [" << want << "]";
  };
  if (failed(expect("sent", getSent(), sources)) ||
      failed(expect("places", getPlaces(), {rows})))
    return failure();
  return expect("counts", getCounts(), {sources[1], sources[0]});
}

LogicalResult SortRowsOp::verify() { // (SR2)
  auto shapeOf = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getShape();
  };
  int64_t rows = cast<RankedTensorType>(getIds().getType()).getNumElements();
  auto expect = [&](StringRef name, Value value,
                    ArrayRef<int64_t> want) -> LogicalResult {
    if (shapeOf(value) == want)
      return success();
    return emitOpError() << name << " has sizes [" << shapeOf(value)
                         << "], expected [" << want << "]";
  };
  if (failed(expect("order", getOrder(), {rows})) ||
      failed(expect("sorted", getSorted(), {rows})))
    return failure();
  return expect("places", getPlaces(), shapeOf(getIds()));
}

LogicalResult WindowOp::verifySymbolUses(SymbolTableCollection &symbols) {
  FailureOr<int64_t> group = checkedGroupSize(*this, symbols);
  if (failed(group))
    return failure();
  if (getNumOperands() != 1) // (W1)
    return emitOpError("has ") << getNumOperands() << " operands, expected one";
  int64_t dim = getDim(), size = getSize();
  if (failed(checkDims(*this, "dim", dim)))
    return failure();
  auto have = cast<RankedTensorType>(getInputs()[0].getType());
  if (size < 0 || have.getDimSize(dim) != tileSize(size, *group))
    return emitOpError("dimension ")
           << dim << " of the operand has " << have.getDimSize(dim)
           << " elements, expected a tile of " << size << " on " << *group
           << " ranks";
  if (getStride() == 0) // (W2)
    return emitOpError("has stride 0; a window needs another one");
  if (int64_t(getWhole()) < 0) // (W4)
    return emitOpError("has whole ")
           << int64_t(getWhole()) << "; expected a number of elements";
  auto result = cast<RankedTensorType>(getResults()[0].getType());
  SmallVector<int64_t> want(have.getShape());
  if (result.getRank() == have.getRank())
    want[dim] = result.getDimSize(dim);
  return checkResult(*this, 0, want); // (W3)
}

LogicalResult
CollectivePermuteOp::verifySymbolUses(SymbolTableCollection &symbols) {
  FailureOr<int64_t> group = checkedGroupSize(*this, symbols);
  if (failed(group))
    return failure();
  for (unsigned i = 0; i < getNumOperands(); ++i) // (CP1)
    if (failed(checkResult(
            *this, i,
            cast<RankedTensorType>(getOperand(i).getType()).getShape())))
      return failure();
  ArrayRef<int64_t> pairs = getPairs();
  if (pairs.size() % 2 != 0) // (CP2)
    return emitOpError("pairs has ")
           << pairs.size() << " entries, expected an even number";
  llvm::SmallSet<int64_t, 8> sources, targets;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i] < 0 || pairs[i] >= *group)
      return emitOpError("pairs has ")
             << pairs[i] << ", expected an index below the group's size "
             << *group;
    if (!(i % 2 ? targets : sources).insert(pairs[i]).second)
      return emitOpError("pairs lists ")
             << (i % 2 ? "target " : "source ") << pairs[i] << " twice";
  }
  return success();
}

LogicalResult ExchangeOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(checkedGroupSize(*this, symbols)))
    return failure();
  if (getRounds() != 1 && getRounds() != 2) // (EX5)
    return emitOpError("has ") << getRounds() << " rounds, expected 1 or 2";
  MeshAttr mesh =
      symbols.lookupNearestSymbolFrom<MeshOp>(*this, getMeshAttr()).getMesh();
  size_t count = getNumOperands();
  if (getFrom().size() != count || getTo().size() != count ||
      getGlobal().size() != count) // (EX1)
    return emitOpError("has ")
           << getFrom().size() << " shardings before, " << getTo().size()
           << " after and " << getGlobal().size() << " global types, expected "
           << count << " of each, one for each operand";
  for (unsigned i = 0; i < count; ++i)
    if (failed(verifyExchanged(*this, i, mesh)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Volumes: bytes that the busiest rank sends

int64_t AllReduceOp::getPayloadBytes() {
  return bytesOf(getInputs().getTypes());
}
// An all-reduce is a reduce-scatter and an all-gather of chunks of
// ceil(elements / n) elements. The first rank of a group always has a full
// chunk, so it sends the most.
int64_t AllReduceOp::getSentBytes(int64_t n) {
  int64_t elements = 0;
  for (Type type : getInputs().getTypes())
    elements += cast<RankedTensorType>(type).getNumElements();
  int64_t payload = getPayloadBytes(),
          width = elements ? payload / elements : 0;
  return payload + (n - 2) * llvm::divideCeil(elements, n) * width;
}

int64_t AllGatherOp::getPayloadBytes() {
  return bytesOf(getResults().getTypes());
}
int64_t AllGatherOp::getSentBytes(int64_t n) {
  return (n - 1) * getPayloadBytes() / n;
}

int64_t ReduceScatterOp::getPayloadBytes() {
  return bytesOf(getInputs().getTypes());
}
int64_t ReduceScatterOp::getSentBytes(int64_t n) {
  return (n - 1) * getPayloadBytes() / n;
}

int64_t AllToAllOp::getPayloadBytes() {
  return bytesOf(getInputs().getTypes());
}
int64_t AllToAllOp::getSentBytes(int64_t n) {
  return (n - 1) * getPayloadBytes() / n;
}

// The payload of all_to_all_v is the expected number of rows, times the bytes
// of a row. The buffer may have more rows. A rank keeps one n-th of the
// expected rows and sends the others.
int64_t AllToAllVOp::getPayloadBytes() {
  auto type = cast<RankedTensorType>(getInputs()[0].getType());
  int64_t rows = type.getDimSize(0) * type.getDimSize(1);
  int64_t most = *llvm::max_element(getExpected());
  return rows == 0 ? 0 : most * (bytesOf(getInputs().getTypes()) / rows);
}
int64_t AllToAllVOp::getSentBytes(int64_t n) {
  return (n - 1) * getPayloadBytes() / n;
}

// A permute sends a full tile if any rank sends to a different rank, and
// nothing otherwise.
int64_t CollectivePermuteOp::getPayloadBytes() {
  return bytesOf(getInputs().getTypes());
}
int64_t CollectivePermuteOp::getSentBytes(int64_t n) {
  for (size_t i = 0; i + 1 < getPairs().size(); i += 2)
    if (getPairs()[i] != getPairs()[i + 1])
      return getPayloadBytes();
  return 0;
}

// In a window, the volume is the largest number of bytes that one rank sends to
// other ranks.
int64_t WindowOp::getPayloadBytes() { return bytesOf(getResults().getTypes()); }
int64_t WindowOp::getSentBytes(int64_t n) {
  int64_t most = 0;
  SmallVector<int64_t> sent(n, 0);
  for (const WindowPiece &piece : windowPieces(*this, n))
    if (piece.source != piece.target)
      most = std::max(most, sent[piece.source] += piece.count);
  int64_t length =
      cast<RankedTensorType>(getResults()[0].getType()).getDimSize(getDim());
  return length == 0 ? 0 : getPayloadBytes() / length * most;
}

SmallVector<WindowPiece> cleave::dist::windowPieces(WindowOp op, int64_t n) {
  SmallVector<WindowPiece> pieces;
  int64_t size = op.getSize(), base = op.getBase(), step = op.getStep(),
          stride = op.getStride();
  int64_t tile = cast<RankedTensorType>(op.getInputs()[0].getType())
                     .getDimSize(op.getDim());
  int64_t length = cast<RankedTensorType>(op.getResults()[0].getType())
                       .getDimSize(op.getDim());
  for (int64_t target = 0; target < n; ++target)
    for (int64_t i = 0; i < length; ++i) {
      int64_t index = base + target * step + i * stride;
      if (index < 0 || index >= size)
        continue;
      int64_t source = index / tile;
      if (!pieces.empty() && pieces.back().target == target &&
          pieces.back().source == source)
        ++pieces.back().count;
      else
        pieces.push_back({source, target, index - source * tile, i, 1});
    }
  return pieces;
}

// The payload of an exchange is the larger of the source tile and the target
// tile. Its volume is the number of bytes sent by the rank that sends the most.
int64_t ExchangeOp::getPayloadBytes() {
  int64_t bytes = 0;
  for (auto [input, result] :
       llvm::zip_equal(getInputs().getTypes(), getResults().getTypes()))
    bytes += std::max(bytesOf(input), bytesOf(result));
  return bytes;
}
int64_t ExchangeOp::getSentBytes(int64_t) {
  MeshAttr mesh = MeshOp::lookup(*this, getMeshAttr()).getMesh();
  SmallVector<int64_t> sent(mesh.getNumRanks(), 0);
  for (unsigned i = 0; i < getNumOperands(); ++i) {
    auto type = cast<RankedTensorType>(getInputs()[i].getType());
    int64_t width =
        type.getNumElements() ? bytesOf(type) / type.getNumElements() : 0;
    ExchangeCount count = countExchange(
        mesh, getAxes().getAxes(), cast<ShardingAttr>(getFrom()[i]),
        cast<ShardingAttr>(getTo()[i]),
        cast<RankedTensorType>(cast<TypeAttr>(getGlobal()[i]).getValue())
            .getShape(),
        getRounds());
    for (auto [rank, elements] : llvm::enumerate(count.sent))
      sent[rank] += elements * width;
  }
  return *llvm::max_element(sent);
}
