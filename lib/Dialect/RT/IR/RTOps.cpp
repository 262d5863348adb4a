// Verifiers and command interface methods of launches, collectives and copies.

#include "RTVerify.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::rt;

//===----------------------------------------------------------------------===//
// rt.launch
//===----------------------------------------------------------------------===//

LogicalResult LaunchOp::verify() {
  if (getExtent() < 0 || getGrain() <= 0) // (L2)
    return emitOpError("extent is ")
           << getExtent() << " and grain " << getGrain()
           << ", expected at least 0 and 1";
  ArrayRef<int64_t> pairs = getInplace();
  if (pairs.size() % 2) // (L3)
    return emitOpError("inplace has ")
           << pairs.size() << " entries, expected pairs";
  for (size_t i = 0; i < pairs.size(); i += 2) {
    int64_t result = pairs[i], operand = pairs[i + 1];
    if (result < 0 || result >= int64_t(getNumResults()) || operand < 0 ||
        operand >= int64_t(getNumOperands())) // (L3)
      return emitOpError("inplace pair (")
             << result << ", " << operand << ") names no result and operand";
    RankedTensorType from = typeOf(getOperand(operand));
    RankedTensorType to = typeOf(getResult(result));
    if (!from.getElementType().isIntOrFloat() ||
        !to.getElementType().isIntOrFloat()) // (L3)
      return emitOpError("inplace pair (")
             << result << ", " << operand << ") has types " << to << " and "
             << from << ", expected integers or floats as elements";
    if (from.getNumElements() * from.getElementTypeBitWidth() <
        to.getNumElements() * to.getElementTypeBitWidth()) // (L3)
      return emitOpError("result ") << result << " is larger than operand "
                                    << operand << " whose memory it would take";
  }
  return success();
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel = symbols.lookupNearestSymbolFrom<FunctionOpInterface>(
      *this, getKernelAttr());
  if (!kernel) // (L1)
    return emitOpError("kernel ") << getKernelAttr() << " is not a function";
  if (!llvm::equal(kernel.getArgumentTypes(), getOperandTypes()) ||
      !llvm::equal(kernel.getResultTypes(), getResultTypes())) // (L1)
    return emitOpError("operands and results do not have the types of ")
           << getKernelAttr();
  return success();
}

SmallVector<Reuse> LaunchOp::getReuse() {
  SmallVector<Reuse> reuse;
  ArrayRef<int64_t> pairs = getInplace();
  for (size_t i = 0; i + 1 < pairs.size(); i += 2)
    reuse.push_back({unsigned(pairs[i]), unsigned(pairs[i + 1]), false});
  return reuse;
}

//===----------------------------------------------------------------------===//
// rt.collective, rt.wait
//===----------------------------------------------------------------------===//

int64_t CollectiveOp::getGroupSize() {
  int64_t size = 1;
  for (size_t i = 2; i < getGroup().size(); i += 3)
    size *= getGroup()[i];
  return size;
}

static void encodeAxes(const std::vector<cleave::program::SubAxis> &axes,
                       SmallVectorImpl<int64_t> &into) {
  into.push_back(axes.size());
  for (const cleave::program::SubAxis &sub : axes)
    into.append({sub.axis, sub.pre, sub.size});
}

void cleave::rt::encodeExchange(const cleave::program::Exchange &exchange,
                                SmallVectorImpl<int64_t> &into) {
  into.push_back(exchange.shape.size());
  llvm::append_range(into, exchange.shape);
  for (const std::vector<cleave::program::SubAxis> &axes : exchange.from)
    encodeAxes(axes, into);
  for (const std::vector<cleave::program::SubAxis> &axes : exchange.to)
    encodeAxes(axes, into);
  encodeAxes(exchange.partial, into);
  encodeAxes(exchange.toPartial, into);
  into.push_back(exchange.rounds);
}

