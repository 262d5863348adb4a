// Verifiers and type inference of contractions, reductions and indexing.

#include "cleave/Dialect/NN/IR/NN.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace cleave::nn;

EinsumOp::Labels EinsumOp::parseLabels(StringRef equation) {
  auto [inputs, result] = equation.split("->");
  auto [lhs, rhs] = inputs.split(',');
  return {lhs.str(), rhs.str(), result.str()};
}

/// Checks the letters of one tensor in an einsum's equation, as constraint (E1)
/// of nn.einsum demands: all characters are letters, each at most once.
static bool isLabelString(StringRef labels) {
  return llvm::all_of(labels, llvm::isAlpha) &&
         llvm::all_of(labels, [&](char c) { return labels.count(c) == 1; });
}

LogicalResult EinsumOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> location,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  StringRef equation = adaptor.getEquation();
  Labels labels = parseLabels(equation);
  if (equation.count("->") != 1 || equation.count(',') != 1 ||
      !isLabelString(labels.lhs) || !isLabelString(labels.rhs) ||
      !isLabelString(labels.result)) // (E1)
    return emitOptionalError(location, "equation '", equation,
                             "' is not of the form 'ab,bc->ac'");
  auto lhs = cast<RankedTensorType>(adaptor.getLhs().getType());
  auto rhs = cast<RankedTensorType>(adaptor.getRhs().getType());
  if (static_cast<int64_t>(labels.lhs.size()) != lhs.getRank() ||
      static_cast<int64_t>(labels.rhs.size()) != rhs.getRank()) // (E2)
    return emitOptionalError(location, "equation '", equation,
                             "' does not fit operands of ranks ", lhs.getRank(),
                             " and ", rhs.getRank());
  if (lhs.getElementType() != rhs.getElementType())
    return emitOptionalError(location, "operands have element types ",
                             lhs.getElementType(), " and ",
                             rhs.getElementType());
  for (auto [dim, label] : llvm::enumerate(labels.lhs)) {
    size_t other = labels.rhs.find(label);
    if (other != std::string::npos &&
        lhs.getDimSize(dim) != rhs.getDimSize(other)) // (E2)
      return emitOptionalError(location, "label '", Twine(label),
                               "' has sizes ", lhs.getDimSize(dim), " and ",
                               rhs.getDimSize(other));
  }
  SmallVector<int64_t> shape;
  for (char label : labels.result) {
    size_t left = labels.lhs.find(label), right = labels.rhs.find(label);
    if (left == std::string::npos && right == std::string::npos) // (E3)
      return emitOptionalError(location, "label '", Twine(label),
                               "' of the result stands in no operand");
    shape.push_back(left != std::string::npos ? lhs.getDimSize(left)
                                              : rhs.getDimSize(right));
  }
  for (char label : labels.lhs + labels.rhs)
    if (labels.result.find(label) == std::string::npos &&
        (labels.lhs.find(label) == std::string::npos ||
         labels.rhs.find(label) == std::string::npos)) // (E3)
      return emitOptionalError(location, "label '", Twine(label),
                               "' of one operand is missing in the result");
  types.push_back(RankedTensorType::get(shape, lhs.getElementType()));
  return success();
}

bool EinsumOp::isCompatibleReturnTypes(TypeRange inferred, TypeRange found) {
  auto want = dyn_cast<RankedTensorType>(inferred[0]),
       have = dyn_cast<RankedTensorType>(found[0]);
  return want && have && want.getShape() == have.getShape() &&
         isProductType(want.getElementType(), have.getElementType()); // (E4)
}

LogicalResult ReduceOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> location,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  auto input = cast<RankedTensorType>(adaptor.getInput().getType());
  ArrayRef<int64_t> dims = adaptor.getDims();
  for (auto [index, dim] : llvm::enumerate(dims))
    if (dim < 0 || dim >= input.getRank() ||
        (index && dims[index - 1] >= dim)) // (R1)
      return emitOptionalError(location,
                               "dims must be increasing dimensions "
                               "of a rank-",
                               input.getRank(), " input, found ", dim);
  SmallVector<int64_t> shape;
  for (int64_t dim = 0; dim < input.getRank(); ++dim)
    if (!llvm::is_contained(dims, dim))
      shape.push_back(input.getDimSize(dim));
  types.push_back(RankedTensorType::get(shape, input.getElementType()));
  return success();
}

OpFoldResult ReduceOp::fold(FoldAdaptor) {
  return getDims().empty() ? OpFoldResult(getInput()) : OpFoldResult();
}

LogicalResult ArgMaxOp::verify() {
  auto input = cast<RankedTensorType>(getInput().getType());
  int64_t dim = getDim();
  if (dim >= input.getRank()) // (A1)
    return emitOpError("dim ") << dim << " is out of range for a rank-"
                               << input.getRank() << " input";
  SmallVector<int64_t> shape(input.getShape());
  shape.erase(shape.begin() + dim);
  if (getType().getShape() != ArrayRef<int64_t>(shape)) // (A1)
    return emitOpError("result type ")
           << getType() << " does not follow from the input; expected "
           << getType().clone(shape);
  return success();
}

/// Returns the shape of `table` with dimension `dim` replaced by the shape of
/// `indices`.
static SmallVector<int64_t>
gatheredShape(ArrayRef<int64_t> table, ArrayRef<int64_t> indices, int64_t dim) {
  SmallVector<int64_t> shape(table.take_front(dim));
  llvm::append_range(shape, indices);
  llvm::append_range(shape, table.drop_front(dim + 1));
  return shape;
}

LogicalResult GatherOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> location,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  auto table = cast<RankedTensorType>(adaptor.getTable().getType());
  auto indices = cast<RankedTensorType>(adaptor.getIndices().getType());
  int64_t dim = adaptor.getDim();
  if (dim >= table.getRank()) // (G1)
    return emitOptionalError(location, "dim ", dim,
                             " is out of range for a rank-", table.getRank(),
                             " table");
  types.push_back(
      table.clone(gatheredShape(table.getShape(), indices.getShape(), dim)));
  return success();
}

LogicalResult ScatterAddOp::verify() {
  RankedTensorType table = getType();
  int64_t dim = getDim();
  if (dim >= table.getRank()) // (S1)
    return emitOpError("dim ") << dim << " is out of range for a rank-"
                               << table.getRank() << " result";
  auto indices = cast<RankedTensorType>(getIndices().getType());
  RankedTensorType want =
      table.clone(gatheredShape(table.getShape(), indices.getShape(), dim));
  if (getUpdates().getType() != want) // (S2)
    return emitOpError("updates have type ")
           << getUpdates().getType() << ", expected " << want;
  return success();
}
