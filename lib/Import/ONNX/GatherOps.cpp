// Operators that read at indices.

#include "Families.h"

#include "FrozenRow.h"
#include "IndexRange.h"
#include "cleave/Support/Locations.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

namespace {

/// Gathers from a known table [..., n, ...] at known indices along `axis`. The
/// result has the shape of the table with dimension n replaced by the indices'
/// dimensions.
Expected<Operand> gatherKnown(const HostTensor &table,
                              const HostTensor &indices, int64_t axis) {
  Shape shape(table.shape().take_front(axis));
  shape.append(indices.shape().begin(), indices.shape().end());
  shape.append(table.shape().begin() + axis + 1, table.shape().end());
  // Dimensions along which elements are repeated (stride 0) are not expanded.
  Shape live = shape, zero(shape.size(), 0);
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    int64_t d = dim;
    bool repeats = d < axis ? table.strides()[d] == 0
                   : d < axis + indices.rank()
                       ? indices.strides()[d - axis] == 0
                       : table.strides()[d - indices.rank() + 1] == 0;
    if (repeats && shape[dim] > 1)
      live[dim] = 1;
  }
  if (product(live) > HostTensor::kMaxElements)
    return reason("a constant of shape " + spell(shape) +
                  " is too large to evaluate");
  HostTensor result(table.type(), live);
  Shape index(shape.size(), 0);
  int64_t count = product(live);
  for (int64_t n = 0; n < count; ++n) {
    ArrayRef<int64_t> all = index;
    Shape source(all.take_front(axis));
    source.push_back(
        indices.intAt(indices.positionOf(all.slice(axis, indices.rank()))));
    ArrayRef<int64_t> tail = all.drop_front(axis + indices.rank());
    source.append(tail.begin(), tail.end());
    copyElement(result, n, table, table.positionOf(source));
    for (int64_t dim = int64_t(live.size()) - 1; dim >= 0; --dim) {
      if (++index[dim] < live[dim])
        break;
      index[dim] = 0;
    }
  }
  return Operand(result.broadcastTo(shape).compressed());
}

/// Returns the names of the graph inputs that a value depends on, in the order
/// in which a backward search finds them; empty if the search would visit too
/// many operations.
llvm::SmallSetVector<StringAttr, 4> inputsOf(Node &node, Value value) {
  constexpr size_t most = 1000;
  llvm::SmallSetVector<StringAttr, 4> names;
  llvm::SetVector<Value> values;
  values.insert(value);
  for (size_t at = 0; at < values.size(); ++at) {
    if (Operation *op = values[at].getDefiningOp())
      values.insert(op->operand_begin(), op->operand_end());
    else if (auto name = dyn_cast<NameLoc>(values[at].getLoc());
             name && !node.model.findInitializer(name.getName().str()))
      names.insert(name.getName());
    if (values.size() > most)
      return {};
  }
  return names;
}

/// Returns the location of a run-time check of indices. It names the node and
/// the indexed tensor, for the error message.
Location placeOfCheck(Node &node, Value where) {
  const std::string &table = node.proto().input(0);
  if (table.empty())
    return node.loc;
  std::string text = describeLocation(node.loc) + ", which reads " +
                     (node.model.findInitializer(table) ? "table '" : "'") +
                     table + "'";
  auto inputs = inputsOf(node, where);
  if (!inputs.empty())
    text += inputs.size() == 1 ? " by input " : " by inputs ";
  llvm::interleave(
      inputs, [&](StringAttr name) { text += "'" + name.str() + "'"; },
      [&] { text += ", "; });
  return NameLoc::get(node.builder.getStringAttr(text), node.loc);
}