std::optional<std::vector<cleave::program::Exchange>>
CollectiveOp::describeExchanges() {
  ArrayRef<int64_t> rest = getExchanges();
  bool good = true;
  auto next = [&]() -> int64_t {
    good &= !rest.empty();
    if (!good)
      return 0;
    int64_t value = rest.front();
    rest = rest.drop_front();
    return value;
  };
  // The count of the list's entries is encoded before them. It is checked
  // against the number of integers that remain, because a wrong count could
  // exhaust memory.
  auto count = [&](int64_t width) {
    int64_t value = next();
    good &= value >= 0 && value <= int64_t(rest.size()) / width;
    return good ? value : 0;
  };
  auto axes = [&] {
    std::vector<cleave::program::SubAxis> list(count(3));
    for (cleave::program::SubAxis &sub : list) {
      sub.axis = next();
      sub.pre = next();
      sub.size = next();
      good &= sub.axis >= 0 && sub.pre > 0 && sub.size > 0;
    }
    return list;
  };
  std::vector<cleave::program::Exchange> exchanges;
  while (good && !rest.empty()) {
    cleave::program::Exchange &exchange = exchanges.emplace_back();
    exchange.shape.resize(count(1));
    for (int64_t &size : exchange.shape)
      size = next();
    for (size_t i = 0; i < exchange.shape.size(); ++i)
      exchange.from.push_back(axes());
    for (size_t i = 0; i < exchange.shape.size(); ++i)
      exchange.to.push_back(axes());
    exchange.partial = axes();
    exchange.toPartial = axes();
    exchange.rounds = next();
    good &= exchange.rounds == 1 || exchange.rounds == 2;
  }
  if (!good)
    return std::nullopt;
  return exchanges;
}

LogicalResult CollectiveOp::verify() {
  size_t count = getInputs().size();
  size_t tokens = 0;
  for (Type type : getResultTypes())
    tokens += isa<TokenType>(type);
  if (!count || getNumResults() != count + tokens || tokens > 1 ||
      (tokens &&
       !isa<TokenType>((*this)->getResults().back().getType()))) // (C1)
    return emitOpError("has ")
           << count << " operands and " << getNumResults() << " results";
  Type element = typeOf(getInputs()[0]).getElementType();
  for (Value value : llvm::concat<Value>(SmallVector<Value>(getInputs()),
                                         SmallVector<Value>(getValues())))
    if (typeOf(value).getElementType() != element) // (C1)
      return emitOpError("mixes element types ")
             << element << " and " << typeOf(value).getElementType();
  ArrayRef<int64_t> group = getGroup();
  bool wellFormed = !group.empty() && group.size() % 3 == 0;
  for (size_t i = 0; wellFormed && i < group.size(); i += 3)
    wellFormed = group[i] >= 0 && group[i + 1] > 0 && group[i + 2] > 0;
  if (!wellFormed) // (C2)
    return emitOpError("group is [")
           << group << "], expected triples (axis, pre, size)";
  ArrayRef<int64_t> layout = getLayout();
  if (layout.size() != 4 * count) // (C3)
    return emitOpError("layout has ")
           << layout.size() << " entries, expected " << 4 * count;
  int64_t members = getGroupSize();
  CollectiveKind kind = getKind();
  for (size_t i = 0; i < count; ++i) {
    int64_t block = layout[4 * i] * layout[4 * i + 1];
    int64_t resultBlock = layout[4 * i + 2] * layout[4 * i + 3];
    int64_t source = block, result = block;
    if (kind == CollectiveKind::AllGather)
      result *= members;
    else if (kind == CollectiveKind::ReduceScatter)
      source *= members;
    else if (kind == CollectiveKind::AllToAll)
      source *= members, result = resultBlock * members;
    else if (kind == CollectiveKind::AllToAllV)
      source *= members, result = resultBlock * members;
    else if (kind == CollectiveKind::Exchange)
      result = resultBlock;
    if (typeOf(getInputs()[i]).getNumElements() != source ||
        typeOf(getResults()[i]).getNumElements() != result) // (C3)
      return emitOpError("layout of operand ")
             << i << " speaks of " << source << " and " << result
             << " elements, but its types are " << typeOf(getInputs()[i])
             << " and " << typeOf(getResults()[i]);
  }
  size_t sources = kind == CollectiveKind::Permute ? members : 0;
  if (getSources().size() != sources) // (C4)
    return emitOpError("has ")
           << getSources().size() << " sources, expected " << sources;
  for (int64_t source : getSources())
    if (source < -1 || source >= members) // (C4)
      return emitOpError("source ")
             << source << " is no member of a group of " << members;
  auto exchanges = describeExchanges();
  if (!exchanges || exchanges->size() !=
                        (kind == CollectiveKind::Exchange ? count : 0)) // (C5)
    return emitOpError("describes ")
           << (exchanges ? std::to_string(exchanges->size()) : "malformed")
           << " exchanges, expected "
           << (kind == CollectiveKind::Exchange ? count : 0);
  bool counts = kind == CollectiveKind::AllToAllV;
  if (getCounts().size() != (counts ? 2 : 0)) // (C6)
    return emitOpError("has ")
           << getCounts().size() << " counts, expected " << (counts ? 2 : 0);
  for (Value value : getCounts())
    if (typeOf(value).getNumElements() != members) // (C6)
      return emitOpError("counts has type ")
             << value.getType() << ", expected one number for each of "
             << members << " members";
  return success();
}

