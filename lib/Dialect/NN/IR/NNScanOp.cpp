// The loop of the nn dialect, nn.scan: building, parsing, printing and
// verifying it. Labels such as (S1) refer to the constraints in
// NNControlOps.td.

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/ValueUtils.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::nn;

/// Returns the type of the part of a sliced or stacked tensor that belongs to
/// one trip of the loop. Returns null if the size of dimension 0 is not
/// `trips`.
static RankedTensorType typeOfTrip(Type type, int64_t trips) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || tensor.getRank() == 0 || tensor.getDimSize(0) != trips)
    return {};
  return RankedTensorType::get(tensor.getShape().drop_front(),
                               tensor.getElementType());
}

RankedTensorType ScanOp::stackedType(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape = {int64_t(getTrips())};
  llvm::append_range(shape, tensor.getShape());
  return RankedTensorType::get(shape, tensor.getElementType());
}

/// Whether a value belongs to a block or to a region in it. (The block need not
/// be in an operation that is part of a function yet.)
static bool isIn(Value value, Block *block) {
  Block *at = value.getParentBlock();
  while (at && at != block)
    at = at->getParentOp() ? at->getParentOp()->getBlock() : nullptr;
  return at == block;
}

void ScanOp::captureOutsideValues() {
  llvm::MapVector<Value, SmallVector<OpOperand *>> uses;
  getRegion().walk([&](Operation *op) {
    for (OpOperand &use : op->getOpOperands())
      if (!isIn(use.get(), getBody()))
        uses[use.get()].push_back(&use);
  });
  for (auto &[value, operands] : uses) {
    getCapturesMutable().append(value);
    Value argument = getBody()->addArgument(value.getType(), value.getLoc());
    for (OpOperand *use : operands)
      use->set(argument);
  }
}

MutableArrayRef<BlockArgument> ScanOp::getCarriedArguments() {
  return getBody()->getArguments().take_front(getInits().size());
}

MutableArrayRef<BlockArgument> ScanOp::getSliceArguments() {
  return getBody()->getArguments().slice(getInits().size(), getSlices().size());
}

MutableArrayRef<BlockArgument> ScanOp::getCaptureArguments() {
  return getBody()->getArguments().take_back(getCaptures().size());
}

OperandRange ScanOp::getYieldedCarries() {
  return getBody()->getTerminator()->getOperands().take_front(
      getInits().size());
}

OperandRange ScanOp::getYieldedStacked() {
  return getBody()->getTerminator()->getOperands().drop_front(
      getInits().size());
}

void ScanOp::build(OpBuilder &builder, OperationState &state, int64_t trips,
                   ValueRange inits, ValueRange slices, ValueRange captures,
                   TypeRange stacked, bool reverse) {
  state.addOperands(inits);
  state.addOperands(slices);
  state.addOperands(captures);
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.operandSegmentSizes = {
      int32_t(inits.size()), int32_t(slices.size()), int32_t(captures.size())};
  properties.setTrips(builder.getI64IntegerAttr(trips));
  if (reverse)
    properties.setReverse(builder.getUnitAttr());
  for (Value init : inits)
    state.addTypes(init.getType());
  for (Type type : stacked) {
    auto tensor = cast<RankedTensorType>(type);
    SmallVector<int64_t> shape = {trips};
    llvm::append_range(shape, tensor.getShape());
    state.addTypes(RankedTensorType::get(shape, tensor.getElementType()));
  }
  Block &block = state.addRegion()->emplaceBlock();
  for (Value init : inits)
    block.addArgument(init.getType(), init.getLoc());
  for (Value slice : slices)
    block.addArgument(typeOfTrip(slice.getType(), trips), slice.getLoc());
  for (Value capture : captures)
    block.addArgument(capture.getType(), capture.getLoc());
}

/// Parses an optional `KEYWORD(%argument = %operand : type, ...)`, where the
/// keyword is for example `carries`. `count` becomes the number of operands.
static ParseResult
parseInputs(OpAsmParser &parser, StringRef keyword,
            SmallVectorImpl<OpAsmParser::Argument> &arguments,
            SmallVectorImpl<Value> &operands, int32_t &count) {
  size_t before = operands.size();
  if (succeeded(parser.parseOptionalKeyword(keyword))) {
    auto parseOne = [&]() -> ParseResult {
      OpAsmParser::UnresolvedOperand operand;
      Type type;
      return failure(parser.parseArgument(arguments.emplace_back()) ||
                     parser.parseEqual() || parser.parseOperand(operand) ||
                     parser.parseColonType(type) ||
                     parser.resolveOperand(operand, type, operands));
    };
    if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Paren, parseOne))
      return failure();
  }
  count = int32_t(operands.size() - before);
  return success();
}

