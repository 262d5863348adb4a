//===- DistOps.cpp - meshes, constraints and coordinates of ranks ---------===//

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace cleave::dist;

//===----------------------------------------------------------------------===//
// Checks against a mesh
//===----------------------------------------------------------------------===//

/// Checks that the mesh has the axis or sub-axis. `place` is appended to the
/// error message: it says where in the sharding the axis is (such as the
/// dimension), or is empty.
static LogicalResult verifyAxis(function_ref<InFlightDiagnostic()> emitError,
                                AxisRefAttr axis, MeshAttr mesh,
                                const Twine &place = "") {
  int64_t size = mesh.getAxisSize(axis.getName());
  if (size == 0) // (S3)
    return emitError() << "axis " << axis.getName() << " is not one of mesh "
                       << mesh << place.str();
  if (!axis.isWhole() && size % (axis.getPre() * axis.getSize()) != 0) // (S4)
    return emitError() << "sub-axis " << axis.getName() << ":(" << axis.getPre()
                       << ")" << axis.getSize()
                       << " does not divide the axis of size " << size
                       << place.str();
  return success();
}

LogicalResult
cleave::dist::verifyAxes(function_ref<InFlightDiagnostic()> emitError,
                         ArrayRef<AxisRefAttr> axes, MeshAttr mesh) {
  for (AxisRefAttr axis : axes)
    if (failed(verifyAxis(emitError, axis, mesh)))
      return failure();
  for (size_t i = 0; i < axes.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (overlaps(mesh, axes[i], axes[j]))
        return emitError() << "axis " << axes[i].getName() << " is used twice";
  return success();
}

LogicalResult
cleave::dist::verifySharding(function_ref<InFlightDiagnostic()> emitError,
                             ShardingAttr sharding, RankedTensorType type,
                             MeshAttr mesh) {
  if (type && type.getRank() != sharding.getRank()) // (S2)
    return emitError() << "sharding " << sharding << " has "
                       << sharding.getRank() << " dimensions, expected "
                       << type.getRank() << " for " << type;
  SmallVector<AxisRefAttr> all;
  SmallVector<std::string> places;
  auto add = [&](ArrayRef<AxisRefAttr> axes, const Twine &place) {
    llvm::append_range(all, axes);
    places.append(axes.size(), place.str());
  };
  for (auto [index, dim] : llvm::enumerate(sharding.getDims()))
    add(dim.getAxes(), "dimension " + Twine(index));
  add(sharding.getPartial(), "partial");
  add(sharding.getReplicated(), "replicated");
  std::string of;
  if (type)
    llvm::raw_string_ostream(of) << " of '" << type << "'";
  for (size_t i = 0; i < all.size(); ++i) {
    if (failed(verifyAxis(emitError, all[i], mesh, ", in " + places[i] + of)))
      return failure();
    for (size_t j = 0; j < i; ++j)
      if (all[i].getName() == all[j].getName() &&
          (all[i].isWhole() || all[j].isWhole() ||
           overlaps(mesh, all[i], all[j]))) // (S1)
        return emitError() << "axis " << all[i].getName()
                           << " is used twice, by " << places[j] << " and by "
                           << places[i] << of;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Syntax shared by the operations
//===----------------------------------------------------------------------===//

static ParseResult parseAxisList(OpAsmParser &parser, AxisListAttr &axes) {
  // In operations, the attribute dist.axes is printed only as {...}, without
  // the angle brackets that it has elsewhere.
  SmallVector<AxisRefAttr> refs;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLBrace())
    return failure();
  if (failed(parser.parseOptionalRBrace())) {
    do {
      std::string name;
      int64_t pre = 1, size = 0;
      if (parser.parseString(&name))
        return failure();
      if (succeeded(parser.parseOptionalColon()))
        if (parser.parseLParen() || parser.parseInteger(pre) ||
            parser.parseRParen() || parser.parseInteger(size))
          return failure();
      auto ref = AxisRefAttr::getChecked(
          [&] { return parser.emitError(loc); }, parser.getContext(),
          parser.getBuilder().getStringAttr(name), pre, size);
      if (!ref)
        return failure();
      refs.push_back(ref);
    } while (succeeded(parser.parseOptionalComma()));
    if (parser.parseRBrace())
      return failure();
  }
  axes = AxisListAttr::getChecked([&] { return parser.emitError(loc); },
                                  parser.getContext(),
                                  ArrayRef<AxisRefAttr>(refs));
  return success(axes != nullptr);
}

static void printAxisList(OpAsmPrinter &printer, Operation *,
                          AxisListAttr axes) {
  printer << '{';
  llvm::interleaveComma(axes.getAxes(), printer, [&](AxisRefAttr axis) {
    printer.printString(axis.getName());
    if (!axis.isWhole())
      printer << ":(" << axis.getPre() << ")" << axis.getSize();
  });
  printer << '}';
}

static ParseResult parseSameTypes(OpAsmParser &parser,
                                  SmallVectorImpl<Type> &inputs,
                                  SmallVectorImpl<Type> &results) {
  if (parser.parseTypeList(inputs))
    return failure();
  results.assign(inputs.begin(), inputs.end());
  return success();
}

static void printSameTypes(OpAsmPrinter &printer, Operation *, TypeRange inputs,
                           TypeRange) {
  llvm::interleaveComma(inputs, printer);
}

static ParseResult parseDim(OpAsmParser &parser, IntegerAttr &dim) {
  int64_t value;
  if (parser.parseInteger(value))
    return failure();
  dim = parser.getBuilder().getI64IntegerAttr(value);
  return success();
}

static void printDim(OpAsmPrinter &printer, Operation *, IntegerAttr dim) {
  printer << dim.getInt();
}

#define GET_OP_CLASSES
#include "cleave/Dialect/Dist/IR/DistOps.cpp.inc"

//===----------------------------------------------------------------------===//
// MeshOp, ConstrainOp
//===----------------------------------------------------------------------===//

LogicalResult MeshOp::verify() {
  // The attribute itself checks (M1).
  if (std::optional<ArrayAttr> links = getLinks())
    if (links->size() != getMesh().getAxes().size()) // (M2)
      return emitOpError("has ")
             << links->size() << " link classes, expected "
             << getMesh().getAxes().size() << ", one for each axis";
  if (std::optional<ArrayRef<int64_t>> within = getWithin()) { // (M3)
    if (within->size() != getMesh().getAxes().size())
      return emitOpError("has ")
             << within->size() << " numbers in within, expected "
             << getMesh().getAxes().size() << ", one for each axis";
    for (auto [axis, ranks] : llvm::zip_equal(getMesh().getAxes(), *within))
      if (ranks < 1 || axis.getSize() % ranks != 0)
        return emitOpError("has ")
               << ranks << " ranks of axis '" << axis.getName().getValue()
               << "' on a node, expected a divisor of " << axis.getSize();
  }
  return success();
}

StringRef MeshOp::linkOf(AxisRefAttr axis) {
  for (auto [index, known] : llvm::enumerate(getMesh().getAxes())) {
    if (known.getName() != axis.getName() || !getLinks())
      continue;
    // `block` is the number of ranks that differ only in their indices on the
    // sub-axis and on more minor parts of the axis. They are consecutive along
    // the mesh axis.
    int64_t block = known.getSize() / (axis.isWhole() ? 1 : axis.getPre());
    if (getWithin() && (*getWithin())[index] % block == 0)
      return "intra";
    return cast<StringAttr>((*getLinks())[index]).getValue();
  }
  return "intra";
}

MeshOp MeshOp::lookup(Operation *from, FlatSymbolRefAttr name) {
  return SymbolTable::lookupNearestSymbolFrom<MeshOp>(from, name);
}

LogicalResult ConstrainOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto mesh =
      symbols.lookupNearestSymbolFrom<MeshOp>(*this, getSharding().getMesh());
  if (!mesh)
    return emitOpError("there is no mesh ") << getSharding().getMesh();
  return verifySharding([&] { return emitOpError(); }, getSharding(),
                        cast<RankedTensorType>(getInput().getType()),
                        mesh.getMesh());
}

//===----------------------------------------------------------------------===//
// The place of a rank
//===----------------------------------------------------------------------===//

/// Checks the axes of an operation (attribute `axes`), and returns its mesh.
template <typename OpTy>
static FailureOr<MeshAttr> checkedMesh(OpTy op,
                                       SymbolTableCollection &symbols) {
  auto mesh = symbols.lookupNearestSymbolFrom<MeshOp>(op, op.getMeshAttr());
  if (!mesh) {
    op.emitOpError("there is no mesh ") << op.getMeshAttr();
    return failure();
  }
  if (failed(verifyAxes([&] { return op.emitOpError(); },
                        op.getAxes().getAxes(),
                        mesh.getMesh()))) // (C1)
    return failure();
  return mesh.getMesh();
}

LogicalResult SliceOp::verifySymbolUses(SymbolTableCollection &symbols) {
  FailureOr<MeshAttr> mesh = checkedMesh(*this, symbols);
  if (failed(mesh))
    return failure();
  auto input = cast<RankedTensorType>(getInput().getType());
  int64_t dim = getDim();
  if (dim < 0 || dim >= input.getRank()) // (SL1)
    return emitOpError("dim ") << dim << " is out of range for a rank-"
                               << input.getRank() << " operand";
  SmallVector<int64_t> want(input.getShape());
  want[dim] = tileSize(want[dim], axesSize(*mesh, getAxes().getAxes()));
  if (RankedTensorType type = input.clone(want);
      getResult().getType() != type) // (SL2)
    return emitOpError("result type ")
           << getResult().getType() << " does not follow from the "
           << "operand; expected " << type;
  return success();
}

LogicalResult AxisIndexOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return checkedMesh(*this, symbols);
}

LogicalResult TileOffsetOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (static_cast<int64_t>(getTile()) < 1) // (TO1)
    return emitOpError("tile ")
           << static_cast<int64_t>(getTile()) << " must be positive";
  return checkedMesh(*this, symbols);
}

LogicalResult KeepFirstOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return checkedMesh(*this, symbols);
}