SmallVector<Reuse> CollectiveOp::getReuse() {
  SmallVector<Reuse> reuse;
  if (getKind() == CollectiveKind::AllReduce ||
      getKind() == CollectiveKind::Broadcast)
    for (unsigned i = 0; i < getInputs().size(); ++i)
      reuse.push_back({i, i, false});
  return reuse;
}

LogicalResult WaitOp::verify() {
  auto start = getToken().getDefiningOp<CollectiveOp>();
  if (!start) // (W1)
    return emitOpError("token does not come from a collective");
  if (!llvm::equal(start.getValues(), getValues()) ||
      !llvm::equal(start->getOperands(), getSources())) // (W1)
    return emitOpError("values and sources are not the results and operands "
                       "of the collective that it ends");
  if (!llvm::equal(getResultTypes(), getValues().getTypes())) // (W2)
    return emitOpError("results do not have the types of its values");
  return success();
}

std::optional<Alias> WaitOp::getAlias(unsigned result) {
  OpOperand &value = getValuesMutable()[result];
  return Alias{
      value.getOperandNumber(), 0, {}, typeOf(value.get()).getNumElements()};
}

//===----------------------------------------------------------------------===//
// rt.copy, rt.fill, rt.alias
//===----------------------------------------------------------------------===//

/// Checks that `axis_terms` is a list of quadruples (axis, pre, size,
/// elements). Each quadruple adds `elements` times the rank's index on a
/// sub-axis of the mesh to an offset. `size` is the size of the sub-axis, and
/// `pre` is the product of the sizes of the sub-axes of `axis` that are major
/// to it, as in Shardy.
static LogicalResult verifyTerms(Operation *op, ArrayRef<int64_t> terms) {
  if (terms.size() % 4 != 0)
    return op->emitOpError("has ")
           << terms.size() << " numbers in axis_terms, expected four for "
           << "each term (axis, pre, size, elements)";
  return success();
}

LogicalResult CopyOp::verify() {
  RankedTensorType source = typeOf(getSource()), result = getType();
  if (failed(verifyTerms(*this, getAxisTerms()))) // (Y3)
    return failure();
  if (source.getElementType() != result.getElementType()) // (Y1)
    return emitOpError("copies ") << source << " to " << result;
  if (getDestination() && getDestination().getType() != result) // (Y1)
    return emitOpError("destination has type ")
           << getDestination().getType() << ", expected " << result;
  // (Y2) If the offset depends on the rank, the bounds cannot be checked here.
  if (!getAxisTerms().empty()) {
    if (getSourceView().size() != getShape().size() + 1)
      return emitOpError("view of source has ")
             << getSourceView().size() << " entries, expected an offset and "
             << getShape().size() << " strides";
  } else if (failed(verifyView(*this, "source", getSourceView(), getShape(),
                               getSource()))) { // (Y2)
    return failure();
  }
  return verifyView(*this, "result", getResultView(), getShape(),
                    getResult()); // (Y2)
}

SmallVector<Reuse> CopyOp::getReuse() {
  if (!getDestination())
    return {};
  return {{0, getDestinationMutable().begin()->getOperandNumber(), true}};
}

LogicalResult FillOp::verify() {
  if (getValue().getType() != getType().getElementType()) // (F1)
    return emitOpError("value has type ")
           << getValue().getType() << ", expected "
           << getType().getElementType();
  return success();
}

LogicalResult AliasOp::verify() {
  if (failed(verifyTerms(*this, getAxisTerms()))) // (V4)
    return failure();
  RankedTensorType source = typeOf(getSource());
  if (source.getElementType() != getType().getElementType()) // (V1)
    return emitOpError("shows ") << source << " as " << getType();
  if (int64_t(getOffset()) < 0 ||
      llvm::any_of(getAxisTerms(),
                   [](int64_t term) { return term < 0; })) // (V2)
    return emitOpError("offset ") << int64_t(getOffset()) << " and terms ["
                                  << getAxisTerms() << "] must not be negative";
  int64_t end = getAlias(0)->reach;
  if (int64_t(getReach()) == 0 && end > source.getNumElements()) // (V3)
    return emitOpError("ends at element ")
           << end << " of " << source.getNumElements();
  return success();
}

int64_t Alias::lastOffset() const {
  int64_t last = offset;
  for (ArrayRef<int64_t> rest = axisTerms; !rest.empty();
       rest = rest.drop_front(4))
    last += (rest[2] - 1) * rest[3];
  return last;
}

std::optional<Alias> AliasOp::getAlias(unsigned) {
  Alias alias{0, int64_t(getOffset()), getAxisTerms()};
  alias.reach = std::max<int64_t>(getReach(), alias.lastOffset() +
                                                  getType().getNumElements());
  return alias;
}