/// Converts negative indices, which count from the end of a dimension. Indices
/// that are elements of a graph input may not be negative. Adds a run-time
/// check, unless the indices are known to be in range or are a whole graph
/// input, which the host checks.
Value insideTable(Node &node, Value where, int64_t size) {
  OpBuilder &b = node.builder;
  // The host checks inputs that the function itself reads, not those that a
  // loop's body reads.
  bool isInLoop =
      !isa_and_nonnull<func::FuncOp>(b.getInsertionBlock()->getParentOp());
  if (!isInLoop && isInput(where, /*parts=*/false))
    return where;
  if (!isInLoop && isInput(where, /*parts=*/true))
    return nn::CheckIndexOp::create(b, placeOfCheck(node, where), where, size);
  std::optional<IndexRange> range = rangeOf(where);
  if (!range || range->low < 0) {
    auto type = cast<RankedTensorType>(where.getType());
    Value zero = nn::createSplat(b, node.loc, type, 0);
    Value count = nn::createSplat(b, node.loc, type, size);
    Value below = arith::CmpIOp::create(b, node.loc, arith::CmpIPredicate::slt,
                                        where, zero);
    Value shifted = arith::AddIOp::create(b, node.loc, where, count);
    where = arith::SelectOp::create(b, node.loc, below, shifted, where);
  }
  bool fits = range && range->low >= -size && range->high < size;
  return fits ? where
              : nn::CheckIndexOp::create(b, placeOfCheck(node, where), where,
                                         size);
}

/// Consider a grid [outer, size, inner] in row-major order, and the index of
/// each of its elements along the dimension of `size`. If `values` is this
/// list, returns outer and inner; otherwise nullopt.
std::optional<std::pair<int64_t, int64_t>> countsOf(ArrayRef<int64_t> values,
                                                    int64_t size) {
  int64_t count = values.size();
  if (size == 0 || count % size)
    return std::nullopt;
  int64_t inner = 0;
  while (inner < count && values[inner] == 0)
    ++inner;
  if (inner == 0 || count % (size * inner))
    return std::nullopt;
  for (int64_t at = 0; at < count; ++at)
    if (values[at] != at / inner % size)
      return std::nullopt;
  return std::pair(count / (size * inner), inner);
}

/// If the indices read a matrix [a, b] in the order of its transpose [b, a],
/// returns a; otherwise nullopt.
std::optional<int64_t> transposeOf(ArrayRef<int64_t> values, int64_t size) {
  if (int64_t(values.size()) != size || size < 4 || values[0] != 0)
    return std::nullopt;
  int64_t columns = values[1];
  if (columns < 2 || size % columns)
    return std::nullopt;
  int64_t rows = size / columns;
  for (int64_t at = 0; at < size; ++at)
    if (values[at] != at % rows * columns + at / rows)
      return std::nullopt;
  return rows;
}

/// Gathers rows at known indices without a gather, if the indices are regular.
/// They are regular if they repeat each row equally often (countsOf), which
/// becomes a broadcast, or read the rows of a matrix in the order of its
/// transpose (transposeOf), which becomes a transpose. Returns nullopt for all
/// other indices.
Expected<std::optional<Operand>> gatherRegular(Node &node, const Operand &table,
                                               ArrayRef<int64_t> values,
                                               int64_t axis) {
  int64_t size = table.shape[axis];
  Shape split(table.shape.begin(), table.shape.begin() + axis), wide = split,
                                                                result = split;
  result.push_back(values.size());
  std::optional<Operand> none;
  auto finish =
      [&](const Operand &operand) -> Expected<std::optional<Operand>> {
    result.append(table.shape.begin() + axis + 1, table.shape.end());
    CLEAVE_TRY(shaped, node.reshape(operand, result));
    return std::optional<Operand>(shaped);
  };
  auto tail = [&](Shape &shape, std::initializer_list<int64_t> sizes) {
    shape.append(sizes);
    shape.append(table.shape.begin() + axis + 1, table.shape.end());
  };
  if (auto repeats = countsOf(values, size)) {
    tail(split, {1, size, 1});
    tail(wide, {repeats->first, size, repeats->second});
    CLEAVE_TRY(narrow, node.reshape(table, split));
    CLEAVE_TRY(spread, node.broadcast(narrow, wide));
    return finish(spread);
  }
  if (auto rows = transposeOf(values, size)) {
    tail(split, {*rows, size / *rows});
    Shape order(split.size());
    for (size_t dim = 0; dim < order.size(); ++dim)
      order[dim] = dim;
    std::swap(order[axis], order[axis + 1]);
    CLEAVE_TRY(matrix, node.reshape(table, split));
    CLEAVE_TRY(turned, node.transpose(matrix, order));
    return finish(turned);
  }
  return none;
}

