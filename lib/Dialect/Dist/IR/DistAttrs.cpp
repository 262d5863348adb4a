//===- DistAttrs.cpp - syntax and checks of meshes and shardings ----------===//

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "mlir/IR/Builders.h"

#include <limits>

using namespace mlir;
using namespace cleave::dist;

/// The largest number of ranks of a mesh. A number of ranks fits into 32 bits,
/// so that 64-bit products of two such numbers do not overflow.
static constexpr int64_t kMaxRanks = std::numeric_limits<int32_t>::max();

//===----------------------------------------------------------------------===//
// Axis references: "x" or "x":(pre)size
//===----------------------------------------------------------------------===//

static LogicalResult badSubAxis(function_ref<InFlightDiagnostic()> emitError,
                                StringRef name, int64_t pre, int64_t size) {
  return emitError() << "sub-axis \"" << name << "\":(" << pre << ")" << size
                     << " must have a positive number of blocks before it and "
                        "a positive size, "
                        "and at most "
                     << kMaxRanks << " ranks up to its end";
}

static FailureOr<AxisRefAttr> parseAxisRef(AsmParser &parser) {
  std::string name;
  int64_t pre = 1, size = 0;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseString(&name))
    return failure();
  if (succeeded(parser.parseOptionalColon())) {
    if (parser.parseLParen() || parser.parseInteger(pre) ||
        parser.parseRParen() || parser.parseInteger(size))
      return failure();
    // In the attribute, size 0 stands for the whole axis, so a size of 0 in the
    // text is an error.
    if (size < 1)
      return badSubAxis([&] { return parser.emitError(loc); }, name, pre, size);
  }
  auto attr = AxisRefAttr::getChecked(
      [&] { return parser.emitError(loc); }, parser.getContext(),
      StringAttr::get(parser.getContext(), name), pre, size);
  if (!attr)
    return failure();
  return attr;
}

static void printAxisRef(AsmPrinter &printer, AxisRefAttr axis) {
  printer.printString(axis.getName());
  if (!axis.isWhole())
    printer << ":(" << axis.getPre() << ")" << axis.getSize();
}

/// Parses a list of axes up to and including the closing brace. If `isOpen` is
/// not null, a `?` is allowed at the end of the list and sets `isOpen` to true.
static ParseResult parseAxesInBraces(AsmParser &parser,
                                     SmallVectorImpl<AxisRefAttr> &axes,
                                     bool *isOpen) {
  if (parser.parseLBrace())
    return failure();
  if (succeeded(parser.parseOptionalRBrace()))
    return success();
  do {
    if (isOpen && succeeded(parser.parseOptionalQuestion())) {
      *isOpen = true;
      break;
    }
    FailureOr<AxisRefAttr> axis = parseAxisRef(parser);
    if (failed(axis))
      return failure();
    axes.push_back(*axis);
  } while (succeeded(parser.parseOptionalComma()));
  return parser.parseRBrace();
}

static void printAxesInBraces(AsmPrinter &printer, ArrayRef<AxisRefAttr> axes,
                              bool isOpen) {
  printer << '{';
  llvm::interleaveComma(axes, printer,
                        [&](AxisRefAttr axis) { printAxisRef(printer, axis); });
  if (isOpen)
    printer << (axes.empty() ? "?" : ", ?");
  printer << '}';
}

Attribute AxisRefAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<AxisRefAttr> axis = parseAxisRef(parser);
  if (failed(axis) || parser.parseGreater())
    return {};
  return *axis;
}

void AxisRefAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printAxisRef(printer, *this);
  printer << '>';
}

LogicalResult AxisRefAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                  StringAttr name, int64_t pre, int64_t size) {
  if (name.getValue().empty())
    return emitError() << "the name of an axis is empty";
  bool isWhole = pre == 1 && size == 0;
  if (!isWhole && (pre < 1 || size < 1 || pre > kMaxRanks / size))
    return badSubAxis(emitError, name, pre, size);
  return success();
}

//===----------------------------------------------------------------------===//
// Lists of axes
//===----------------------------------------------------------------------===//

Attribute AxisListAttr::parse(AsmParser &parser, Type) {
  SmallVector<AxisRefAttr> axes;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parseAxesInBraces(parser, axes, nullptr) ||
      parser.parseGreater())
    return {};
  return AxisListAttr::getChecked([&] { return parser.emitError(loc); },
                                  parser.getContext(),
                                  ArrayRef<AxisRefAttr>(axes));
}

void AxisListAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printAxesInBraces(printer, getAxes(), false);
  printer << '>';
}

/// Reports an axis that the list uses twice. The size of an axis is not known
/// here, since the mesh is not. But two sub-axes of one axis (pre-size `pre`,
/// size `size`) overlap if one begins before the other ends.
static LogicalResult
verifyDistinct(function_ref<InFlightDiagnostic()> emitError,
               ArrayRef<AxisRefAttr> axes) {
  auto endOf = [](AxisRefAttr axis) { return axis.getPre() * axis.getSize(); };
  for (size_t i = 0; i < axes.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      AxisRefAttr a = axes[i], b = axes[j];
      bool apart = !a.isWhole() && !b.isWhole() &&
                   (endOf(a) <= b.getPre() || endOf(b) <= a.getPre());
      if (a.getName() == b.getName() && !apart)
        return emitError() << "axis " << a.getName() << " is used twice";
    }
  return success();
}

LogicalResult AxisListAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   ArrayRef<AxisRefAttr> axes) {
  return verifyDistinct(emitError, axes);
}

//===----------------------------------------------------------------------===//
// Meshes
//===----------------------------------------------------------------------===//

Attribute MeshAxisAttr::parse(AsmParser &parser, Type) {
  std::string name;
  int64_t size;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseString(&name) || parser.parseEqual() ||
      parser.parseInteger(size) || parser.parseGreater())
    return {};
  return MeshAxisAttr::getChecked(
      [&] { return parser.emitError(loc); }, parser.getContext(),
      StringAttr::get(parser.getContext(), name), size);
}

void MeshAxisAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printer.printString(getName());
  printer << '=' << getSize() << '>';
}

LogicalResult MeshAxisAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   StringAttr name, int64_t size) {
  if (name.getValue().empty()) // (M1)
    return emitError() << "the name of an axis is empty";
  if (size < 1) // (M1)
    return emitError() << "axis " << name << " has size " << size
                       << ", expected at least 1";
  return success();
}

Attribute MeshAttr::parse(AsmParser &parser, Type) {
  SmallVector<MeshAxisAttr> axes;
  SMLoc loc = parser.getCurrentLocation();
  auto parseAxis = [&]() -> ParseResult {
    std::string name;
    int64_t size;
    SMLoc axisLoc = parser.getCurrentLocation();
    if (parser.parseString(&name) || parser.parseEqual() ||
        parser.parseInteger(size))
      return failure();
    auto axis = MeshAxisAttr::getChecked(
        [&] { return parser.emitError(axisLoc); }, parser.getContext(),
        StringAttr::get(parser.getContext(), name), size);
    if (!axis)
      return failure();
    axes.push_back(axis);
    return success();
  };
  if (parser.parseLess() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseAxis) ||
      parser.parseGreater())
    return {};
  return MeshAttr::getChecked([&] { return parser.emitError(loc); },
                              parser.getContext(),
                              ArrayRef<MeshAxisAttr>(axes));
}

void MeshAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getAxes(), printer, [&](MeshAxisAttr axis) {
    printer.printString(axis.getName());
    printer << '=' << axis.getSize();
  });
  printer << "]>";
}

LogicalResult MeshAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               ArrayRef<MeshAxisAttr> axes) {
  for (size_t i = 0; i < axes.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (axes[i].getName() == axes[j].getName()) // (M1)
        return emitError() << "axis " << axes[i].getName()
                           << " is declared twice";
  int64_t ranks = 1;
  for (MeshAxisAttr axis : axes) { // (M1)
    if (axis.getSize() > kMaxRanks / ranks)
      return emitError() << "axis " << axis.getName() << " of size "
                         << axis.getSize() << " makes more than " << kMaxRanks
                         << " ranks";
    ranks *= axis.getSize();
  }
  return success();
}

int64_t MeshAttr::getNumRanks() const {
  int64_t ranks = 1;
  for (MeshAxisAttr axis : getAxes())
    ranks *= axis.getSize();
  return ranks;
}

int64_t MeshAttr::getAxisSize(StringRef name) const {
  for (MeshAxisAttr axis : getAxes())
    if (axis.getName() == name)
      return axis.getSize();
  return 0;
}

//===----------------------------------------------------------------------===//
// Shardings
//===----------------------------------------------------------------------===//

Attribute DimShardingAttr::parse(AsmParser &parser, Type) {
  SmallVector<AxisRefAttr> axes;
  bool isOpen = false;
  if (parser.parseLess() || parseAxesInBraces(parser, axes, &isOpen) ||
      parser.parseGreater())
    return {};
  return DimShardingAttr::get(parser.getContext(), axes, isOpen);
}

void DimShardingAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printAxesInBraces(printer, getAxes(), getIsOpen());
  printer << '>';
}