ParseResult ScanOp::parse(OpAsmParser &parser, OperationState &state) {
  Properties &properties = state.getOrAddProperties<Properties>();
  SmallVector<OpAsmParser::Argument> arguments;
  int64_t trips = 0;
  if (parser.parseKeyword("trips") || parser.parseEqual() ||
      parser.parseInteger(trips))
    return failure();
  properties.setTrips(parser.getBuilder().getI64IntegerAttr(trips));
  if (succeeded(parser.parseOptionalKeyword("reverse")))
    properties.setReverse(parser.getBuilder().getUnitAttr());
  auto &segments = properties.operandSegmentSizes;
  if (parseInputs(parser, "carries", arguments, state.operands, segments[0]) ||
      parseInputs(parser, "slices", arguments, state.operands, segments[1]) ||
      parseInputs(parser, "captures", arguments, state.operands, segments[2]))
    return failure();
  if (succeeded(parser.parseOptionalArrow()) &&
      parser.parseTypeList(state.types))
    return failure();
  for (auto [index, operand] : llvm::enumerate(state.operands)) {
    bool isSlice = int32_t(index) >= segments[0] &&
                   int32_t(index) < segments[0] + segments[1];
    arguments[index].type =
        isSlice ? typeOfTrip(operand.getType(), trips) : operand.getType();
    if (!arguments[index].type) // (SC2)
      return parser.emitError(arguments[index].ssaName.location)
             << "slices a tensor of type " << operand.getType()
             << ", which has no dimension 0 of " << trips << " trips";
  }
  if (parser.parseOptionalAttrDictWithKeyword(state.attributes) ||
      parser.parseRegion(*state.addRegion(), arguments))
    return failure();
  ensureTerminator(*state.regions.front(), parser.getBuilder(), state.location);
  return success();
}

void ScanOp::print(OpAsmPrinter &printer) {
  printer << " trips = " << getTrips();
  if (getReverse())
    printer << " reverse";
  auto inputs = [&](StringRef keyword, OperandRange operands,
                    ArrayRef<BlockArgument> arguments) {
    if (operands.empty())
      return;
    printer << ' ' << keyword << '(';
    llvm::interleaveComma(
        llvm::zip_equal(arguments, operands), printer, [&](auto pair) {
          auto [argument, operand] = pair;
          printer << argument << " = " << operand << " : " << operand.getType();
        });
    printer << ')';
  };
  inputs("carries", getInits(), getCarriedArguments());
  inputs("slices", getSlices(), getSliceArguments());
  inputs("captures", getCaptures(), getCaptureArguments());
  if (getNumResults())
    printer << " -> " << getResultTypes();
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {getOperandSegmentSizesAttrName(),
                            getTripsAttrName(), getReverseAttrName()});
  printer << ' ';
  printer.printRegion(getRegion(), /*printEntryBlockArgs=*/false,
                      /*printBlockTerminators=*/true);
}

LogicalResult ScanOp::verify() {
  for (Value slice : getSlices())
    if (!typeOfTrip(slice.getType(), getTrips())) // (SC2)
      return emitOpError("slices a tensor of type ")
             << slice.getType() << ", which has no dimension 0 of "
             << getTrips() << " trips";
  if (getBody()->getNumArguments() != getNumOperands()) // (SC3)
    return emitOpError("has ")
           << getNumOperands() << " operands, but its "
           << "region has " << getBody()->getNumArguments() << " arguments";
  for (auto [index, argument] :
       llvm::enumerate(getBody()->getArguments())) { // (SC3)
    Type want = getOperand(index).getType();
    if (llvm::is_contained(getSliceArguments(), argument))
      want = typeOfTrip(want, getTrips());
    if (argument.getType() != want)
      return emitOpError("argument ")
             << index << " of the region has type " << argument.getType()
             << ", expected " << want;
  }
  if (getNumResults() < getInits().size()) // (SC4)
    return emitOpError("carries ") << getInits().size() << " values, but has "
                                   << getNumResults() << " results";
  for (auto [index, init] : llvm::enumerate(getInits())) // (SC4)
    if (getResult(index).getType() != init.getType())
      return emitOpError("result ")
             << index << " has type " << getResult(index).getType()
             << ", but the carried value has type " << init.getType();
  return success();
}

LogicalResult ScanOp::verifyRegions() {
  Operation *yield = getBody()->getTerminator();
  if (yield->getNumOperands() != getNumResults()) // (SC4)
    return emitOpError("has ") << getNumResults() << " results, but yields "
                               << yield->getNumOperands() << " values";
  for (auto [index, value] : llvm::enumerate(yield->getOperands())) {
    bool isCarried = index < getInits().size();
    Type want = isCarried ? value.getType() : stackedType(value.getType());
    if (getResult(index).getType() == want) // (SC4)
      continue;
    InFlightDiagnostic error = emitOpError("yields value ")
                               << index << " of type " << value.getType()
                               << ", but result " << index << " has type "
                               << getResult(index).getType();
    if (!isCarried)
      error << ", expected " << want;
    return error;
  }
  return success();
}
