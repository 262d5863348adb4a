// Verifiers, type inference and folders of shape operations. Labels such as
// (C1) refer to the constraints in NNShapeOps.td.

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::nn;

/// If `input` is a splat, returns it with the result's type; otherwise returns
/// null. Folding a splat never makes the IR larger.
static OpFoldResult foldSplat(Attribute input, RankedTensorType type) {
  if (auto dense = dyn_cast_or_null<DenseElementsAttr>(input);
      dense && dense.isSplat())
    return dense.resizeSplat(type);
  return {};
}

LogicalResult BroadcastOp::verify() {
  RankedTensorType input = typeOf(getInput()), result = getType();
  ArrayRef<int64_t> dims = getDims();
  if (static_cast<int64_t>(dims.size()) != input.getRank()) // (B1)
    return emitOpError("has ")
           << dims.size() << " dims for a rank-" << input.getRank() << " input";
  for (auto [index, dim] : llvm::enumerate(dims)) {
    if (index && dims[index - 1] >= dim) // (B1)
      return emitOpError("dims must be strictly increasing, found ")
             << dims[index - 1] << " before " << dim;
    if (dim < 0 || dim >= result.getRank()) // (B2)
      return emitOpError("dim ") << dim << " is out of range for a rank-"
                                 << result.getRank() << " result";
    if (input.getDimSize(index) != result.getDimSize(dim)) // (B2)
      return emitOpError("input dimension ")
             << index << " has size " << input.getDimSize(index)
             << ", but result dimension " << dim << " has size "
             << result.getDimSize(dim);
  }
  return success();
}

OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getType())
    return getInput();
  return foldSplat(adaptor.getInput(), getType());
}

LogicalResult ReshapeOp::verify() {
  int64_t have = typeOf(getInput()).getNumElements();
  int64_t want = getType().getNumElements();
  if (have != want) // (R1)
    return emitOpError("input has ")
           << have << " elements, but the result has " << want;
  return success();
}

OpFoldResult ReshapeOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getType())
    return getInput();
  if (auto inner = getInput().getDefiningOp<ReshapeOp>()) {
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return foldSplat(adaptor.getInput(), getType());
}

LogicalResult TransposeOp::inferReturnTypes(MLIRContext *,
                                            std::optional<Location> location,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  auto input = cast<RankedTensorType>(adaptor.getInput().getType());
  ArrayRef<int64_t> permutation = adaptor.getPermutation();
  SmallVector<int64_t> sorted(permutation);
  llvm::sort(sorted);
  if (!llvm::equal(sorted, llvm::seq<int64_t>(input.getRank()))) // (T1)
    return emitOptionalError(location, "permutation is not one of the ",
                             input.getRank(), " input dimensions");
  SmallVector<int64_t> shape;
  for (int64_t dim : permutation)
    shape.push_back(input.getDimSize(dim));
  types.push_back(RankedTensorType::get(shape, input.getElementType()));
  return success();
}

OpFoldResult TransposeOp::fold(FoldAdaptor adaptor) {
  ArrayRef<int64_t> permutation = getPermutation();
  if (llvm::equal(permutation, llvm::seq<int64_t>(permutation.size())))
    return getInput();
  if (auto inner = getInput().getDefiningOp<TransposeOp>()) {
    SmallVector<int64_t> composed;
    for (int64_t dim : permutation)
      composed.push_back(inner.getPermutation()[dim]);
    setPermutation(composed);
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return foldSplat(adaptor.getInput(), getType());
}

LogicalResult SliceOp::inferReturnTypes(MLIRContext *,
                                        std::optional<Location> location,
                                        Adaptor adaptor,
                                        SmallVectorImpl<Type> &types) {
  auto input = cast<RankedTensorType>(adaptor.getInput().getType());
  ArrayRef<int64_t> offsets = adaptor.getOffsets(), sizes = adaptor.getSizes(),
                    strides = adaptor.getStrides();
  size_t rank = input.getRank();
  if (offsets.size() != rank || sizes.size() != rank || strides.size() != rank)
    return emitOptionalError(location, "has ", offsets.size(), " offsets, ",
                             sizes.size(), " sizes and ", strides.size(),
                             " strides for a rank-", rank, " input"); // (S1)
  for (auto [dim, size] : llvm::enumerate(input.getShape())) {
    if (strides[dim] == 0) // (S1)
      return emitOptionalError(location, "stride ", dim, " is 0");
    int64_t last = offsets[dim] + (sizes[dim] - 1) * strides[dim];
    if (sizes[dim] < 0 ||
        (sizes[dim] > 0 && (offsets[dim] < 0 || offsets[dim] >= size ||
                            last < 0 || last >= size))) // (S2)
      return emitOptionalError(location, "dimension ", dim, " of size ", size,
                               " has no box from ", offsets[dim], " to ", last);
  }
  types.push_back(RankedTensorType::get(sizes, input.getElementType()));
  return success();
}

OpFoldResult SliceOp::fold(FoldAdaptor adaptor) {
  // A slice that has the shape of the input and strides of 1 is the input
  // itself.
  if (getInput().getType() == getType() &&
      llvm::all_of(getStrides(), [](int64_t stride) { return stride == 1; }))
    return getInput();
  return foldSplat(adaptor.getInput(), getType());
}

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> location,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  if (adaptor.getInputs().empty()) // (C1)
    return emitOptionalError(location, "has no inputs");
  auto first = cast<RankedTensorType>(adaptor.getInputs()[0].getType());
  int64_t dim = adaptor.getDim();
  if (dim >= first.getRank()) // (C1)
    return emitOptionalError(location, "dim ", dim,
                             " is out of range for rank-", first.getRank(),
                             " inputs");
  SmallVector<int64_t> shape(first.getShape());
  shape[dim] = 0;
  for (Value value : adaptor.getInputs()) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> expected(first.getShape());
    if (type.getRank() == first.getRank())
      expected[dim] = type.getDimSize(dim);
    if (type != first.clone(expected)) // (C2)
      return emitOptionalError(location, "input of type ", type,
                               " does not fit ", first, " along dim ", dim);
    shape[dim] += type.getDimSize(dim);
  }
  types.push_back(first.clone(shape));
  return success();
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  return getInputs().size() == 1 ? OpFoldResult(getInputs()[0])
                                 : OpFoldResult();
}

LogicalResult PadOp::verify() {
  RankedTensorType input = typeOf(getInput());
  ArrayRef<int64_t> low = getLow(), high = getHigh();
  size_t rank = input.getRank();
  if (low.size() != rank || high.size() != rank) // (P1)
    return emitOpError("has ")
           << low.size() << " low and " << high.size()
           << " high entries for a rank-" << rank << " input";
  SmallVector<int64_t> shape(input.getShape());
  for (size_t dim = 0; dim < rank; ++dim) {
    if (low[dim] < 0 || high[dim] < 0) // (P1)
      return emitOpError("pads dimension ")
             << dim << " by a negative amount: " << low[dim] << ", "
             << high[dim];
    shape[dim] += low[dim] + high[dim];
  }
  if (RankedTensorType want = input.clone(shape); getType() != want) // (P2)
    return emitOpError("result type ")
           << getType() << " does not follow from the input; expected " << want;
  return success();
}

LogicalResult IotaOp::verify() {
  if (static_cast<int64_t>(getDim()) >= getType().getRank()) // (I1)
    return emitOpError("dim ") << getDim() << " is out of range for a rank-"
                               << getType().getRank() << " result";
  return success();
}
