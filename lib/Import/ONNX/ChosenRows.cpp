// Rows that a mask chooses at run time.

#include "ChosenRows.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

namespace {

enum class Kind { Elementwise, Product, Move, Gather, Sizes, Add, Other };

Kind kindOf(StringRef op) {
  return llvm::StringSwitch<Kind>(op)
      .Cases({"Add", "Sub", "Mul", "Div", "Pow", "Neg", "Sqrt", "Reciprocal"},
             Kind::Elementwise)
      .Cases({"Exp", "Log", "Abs", "Erf", "Tanh", "Sigmoid", "Relu", "Gelu"},
             Kind::Elementwise)
      .Cases({"Min", "Max", "Clip", "Cast", "Identity", "Where", "Swish"},
             Kind::Elementwise)
      .Cases({"HardSigmoid", "HardSwish", "LeakyRelu", "Elu", "Softplus"},
             Kind::Elementwise)
      .Cases({"MatMul", "Gemm"}, Kind::Product)
      .Cases({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Split"},
             Kind::Move)
      .Cases({"Concat", "Expand", "Flatten"}, Kind::Move)
      .Cases({"Gather", "GatherND"}, Kind::Gather)
      .Case("Shape", Kind::Sizes)
      .Cases({"ScatterND", "ScatterElements"}, Kind::Add)
      .Default(Kind::Other);
}

Error refuse(StringRef why) {
  return reason(
      "reads rows that a mask chooses, whose number depends on data; " + why);
}

int64_t countOf(const ChosenRows &rows) { return product(rows.mask.shape); }

/// Dimension `dim` of the shape `from` enumerates the selected rows. Returns
/// the dimension that enumerates them after a reshape to `shape`: the one with
/// the same size, if the product of the sizes before it is the same, too.
/// Returns -1 if there is none.
int64_t sameDim(ArrayRef<int64_t> from, int64_t dim, ArrayRef<int64_t> shape) {
  int64_t before = product(from.take_front(dim)), passed = 1;
  for (auto [index, size] : llvm::enumerate(shape)) {
    if (passed == before && size == from[dim])
      return index;
    passed *= size;
  }
  return -1;
}

/// Lowers NonZero of a tensor whose elements are not known. The result, [rank,
/// number of elements], has the index of every element of the tensor, not only
/// of those that are not zero (see ChosenRows.h).
Error findRows(Node &node) {
  const Operand &input = node.input(0);
  CLEAVE_TRY(mask, node.cast(input, Element::Bool));
  int64_t count = product(input.shape), rank = input.rank(), inner = count;
  if (rank == 0 || count == 0 || count * rank > HostTensor::kMaxElements)
    return reason("its input of shape " + spell(input.shape) +
                  " depends on data and is not of a size that is served");
  HostTensor indices(Element::I64, {rank, count});
  for (int64_t dim = 0; dim < rank; ++dim) {
    inner /= input.shape[dim];
    for (int64_t place = 0; place < count; ++place)
      indices.setInt(dim * count + place, place / inner % input.shape[dim]);
  }
  Operand result{indices};
  result.chosen = std::make_shared<ChosenRows>(ChosenRows{mask});
  result.chosenDim = 1;
  node.set(0, result);
  return Error::success();
}

/// If `indices` lists, for every element of the mask in row-major order, the
/// element's index along one dimension, returns this dimension; otherwise
/// returns -1.
int64_t runsAlong(const HostTensor &indices, ArrayRef<int64_t> shape) {
  llvm::SmallVector<int64_t> values = indices.ints();
  int64_t inner = values.size();
  for (auto [dim, size] : llvm::enumerate(shape)) {
    inner /= size;
    bool runs = true;
    for (auto [place, value] : llvm::enumerate(values))
      runs &= value == int64_t(place) / inner % size;
    if (runs)
      return dim;
  }
  return -1;
}

/// Lowers data[indices[r]] += updates[r] over the rows r that a mask selects.
/// The result is a sum over those dimensions of the mask whose indices are not
/// part of `indices`.
Error addRows(Node &node) {
  const Operand &data = node.input(0), &indices = node.input(1),
                &updates = node.input(2);
  // Assigning to a tensor of zeros is the same as adding to it, because ONNX
  // requires that indices do not repeat.
  std::string reduction = node.stringAttr("reduction", "none");
  if (reduction != "add" && !(reduction == "none" && data.splatValue() == 0.0))
    return refuse("it is supported with reduction 'add', or on zeros");
  if (!indices.isHost() || !indices.chosen ||
      updates.chosen != indices.chosen || updates.chosenDim != 0 ||
      indices.chosenDim != 0 || data.chosen)
    return refuse(
        "it is supported where both indices and updates are such rows");
  const ChosenRows &rows = *indices.chosen;
  if (data.rank() == 0 || indices.rank() == 0)
    return refuse("data " + spell(data.shape) + " or indices " +
                  spell(indices.shape) + " have no dimension");
  bool elements = node.opType() == "ScatterElements";
  Shape inner(data.shape.begin() + 1, data.shape.end()), want = {countOf(rows)};
  llvm::append_range(want, inner);
  Shape zero(indices.rank(), 0), ones(indices.rank(), 1), column = ones;
  column[0] = indices.shape[0];
  bool fits = elements ? node.intAttr("axis", 0) == 0 && indices.shape == want
                       : indices.rank() == 2 && indices.shape[1] == 1;
  // Along the other dimensions the index repeats.
  HostTensor repeats = indices.host->compressed();
  for (int64_t dim = 1; dim < indices.rank(); ++dim)
    fits &= repeats.strides()[dim] == 0 || indices.shape[dim] == 1;
  if (!fits || updates.shape != want)
    return refuse("indices " + spell(indices.shape) + " and updates " +
                  spell(updates.shape) + " do not say one row of data " +
                  spell(data.shape) + " each");
  const Shape &places = rows.mask.shape;
  int64_t along = runsAlong(indices.host->sliced(zero, column, ones), places);
  if (along < 0 || places[along] != data.shape[0])
    return refuse("its indices are no dimension of the mask");
  Shape split = places, ofMask = places;
  llvm::append_range(split, inner);
  ofMask.append(inner.size(), 1);
  CLEAVE_TRY(each, node.reshape(updates, split));
  CLEAVE_TRY(mask, node.reshape(rows.mask, ofMask));
  CLEAVE_TRY(kept, node.select(mask, each, node.splat(updates.type, {}, 0)));
  Shape others;
  for (int64_t dim = 0; dim < int64_t(places.size()); ++dim)
    if (dim != along)
      others.push_back(dim);
  CLEAVE_TRY(sums, reduce(node, nn::Combiner::Sum, kept, others, false));
  return one(node, add(node, data, sums));
}

/// Returns the dimension of a node's result that enumerates the selected rows.
Expected<int64_t> dimOfResult(Node &node, Kind kind, const Operand &result,
                              const ChosenRows &rows) {
  int64_t found = -1, count = countOf(rows);
  auto agree = [&](int64_t dim) {
    bool fits = dim >= 0 && dim < result.rank() && result.shape[dim] == count &&
                (found < 0 || found == dim);
    found = dim;
    return fits;
  };
  auto lost = [&] {
    return refuse("'" + node.opType().str() + "' is not supported along them");
  };
  for (size_t i = 0; i < node.numInputs(); ++i) {
    const Operand &input = node.input(i);
    int64_t dim = input.chosenDim;
    if (!input.chosen || dim < 0)
      continue;
    switch (kind) {
    case Kind::Elementwise:
      if (!agree(dim + result.rank() - input.rank()))
        return lost();
      break;
    case Kind::Product:
      // Rows of the first factor.
      if (i != 0 || dim != input.rank() - 2 || node.intAttr("transA", 0) ||
          !agree(result.rank() - 2))
        return lost();
      break;
    case Kind::Gather: {
      if (node.opType() == "GatherND") {
        if (i != 1 || dim == input.rank() - 1 || !agree(dim))
          return lost();
        break;
      }
      int64_t rank = node.input(0).rank();
      CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", 0), rank));
      int64_t at = i == 1        ? axis + dim
                   : dim < axis  ? dim
                   : dim == axis ? -1
                                 : dim - 1 + node.input(1).rank();
      if (!agree(at))
        return lost();
      break;
    }
    case Kind::Move: {
      StringRef op = node.opType();
      int64_t at;
      if (op == "Transpose") {
        std::optional<Shape> order = node.intsAttr("perm");
        at = order ? llvm::find(*order, dim) - order->begin()
                   : input.rank() - 1 - dim;
      } else if (op == "Slice" || op == "Split" || op == "Concat") {
        at = dim;
      } else if (op == "Expand") {
        at = dim + result.rank() - input.rank();
      } else {
        at = sameDim(input.shape, dim, result.shape);
      }
      if (!agree(at))
        return lost();
      break;
    }
    default:
      return lost();
    }
  }
  // Other operands are broadcast along the rows.
  for (size_t i = 0; i < node.numInputs(); ++i) {
    const Operand &input = node.input(i);
    int64_t dim = found - (result.rank() - input.rank());
    bool meets = kind == Kind::Elementwise ||
                 (kind == Kind::Move && node.opType() == "Concat");
    if (meets && node.has(i) && !input.chosen && dim >= 0 &&
        input.shape[dim] != 1)
      return refuse("an operand of shape " + spell(input.shape) +
                    " has as many elements along them");
  }
  return found;
}

} // namespace

bool meetsChosenRows(const Node &node) {
  if (node.opType() == "NonZero" && !node.input(0).isHost())
    return true;
  for (size_t i = 0; i < node.numInputs(); ++i)
    if (node.input(i).chosen)
      return true;
  return false;
}

Error lowerChosenRows(const OnnxOp &op, Node &node) {
  std::shared_ptr<const ChosenRows> rows;
  bool onlySizes = true, isFirst = false;
  for (size_t i = 0; i < node.numInputs(); ++i) {
    const Operand &input = node.input(i);
    if (!input.chosen)
      continue;
    if (rows && rows != input.chosen)
      return refuse("it mixes rows of two masks");
    rows = input.chosen;
    bool isSizes = input.chosenDim < 0;
    onlySizes &= isSizes;
    isFirst |= i == 0 && !isSizes;
    // The number of selected rows is not known during import. Only operators
    // that move this number may read it, and Reshape and Expand of the rows,
    // which use it as a size.
    if (isSizes && i == 1 && isFirst &&
        (node.opType() == "Reshape" || node.opType() == "Expand"))
      continue;
    if (isSizes && !llvm::is_contained({"Gather", "Slice", "Concat", "Cast",
                                        "Unsqueeze", "Squeeze", "Identity"},
                                       node.opType()))
      return refuse("'" + node.opType().str() + "' computes with their number");
  }
  Kind kind = kindOf(node.opType());
  if (!rows)
    return findRows(node);
  if (kind == Kind::Add)
    return addRows(node);
  if (kind == Kind::Other)
    return refuse("'" + node.opType().str() + "' is not supported on them");
  if (Error error = op.lower(node))
    return error;
  for (Operand &result : node.results) {
    if (!result.value && !result.host && !result.file)
      continue;
    result.chosen = rows;
    result.chosenDim = -1;
    if (onlySizes || kind == Kind::Sizes)
      continue;
    CLEAVE_TRY(dim, dimOfResult(node, kind, result, *rows));
    result.chosenDim = dim;
  }
  return Error::success();
}

} // namespace cleave::importer