Attribute ShardingAttr::parse(AsmParser &parser, Type) {
  FlatSymbolRefAttr mesh;
  SmallVector<DimShardingAttr> dims;
  ReduceKind kind = ReduceKind::Sum;
  SmallVector<AxisRefAttr> partial, replicated;
  int64_t priority = 0;
  SMLoc loc = parser.getCurrentLocation();
  auto parseDim = [&]() -> ParseResult {
    SmallVector<AxisRefAttr> axes;
    bool isOpen = false;
    if (parseAxesInBraces(parser, axes, &isOpen))
      return failure();
    dims.push_back(DimShardingAttr::get(parser.getContext(), axes, isOpen));
    return success();
  };
  if (parser.parseLess() || parser.parseAttribute(mesh) ||
      parser.parseComma() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseDim))
    return {};
  // The optional parts of a sharding must come in a fixed order. `next` is the
  // number of the first part that may still follow.
  int next = 0;
  while (succeeded(parser.parseOptionalComma())) {
    SMLoc partLoc = parser.getCurrentLocation();
    if (next < 1 && succeeded(parser.parseOptionalKeyword("partial"))) {
      next = 1;
      StringRef keyword;
      if (parser.parseEqual() || parser.parseKeyword(&keyword))
        return {};
      std::optional<ReduceKind> parsed = symbolizeReduceKind(keyword);
      if (!parsed) {
        parser.emitError(partLoc, "expected sum, max or min, found ")
            << keyword;
        return {};
      }
      kind = *parsed;
      if (parseAxesInBraces(parser, partial, nullptr))
        return {};
    } else if (next < 2 &&
               succeeded(parser.parseOptionalKeyword("replicated"))) {
      next = 2;
      if (parser.parseEqual() || parseAxesInBraces(parser, replicated, nullptr))
        return {};
    } else if (next < 3 && succeeded(parser.parseOptionalKeyword("priority"))) {
      next = 3;
      if (parser.parseEqual() || parser.parseInteger(priority))
        return {};
    } else {
      parser.emitError(
          partLoc, "expected partial, replicated or priority, each once and in "
                   "this order");
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  return ShardingAttr::getChecked(
      [&] { return parser.emitError(loc); }, parser.getContext(), mesh,
      ArrayRef<DimShardingAttr>(dims), kind, ArrayRef<AxisRefAttr>(partial),
      ArrayRef<AxisRefAttr>(replicated), priority);
}

void ShardingAttr::print(AsmPrinter &printer) const {
  printer << '<' << getMesh() << ", [";
  llvm::interleaveComma(getDims(), printer, [&](DimShardingAttr dim) {
    printAxesInBraces(printer, dim.getAxes(), dim.getIsOpen());
  });
  printer << ']';
  if (!getPartial().empty()) {
    printer << ", partial = " << stringifyReduceKind(getPartialKind());
    printAxesInBraces(printer, getPartial(), false);
  }
  if (!getReplicated().empty()) {
    printer << ", replicated = ";
    printAxesInBraces(printer, getReplicated(), false);
  }
  if (getPriority() != 0)
    printer << ", priority = " << getPriority();
  printer << '>';
}

/// Checks the constraints that do not depend on the mesh and the tensor type,
/// which are not known here.
LogicalResult ShardingAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   FlatSymbolRefAttr, ArrayRef<DimShardingAttr>,
                                   ReduceKind, ArrayRef<AxisRefAttr>,
                                   ArrayRef<AxisRefAttr>, int64_t priority) {
  if (priority < 0)
    return emitError() << "priority " << priority << " is negative";
  return success();
}

LogicalResult
PlanAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                 AxisListAttr, ArrayAttr factors) {
  if (!llvm::all_of(factors, llvm::IsaPred<AxisListAttr>))
    return emitError() << "#dist.plan has factors = " << factors
                       << "; expected a list of #dist.axes";
  return success();
}