/// Gathers at known indices from a tensor whose elements are not known.
/// Consecutive indices start, start + 1, ... become a slice.
Expected<Operand> gatherAt(Node &node, const Operand &table,
                           const HostTensor &indices, int64_t axis) {
  Shape liveDims, live;
  for (int64_t dim = 0; dim < indices.rank(); ++dim)
    if (indices.strides()[dim] != 0 && indices.shape()[dim] != 1) {
      liveDims.push_back(dim);
      live.push_back(indices.shape()[dim]);
    }
  Shape zero(indices.rank(), 0), sizes(indices.rank(), 1), ones = sizes;
  for (auto [dim, size] : llvm::zip(liveDims, live))
    sizes[dim] = size;
  HostTensor list = indices.sliced(zero, sizes, ones);
  llvm::SmallVector<int64_t> values = list.ints();
  bool isRun = true;
  for (auto [n, value] : llvm::enumerate(values))
    isRun &= value == values[0] + int64_t(n);
  // [..., live, ...]
  Shape narrow(ArrayRef<int64_t>(table.shape).take_front(axis));
  narrow.append(live.begin(), live.end());
  narrow.append(table.shape.begin() + axis + 1, table.shape.end());
  Operand result;
  if (isRun) {
    Shape offsets(table.rank(), 0), box = table.shape, steps(table.rank(), 1);
    offsets[axis] = values[0];
    box[axis] = values.size();
    CLEAVE_TRY(rows, node.slice(table, offsets, box, steps));
    CLEAVE_TRY(shaped, node.reshape(rows, narrow));
    result = shaped;
  } else if (live.size() == 1) {
    CLEAVE_TRY(regular, gatherRegular(node, table, values, axis));
    if (regular)
      result = *regular;
  }
  if (!result.value && !result.host && !result.file) {
    CLEAVE_TRY(data, node.value(table));
    CLEAVE_TRY(where, node.value(Operand(list.reshaped(live))));
    result = Operand(
        nn::GatherOp::create(node.builder, node.loc, data, where, axis));
  }
  // Restores the dimensions of the indices that have size 1 or along which the
  // indices repeat.
  Shape unit(ArrayRef<int64_t>(table.shape).take_front(axis)), wide = unit;
  unit.append(sizes.begin(), sizes.end());
  wide.append(indices.shape().begin(), indices.shape().end());
  unit.append(table.shape.begin() + axis + 1, table.shape.end());
  wide.append(table.shape.begin() + axis + 1, table.shape.end());
  CLEAVE_TRY(shaped, node.reshape(result, unit));
  return node.broadcast(shaped, wide);
}

/// `frozenRow` is the row that gets no gradient, if there is one.
Expected<Operand> gather(Node &node, const Operand &table,
                         const Operand &indices, int64_t axis,
                         std::optional<int64_t> frozenRow = std::nullopt) {
  int64_t size = table.shape[axis];
  if (indices.isHost()) {
    if (product(indices.shape) == 0) {
      Shape shape(ArrayRef<int64_t>(table.shape).take_front(axis));
      shape.append(indices.shape.begin(), indices.shape.end());
      shape.append(table.shape.begin() + axis + 1, table.shape.end());
      return node.splat(table.type, shape, 0);
    }
    CLEAVE_TRY(known, normalised(*indices.host, size, table.type));
    if (table.isHost())
      return gatherKnown(*table.host, known, axis);
    if (!frozenRow || !llvm::is_contained(known.ints(), *frozenRow))
      return gatherAt(node, table, known, axis);
  }
  CLEAVE_TRY(data, node.value(table));
  CLEAVE_TRY(where, node.value(indices));
  where = insideTable(node, where, size);
  auto rows = nn::GatherOp::create(node.builder, node.loc, data, where, axis);
  if (frozenRow)
    rows->setAttr("nn.frozen_row", node.builder.getI64IntegerAttr(*frozenRow));
  return Operand(rows);
}

