// Verifiers of convolution, pooling and top-k.

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::nn;

namespace {

/// The largest size, stride, dilation or padding of a window. With this bound,
/// products of two of these numbers stay far below 2^63.
constexpr int64_t kMostWindow = int64_t(1) << 24;

/// Checks the attributes of a sliding window and, for each spatial dimension,
/// that the size of `output` follows from that of `input`. `kernel` has the
/// window's size in each spatial dimension.
template <typename Op>
LogicalResult checkWindow(Op op, ArrayRef<int64_t> input,
                          ArrayRef<int64_t> kernel, ArrayRef<int64_t> output) {
  size_t spatial = input.size();
  for (auto [name, list, least] :
       {std::tuple(StringRef("strides"), op.getStrides(), int64_t(1)),
        std::tuple(StringRef("dilations"), op.getDilations(), int64_t(1)),
        std::tuple(StringRef("low"), op.getLow(), int64_t(0)),
        std::tuple(StringRef("high"), op.getHigh(), int64_t(0))}) {
    if (list.size() != spatial)
      return op.emitOpError(name)
             << " has " << list.size() << " entries, expected " << spatial
             << ", one for each spatial dimension";
    for (int64_t entry : list)
      if (entry < least || entry > kMostWindow)
        return op.emitOpError(name)
               << " has " << entry << ", expected at least " << least
               << " and at most " << kMostWindow;
  }
  for (int64_t size : kernel)
    if (size > kMostWindow)
      return op.emitOpError("has a window of ")
             << size << ", expected at most " << kMostWindow;
  for (size_t dim = 0; dim < spatial; ++dim) {
    int64_t reach = (kernel[dim] - 1) * op.getDilations()[dim] + 1;
    int64_t room = input[dim] + op.getLow()[dim] + op.getHigh()[dim] - reach;
    int64_t want = room < 0 ? 0 : room / op.getStrides()[dim] + 1;
    if (kernel[dim] < 1 || want < 1)
      return op.emitOpError("spatial dimension ")
             << dim << " of size " << input[dim]
             << " has no room for a window that reaches over " << reach
             << " elements";
    if (output[dim] != want)
      return op.emitOpError("spatial dimension ")
             << dim << " has " << output[dim] << " windows, expected " << want;
  }
  return success();
}

template <typename Op>
LogicalResult checkConv(Op op, RankedTensorType input, RankedTensorType filter,
                        RankedTensorType result) {
  int64_t rank = input.getRank(), groups = op.getGroups();
  if (rank < 3 || filter.getRank() != rank || result.getRank() != rank)
    return op.emitOpError("has an input of rank ")
           << rank << ", a filter of rank " << filter.getRank()
           << " and a result of rank " << result.getRank()
           << ", expected one rank, at least 3";
  if (input.getElementType() != filter.getElementType() ||
      input.getElementType() != result.getElementType())
    return op.emitOpError("has element types that differ");
  int64_t channels = input.getDimSize(1), features = filter.getDimSize(0);
  if (groups < 1 || channels % groups != 0 || features % groups != 0 ||
      filter.getDimSize(1) * groups != channels)
    return op.emitOpError("has ")
           << groups << " groups for " << channels << " channels, " << features
           << " features and a filter of " << filter.getDimSize(1)
           << " channels; groups divide channels and features, and the "
              "filter has the channels of one group";
  if (result.getDimSize(0) != input.getDimSize(0) ||
      result.getDimSize(1) != features)
    return op.emitOpError("has a result of ")
           << result.getDimSize(0) << " samples and " << result.getDimSize(1)
           << " features, expected " << input.getDimSize(0) << " and "
           << features;
  return checkWindow(op, input.getShape().drop_front(2),
                     filter.getShape().drop_front(2),
                     result.getShape().drop_front(2));
}

/// Returns the first window, of `windows` many, that reads no element of an
/// input dimension of `size` elements, because all of them are in a gap between
/// the dilated window's elements; nullopt if there is none. Such a window
/// begins in the padding, and its dilation exceeds `size`.
std::optional<int64_t> windowWithoutElements(int64_t size, int64_t windows,
                                             int64_t low, int64_t stride,
                                             int64_t dilation) {
  if (dilation <= size)
    return std::nullopt;
  // The first element that a window reads depends on the window's offset modulo
  // `dilation`. These remainders repeat after at most `dilation` windows, so it
  // suffices to test that many windows.
  int64_t count = std::min<int64_t>(
      {int64_t(llvm::divideCeil(low, stride)), dilation, windows});
  for (int64_t at = 0; at < count; ++at)
    if (int64_t place = (at * stride - low) % dilation;
        (place < 0 ? place + dilation : place) >= size)
      return at;
  return std::nullopt;
}

template <typename Op>
LogicalResult checkPool(Op op, RankedTensorType input,
                        RankedTensorType result) {
  if (input.getRank() < 3 || result.getRank() != input.getRank() ||
      input.getElementType() != result.getElementType())
    return op.emitOpError("has types ")
           << input << " and " << result
           << ", expected one element type and one rank, at least 3";
  if (op.getWindow().size() != size_t(input.getRank() - 2))
    return op.emitOpError("window has ")
           << op.getWindow().size() << " entries, expected "
           << input.getRank() - 2;
  if (input.getShape().take_front(2) != result.getShape().take_front(2))
    return op.emitOpError("has samples and channels that differ in ")
           << input << " and " << result;
  if (failed(checkWindow(op, input.getShape().drop_front(2), op.getWindow(),
                         result.getShape().drop_front(2))))
    return failure();
  for (size_t dim = 0; dim < op.getWindow().size(); ++dim)
    if (int64_t most = (op.getWindow()[dim] - 1) * op.getDilations()[dim];
        op.getLow()[dim] > most || op.getHigh()[dim] > most)
      return op.emitOpError("pads spatial dimension ")
             << dim << " by " << op.getLow()[dim] << " and "
             << op.getHigh()[dim] << ", expected at most " << most
             << ", so that each window has an element";
  for (size_t dim = 0; dim < op.getWindow().size(); ++dim)
    if (std::optional<int64_t> at = windowWithoutElements(
            input.getDimSize(dim + 2), result.getDimSize(dim + 2),
            op.getLow()[dim], op.getStrides()[dim], op.getDilations()[dim]))
      return op.emitOpError("has window ")
             << *at << " of spatial dimension " << dim
             << " between the elements of the input; expected each window to "
                "have one";
  return success();
}

} // namespace