Error lowerGather(Node &node) {
  const Operand &table = node.input(0);
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", 0), table.rank()));
  std::optional<int64_t> frozenRow;
  if (axis == 0)
    frozenRow = frozenRowOf(node.proto());
  return one(node, gather(node, table, node.input(1), axis, frozenRow));
}

/// Lowers GatherND. The last dimension of the indices indexes the first
/// dimensions of the data. These are merged into one dimension, which is then
/// indexed by a single number.
Error lowerGatherND(Node &node) {
  const Operand &data = node.input(0), &indices = node.input(1);
  if (Error error = node.expectAttr("batch_dims", 0, 0))
    return error;
  if (indices.rank() == 0 || indices.shape.back() > data.rank())
    return reason("indices " + spell(indices.shape) + " do not fit data " +
                  spell(data.shape));
  int64_t depth = indices.shape.back();
  Shape outer(indices.shape.begin(), indices.shape.end() - 1);
  if (!indices.isHost() && depth == 1) {
    CLEAVE_TRY(rows, node.reshape(indices, outer));
    return one(node, gather(node, data, rows, 0));
  }
  if (!indices.isHost())
    return reason("its indices depend on data, and are of " + Twine(depth) +
                  " dimensions; of one they are supported");
  HostTensor flat = HostTensor::splat(Element::I64, outer, 0);
  int64_t rows = 1;
  for (int64_t dim = 0; dim < depth; ++dim) {
    Shape offsets(indices.rank(), 0), sizes = indices.shape,
                                      ones(indices.rank(), 1);
    offsets.back() = dim;
    sizes.back() = 1;
    HostTensor column =
        indices.host->sliced(offsets, sizes, ones).reshaped(outer);
    CLEAVE_TRY(inside, normalised(column, data.shape[dim], data.type));
    HostTensor scale = HostTensor::ofInt(data.shape[dim]);
    CLEAVE_TRY(sum,
               mapInts(Element::I64, {&flat, &inside, &scale},
                       [](const int64_t *v) { return v[0] * v[2] + v[1]; }));
    flat = sum;
    rows *= data.shape[dim];
  }
  Shape shape = {rows};
  shape.append(data.shape.begin() + depth, data.shape.end());
  CLEAVE_TRY(table, node.reshape(data, shape));
  return one(node, gather(node, table, Operand(flat), 0));
}

/// Returns whether all elements along a dimension are known to be equal.
bool repeatsAlong(const Operand &operand, int64_t dim) {
  if (operand.shape[dim] == 1)
    return true;
  if (operand.isHost())
    return operand.host->compressed().strides()[dim] == 0;
  Value value = operand.value;
  while (value) {
    if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>()) {
      auto dims = broadcast.getDims();
      auto at = llvm::find(dims, dim);
      if (at == dims.end())
        return true;
      dim = at - dims.begin();
      value = broadcast.getInput();
      continue;
    }
    // A reshape that only adds or removes dimensions of size 1 is looked
    // through, since it keeps the order of the other dimensions.
    auto reshape = value.getDefiningOp<nn::ReshapeOp>();
    if (!reshape)
      return false;
    auto sizesOf = [](Value value) {
      return cast<RankedTensorType>(value.getType()).getShape();
    };
    auto isLong = [](int64_t size) { return size != 1; };
    ArrayRef<int64_t> to = sizesOf(value), from = sizesOf(reshape.getInput());
    if (to[dim] == 1)
      return true;
    Shape longTo, longFrom;
    llvm::copy_if(to, std::back_inserter(longTo), isLong);
    llvm::copy_if(from, std::back_inserter(longFrom), isLong);
    if (longTo != longFrom)
      return false;
    int64_t place = llvm::count_if(to.take_front(dim), isLong);
    for (dim = 0; !isLong(from[dim]) || place-- > 0;)
      ++dim;
    value = reshape.getInput();
  }
  return false;
}

/// Lowers torch.gather to a gather of whole rows. Its index has the same rank
/// as the data. Along each dimension except the axis, either the elements of
/// the index or those of the data must be repeated. If the elements of the
/// index are repeated, the data is cut to the size of the index. If the
/// elements of the data are repeated, one slice of the data is read.
Expected<Operand> gatherRows(Node &node, const Operand &data,
                             const Operand &indices, int64_t axis) {
  Shape dataBox = data.shape, indexBox = indices.shape, zero(data.rank(), 0),
        ones(data.rank(), 1), dataShape, indexShape, order(data.rank());
  // The dimensions of the result of torch.gather, in groups: those before the
  // axis, those of the index in place of the axis, and those after it.
  Shape before, middle, after;
  for (int64_t dim = 0; dim < data.rank(); ++dim) {
    if (dim == axis) {
      middle.push_back(dim);
      dataShape.push_back(data.shape[dim]);
      indexShape.push_back(indices.shape[dim]);
      continue;
    }
    if (repeatsAlong(indices, dim)) {
      dataBox[dim] = indices.shape[dim];
      indexBox[dim] = 1;
      (dim < axis ? before : after).push_back(dim);
      dataShape.push_back(dataBox[dim]);
      continue;
    }
    if (!repeatsAlong(data, dim))
      return reason("both its data " + spell(data.shape) + " and its indices " +
                    spell(indices.shape) + " vary along dimension " +
                    Twine(dim) +
                    "; it is supported where one of them repeats along each "
                    "dimension but the axis; what picks one element of each "
                    "row is also (data * one_hot(index)).sum(axis)");
    dataBox[dim] = 1;
    middle.push_back(dim);
    indexShape.push_back(indices.shape[dim]);
  }
  CLEAVE_TRY(dataCut, node.slice(data, zero, dataBox, ones));
  CLEAVE_TRY(table, node.reshape(dataCut, dataShape));
  CLEAVE_TRY(indexCut, node.slice(indices, zero, indexBox, ones));
  CLEAVE_TRY(rows, node.reshape(indexCut, indexShape));
  CLEAVE_TRY(result, gather(node, table, rows, before.size()));
  // The gathered value has the dimensions before the indexed ones, then the
  // indexed ones, then those after. Transposes it to the order of the data's
  // dimensions.
  Shape dims = before;
  dims.append(middle);
  dims.append(after);
  for (auto [place, dim] : llvm::enumerate(dims))
    order[dim] = place;
  return node.transpose(result, order);
}

Error lowerGatherElements(Node &node) {
  const Operand &table = node.input(0);
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", 0), table.rank()));
  bool fits = node.input(1).rank() == table.rank();
  for (int64_t dim = 0; fits && dim < table.rank(); ++dim)
    fits = dim == axis || node.input(1).shape[dim] <= table.shape[dim];
  if (!fits)
    return reason("indices " + spell(node.input(1).shape) +
                  " do not fit data " + spell(table.shape));
  if (areOfTopK(node.input(1), axis) && axis == table.rank() - 1)
    return one(node, gatherChosen(node, table, node.input(1), axis));
  if (!table.isHost() || !node.input(1).isHost())
    return one(node, gatherRows(node, table, node.input(1), axis));
  const HostTensor &data = *table.host;
  CLEAVE_TRY(indices,
             normalised(*node.input(1).host, data.shape()[axis], data.type()));
  if (indices.size() > HostTensor::kMaxElements)
    return reason("a constant of shape " + spell(indices.shape()) +
                  " is too large to evaluate");
  HostTensor result(data.type(), indices.shape());
  Shape index(indices.rank(), 0);
  for (int64_t n = 0, count = indices.size(); n < count; ++n) {
    Shape source = index;
    source[axis] = indices.intAt(indices.positionOf(index));
    copyElement(result, n, data, data.positionOf(source));
    for (int64_t dim = indices.rank() - 1; dim >= 0; --dim) {
      if (++index[dim] < indices.shape()[dim])
        break;
      index[dim] = 0;
    }
  }
  node.set(0, Operand(result));
  return Error::success();
}

} // namespace

void addGatherOps(std::vector<OnnxOp> &table) {
  auto op = [&](llvm::StringRef name, LowerFunction lower) {
    table.push_back(
        {name, kOldest, kNewest, 1, "nn.gather nn.check_index", lower});
  };
  op("Gather", lowerGather);
  op("GatherElements", lowerGatherElements);
  op("GatherND", lowerGatherND);
}

} // namespace cleave::importer