LogicalResult ConvOp::verify() {
  return checkConv(*this, typeOf(getInput()), typeOf(getFilter()), getType());
}

LogicalResult ConvInputGradOp::verify() {
  return checkConv(*this, getType(), typeOf(getFilter()),
                   typeOf(getCotangent()));
}

LogicalResult ConvFilterGradOp::verify() {
  return checkConv(*this, typeOf(getInput()), getType(),
                   typeOf(getCotangent()));
}

LogicalResult PoolOp::verify() {
  return checkPool(*this, typeOf(getInput()), getType());
}

LogicalResult PoolGradOp::verify() {
  if (getType() != getInput().getType())
    return emitOpError("has result type ")
           << getType() << ", expected the input's type "
           << getInput().getType();
  return checkPool(*this, typeOf(getInput()), typeOf(getCotangent()));
}

LogicalResult TopKOp::verify() {
  RankedTensorType input = typeOf(getInput());
  int64_t k = getK();
  if (input.getRank() == 0 || k < 1 || k > input.getShape().back()) // (T1)
    return emitOpError("takes ")
           << k << " of " << input
           << ", expected at least 1 and at most the last dimension";
  SmallVector<int64_t> shape(input.getShape());
  shape.back() = k;
  if (typeOf(getValues()) != input.clone(shape) || // (T2)
      typeOf(getIndices()).getShape() != ArrayRef<int64_t>(shape))
    return emitOpError("has results ")
           << getValues().getType() << " and " << getIndices().getType()
           << ", expected the shape of " << input.clone(shape);
  return success();
}
