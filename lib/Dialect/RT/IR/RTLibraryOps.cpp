// Verifiers and command interface methods of library calls: products and
// attention.

#include "RTVerify.h"

using namespace mlir;
using namespace cleave::rt;

LogicalResult cleave::rt::verifyView(Operation *op, StringRef name,
                                     ArrayRef<int64_t> view,
                                     ArrayRef<int64_t> sizes, Value tensor) {
  if (view.size() != sizes.size() + 1)
    return op->emitOpError()
           << "view of " << name << " has " << view.size()
           << " entries, expected an offset and " << sizes.size() << " strides";
  int64_t low = view[0], high = view[0];
  for (auto [stride, size] : llvm::zip(view.drop_front(), sizes))
    (stride < 0 ? low : high) += stride * (size - 1);
  int64_t elements = cast<RankedTensorType>(tensor.getType()).getNumElements();
  if (low < 0 || high >= elements)
    return op->emitOpError() << "view of " << name << " covers elements " << low
                             << " to " << high << " of " << elements;
  return success();
}

/// Returns whether a product of these operands may have this result type: that
/// of the operands or, for bf16 (which is accumulated in f32), also f32.
static bool isProductType(Type operand, Type result) {
  return result == operand || (operand.isBF16() && result.isF32());
}

static Type elementType(Value value) {
  return cast<RankedTensorType>(value.getType()).getElementType();
}

//===----------------------------------------------------------------------===//
// rt.gemm
//===----------------------------------------------------------------------===//

/// Checks that a command has `count` results, and possibly one more of element
/// type i8, its scratch memory.
static LogicalResult verifyScratch(Operation *op, size_t count) {
  if (op->getNumResults() == count)
    return success();
  if (op->getNumResults() == count + 1 &&
      elementType(op->getResults().back()).isInteger(8))
    return success();
  return op->emitOpError("has ")
         << op->getNumResults() << " results, expected " << count
         << " and perhaps scratch memory of i8";
}

LogicalResult GemmOp::verify() {
  if (failed(verifyScratch(*this, getNumOwnResults()))) // (G5)
    return failure();
  Type element = elementType(getA());
  if (!isProductType(element, elementType(getC()))) // (G1)
    return emitOpError("c has element type ")
           << elementType(getC()) << ", expected " << element
           << (element.isBF16() ? " or 'f32'" : "");
  for (auto [name, value] :
       {std::pair<StringRef, Value>("b", getB()), {"bias", getBias()}})
    if (value && elementType(value) != element) // (G1)
      return emitOpError() << name << " has element type " << elementType(value)
                           << ", expected " << element;
  int64_t m = getM(), n = getN(), k = getK();
  if (m <= 0 || n <= 0 || k <= 0 ||
      llvm::any_of(getBatch(), [](int64_t size) { return size <= 0; })) // (G2)
    return emitOpError("sizes must be positive, found m = ")
           << m << ", n = " << n << ", k = " << k << ", batch = [" << getBatch()
           << "]";
  auto sizes = [&](int64_t rows, int64_t columns) {
    SmallVector<int64_t> all(getBatch());
    all.append({rows, columns});
    return all;
  };
  if (failed(verifyView(*this, "a", getAView(), sizes(m, k), getA())) ||
      failed(verifyView(*this, "b", getBView(), sizes(k, n), getB())) ||
      failed(verifyView(*this, "c", getCView(), sizes(m, n), getC()))) // (G3)
    return failure();
  if (Value bias = getBias())
    if (failed(verifyView(*this, "bias", {int64_t(getBiasOffset()), 1}, {n},
                          bias))) // (G4)
      return failure();
  for (auto [name, value] :
       {std::pair<StringRef, Value>("accumulator", getAccumulator()),
        {"pre-activation", getPreActivation()}})
    if (value && value.getType() != getC().getType()) // (G5)
      return emitOpError() << name << " has type " << value.getType()
                           << ", expected " << getC().getType();
  if (Value at = getDerivativeAt()) { // (G6)
    if (elementType(at) != element || elementType(getC()) != element)
      return emitOpError("derivative_at has element type ")
             << elementType(at) << " and c " << elementType(getC())
             << ", expected " << element;
    if (failed(verifyView(*this, "derivative_at", getCView(), sizes(m, n), at)))
      return failure();
    if (getActivation() != Activation::GeluTanh || getBias() ||
        getAccumulator() || getKeepPreActivation() ||
        getSumsOf() != SumsOf::None)
      return emitOpError("takes a derivative, which goes with gelu_tanh, and "
                         "without bias, accumulator, pre-activation and sums");
  }
  if (Value sums = getSums()) { // (G7)
    auto type = cast<RankedTensorType>(sums.getType());
    int64_t count = getSumsOf() == SumsOf::A ? m : n;
    if (type.getNumElements() != count ||
        type.getElementType() != elementType(getC()))
      return emitOpError("has sums of type ")
             << type << ", expected " << count << " of " << elementType(getC());
    if (!getBatch().empty() || getBias() || getKeepPreActivation() ||
        getActivation() != Activation::None)
      return emitOpError("has sums of an operand, which go without batch, "
                         "bias, activation and pre-activation");
  }
  return success();
}

SmallVector<Reuse> GemmOp::getReuse() {
  if (!getAccumulator())
    return {};
  return {{0, getAccumulatorMutable().begin()->getOperandNumber(), true}};
}

Value GemmOp::getScratchResult() {
  return getNumResults() > getNumOwnResults() ? getResults().back() : Value();
}

int64_t GemmOp::getFlops() {
  int64_t flops = 2 * getM() * getN() * getK();
  for (int64_t size : getBatch())
    flops *= size;
  return flops;
}

//===----------------------------------------------------------------------===//
// rt.grouped_gemm
//===----------------------------------------------------------------------===//

LogicalResult GroupedGemmOp::verify() {
  if (getNumResults() == 0)
    return emitOpError("has no result, expected one"); // (H4)
  if (failed(verifyScratch(*this, 1)))
    return failure();
  Type element = elementType(getLeft());
  if (elementType(getOther()) != element) // (H1)
    return emitOpError("other has element type ")
           << elementType(getOther()) << ", expected " << element;
  if (!isProductType(element, elementType(getResult())))
    return emitOpError("result has element type ")
           << elementType(getResult()) << ", expected " << element
           << (element.isBF16() ? " or 'f32'" : "");
  int64_t e = getE(), k = getK(), n = getN();
  if (e <= 0 || k <= 0 || n <= 0 ||
      llvm::any_of(getRows(), [](int64_t size) { return size <= 0; })) // (H2)
    return emitOpError("sizes must be positive, found e = ")
           << e << ", k = " << k << ", n = " << n << ", rows = [" << getRows()
           << "]";
  auto rows = [&](int64_t width) {
    SmallVector<int64_t> sizes(getRows());
    sizes.push_back(width);
    return sizes;
  };
  SmallVector<int64_t> matrices = {e, k, n};
  if (failed(verifyView(*this, "left", getLeftView(), rows(k), getLeft())) ||
      failed(verifyView(*this, "other", getOtherView(),
                        getOuter() ? rows(n) : matrices, getOther())) ||
      failed(verifyView(*this, "ids", getIdsView(), getRows(), getIds())) ||
      failed(verifyView(*this, "the result", getResultView(),
                        getOuter() ? matrices : rows(n),
                        getResult()))) // (H3)
    return failure();
  return success();
}

Value GroupedGemmOp::getScratchResult() {
  return getNumResults() > 1 ? getResults().back() : Value();
}

// Counts every row as one that is multiplied by an expert's matrix. Which rows
// have no expert is not known at compile time.
int64_t GroupedGemmOp::getFlops() {
  int64_t flops = 2 * int64_t(getK()) * int64_t(getN());
  for (int64_t size : getRows())
    flops *= size;
  return flops;
}

//===----------------------------------------------------------------------===//
// rt.conv
//===----------------------------------------------------------------------===//

Value ConvOp::getInput() {
  if (getKind() == ConvKind::InputGrad)
    return getResults()[0];
  return getKind() == ConvKind::FilterGrad ? getRhs() : getLhs();
}

Value ConvOp::getFilter() {
  if (getKind() == ConvKind::FilterGrad)
    return getResults()[0];
  return getRhs();
}

Value ConvOp::getOutput() {
  if (getKind() == ConvKind::Forward)
    return getResults()[0];
  return getLhs();
}

LogicalResult ConvOp::verify() {
  if (getNumResults() == 0)
    return emitOpError("has no result, expected one"); // (K1)
  if (failed(verifyScratch(*this, 1)))
    return failure();
  auto input = cast<RankedTensorType>(getInput().getType());
  auto filter = cast<RankedTensorType>(getFilter().getType());
  auto output = cast<RankedTensorType>(getOutput().getType());
  int64_t rank = input.getRank(), spatial = rank - 2;
  if (rank < 3 || rank > 5 || filter.getRank() != rank ||
      output.getRank() != rank || // (K1)
      filter.getElementType() != input.getElementType() ||
      output.getElementType() != input.getElementType())
    return emitOpError("has input ")
           << input << ", filter " << filter << " and output " << output
           << ", expected one element type and one rank, 3 to 5";
  for (auto [name, list, least] :
       {std::tuple(StringRef("strides"), getStrides(), int64_t(1)),
        std::tuple(StringRef("dilations"), getDilations(), int64_t(1)),
        std::tuple(StringRef("low"), getLow(), int64_t(0)),
        std::tuple(StringRef("high"), getHigh(), int64_t(0))})
    if (int64_t(list.size()) != spatial ||
        llvm::any_of(list, [&](int64_t x) { return x < least; })) // (K2)
      return emitOpError() << name << " are [" << list << "], expected "
                           << spatial << " numbers, at least " << least;
  int64_t groups = getGroups(), channels = input.getDimSize(1),
          features = filter.getDimSize(0);
  if (groups < 1 || channels % groups || features % groups || // (K3)
      filter.getDimSize(1) * groups != channels ||
      output.getDimSize(0) != input.getDimSize(0) ||
      output.getDimSize(1) != features)
    return emitOpError("has ")
           << groups << " groups for input " << input << ", filter " << filter
           << " and output " << output
           << ": groups divide channels and features, the filter has the "
              "channels of one group, the output the samples of the input and "
              "the features of the filter";
  if (getNarrow() && !input.getElementType().isF32()) // (K5)
    return emitOpError("is narrow in ")
           << input.getElementType() << ", expected 'f32'";
  for (int64_t i = 0; i < spatial; ++i) { // (K4)
    int64_t reach = (filter.getDimSize(i + 2) - 1) * getDilations()[i] + 1;
    int64_t room = input.getDimSize(i + 2) + getLow()[i] + getHigh()[i] - reach;
    int64_t want = room < 0 ? 0 : room / getStrides()[i] + 1;
    if (want < 1 || output.getDimSize(i + 2) != want)
      return emitOpError("spatial dimension ")
             << i << " of the output is " << output.getDimSize(i + 2)
             << ", expected " << want << " windows, at least one";
  }
  return success();
}

Value ConvOp::getScratchResult() {
  return getNumResults() > 1 ? getResults().back() : Value();
}

// Counts multiplications with elements of the zero padding, too.
int64_t ConvOp::getFlops() {
  auto filter = cast<RankedTensorType>(getFilter().getType());
  auto output = cast<RankedTensorType>(getOutput().getType());
  int64_t features = std::max<int64_t>(filter.getDimSize(0), 1);
  return 2 * output.getNumElements() * (filter.getNumElements() / features);
}

//===----------------------------------------------------------------------===//
// rt.position_in_expert
//===----------------------------------------------------------------------===//

LogicalResult PositionInExpertOp::verify() { // (PI1)
  auto sizes = cast<RankedTensorType>(getIds().getType()).getShape();
  int64_t want = 2 * int64_t(getExperts()) + sizes[1],
          found =
              cast<RankedTensorType>(getScratch().getType()).getNumElements();
  if (found == want)
    return success();
  return emitOpError("has scratch for ")
         << found << " numbers, expected " << want;
}

//===----------------------------------------------------------------------===//
// rt.attention, rt.attention_grad
//===----------------------------------------------------------------------===//

namespace {
/// An operand or result of attention, and the attribute that says how its
/// dimensions are stored in memory (its view).
struct Piece {
  StringRef name;
  Value value;
  ArrayRef<int64_t> view;
  SmallVector<int64_t, 5> sizes;
};
} // namespace

/// (A1) to (A3)
template <class Op>
static LogicalResult verifyAttention(Op op, SmallVector<Piece> pieces) {
  ArrayRef<int64_t> sizes = op.getSizes();
  if (sizes.size() != 7 ||
      llvm::any_of(sizes, [](int64_t size) { return size <= 0; })) // (A1)
    return op.emitOpError("sizes are [")
           << sizes << "], expected 7 positive numbers";
  int64_t b = sizes[0], queries = sizes[1], keys = sizes[2], n = sizes[3],
          g = sizes[4], d = sizes[5], e = sizes[6];
  pieces.push_back({"q", op.getQ(), op.getQView(), {b, queries, n, g, d}});
  pieces.push_back({"k", op.getK(), op.getKView(), {b, keys, n, 1, d}});
  pieces.push_back({"v", op.getV(), op.getVView(), {b, keys, n, 1, e}});
  pieces.push_back({"o", op.getO(), op.getOView(), {b, queries, n, g, e}});
  pieces.push_back(
      {"lse", op.getLse(), op.getLseView(), {b, queries, n, g, 1}});
  if (!op.getQPositions() != !op.getKPositions()) // (A3)
    return op.emitOpError("has positions of only one of query and key");
  if (!op.getQSegments() != !op.getKSegments())
    return op.emitOpError("has segments of only one of query and key");
  int64_t window = op.getWindow();
  double softcap = op.getSoftcap().convertToDouble();
  if (window < 0 || !(softcap >= 0))
    return op.emitOpError("has window = ")
           << window << " and softcap = " << softcap
           << ", expected no negative ones";
  pieces.push_back({"query positions",
                    op.getQPositions(),
                    op.getQPositionsView(),
                    {b, queries}});
  pieces.push_back(
      {"key positions", op.getKPositions(), op.getKPositionsView(), {b, keys}});
  pieces.push_back({"query segments",
                    op.getQSegments(),
                    op.getQSegmentsView(),
                    {b, queries}});
  pieces.push_back(
      {"key segments", op.getKSegments(), op.getKSegmentsView(), {b, keys}});
  pieces.push_back(
      {"key mask", op.getKeyMask(), op.getKeyMaskView(), {b, keys}});
  double p = op.getDropout().convertToDouble();
  bool drops = bool(op.getDropoutKeys());
  if (drops != bool(op.getQIndex()) || drops != bool(op.getKIndex()) ||
      (drops ? !(p > 0 && p < 1) : p != 0)) // (A3)
    return op.emitOpError("has dropout = ")
           << p
           << ", expected keys, query and key indices and a number between 0 "
              "and 1, or none of them and 0";
  pieces.push_back({"dropout keys",
                    op.getDropoutKeys(),
                    op.getDropoutKeysView(),
                    {b, queries, n, g, 1}});
  pieces.push_back(
      {"query indices", op.getQIndex(), op.getQIndexView(), {b, queries}});
  pieces.push_back(
      {"key indices", op.getKIndex(), op.getKIndexView(), {b, keys}});
  pieces.push_back(
      {"bias", op.getBias(), op.getBiasView(), {b, queries, n, g, keys}});
  Type element = elementType(op.getQ());
  Type wide = element.isBF16() ? Float32Type::get(op.getContext()) : element;
  for (const Piece &piece : pieces) {
    if (!piece.value || !isa<FloatType>(elementType(piece.value)))
      continue;
    bool isWide = piece.name == "lse" || piece.name == "bias";
    if (Type want = isWide ? wide : element;
        elementType(piece.value) != want) // (A5)
      return op.emitOpError()
             << piece.name << " has element type " << elementType(piece.value)
             << ", expected " << want;
  }
  for (const Piece &piece : pieces)
    if (piece.value &&
        failed(verifyView(op, piece.name, piece.view, piece.sizes,
                          piece.value))) // (A2)
      return failure();
  return success();
}

/// Returns the FLOPs of attention, with `perScore` per score and query feature
/// and `perValue` per score and value feature. Counts pairs of a query and a
/// key that causality and the window do not mask.
template <class Op>
static int64_t attentionFlops(Op op, int64_t perScore, int64_t perValue) {
  namespace program = cleave::program;
  bool alike = op.getQPositions() == op.getKPositions() &&
               op.getQPositionsView() == op.getKPositionsView();
  auto count = alike ? program::attentionPairs : program::meanAttentionPairs;
  int64_t pairs = count(op.size(1), op.size(2), op.getCausal(), op.getWindow());
  return op.size(0) * op.size(3) * op.size(4) * pairs *
         (perScore * op.size(5) + perValue * op.size(6));
}

LogicalResult AttentionOp::verify() { return verifyAttention(*this, {}); }

Value AttentionOp::getScratchResult() { return getScratch(); }

// q k^T and p v.
int64_t AttentionOp::getFlops() { return attentionFlops(*this, 2, 2); }

LogicalResult AttentionGradOp::verify() {
  ArrayRef<int64_t> sizes = getSizes(), into = getInto();
  if (into.size() != 3 || llvm::any_of(into, [&](int64_t index) {
        return index < 0 || index >= int64_t(getNumResults());
      })) // (A4)
    return emitOpError("results are into [")
           << into << "], expected three indices of its " << getNumResults()
           << " results";
  if (failed(verifyScratch(*this, getNumGrads())))
    return failure();
  SmallVector<Piece> pieces;
  if (sizes.size() == 7) {
    int64_t b = sizes[0], queries = sizes[1], keys = sizes[2], n = sizes[3],
            g = sizes[4], d = sizes[5], e = sizes[6];
    pieces = {{"do", getDO(), getDoView(), {b, queries, n, g, e}},
              {"dq", getResults()[into[0]], getDqView(), {b, queries, n, g, d}},
              {"dk", getResults()[into[1]], getDkView(), {b, keys, n, 1, d}},
              {"dv", getResults()[into[2]], getDvView(), {b, keys, n, 1, e}}};
  }
  return verifyAttention(*this, std::move(pieces));
}

Value AttentionGradOp::getScratchResult() {
  return int64_t(getNumResults()) > getNumGrads() ? getResults().back()
                                                  : Value();
}

// The gradient has five products: the recomputed scores q k^T, dp = do v^T, dv
// = p^T do, dq = ds k, dk = ds^T q. For each pair of a query and a key, a
// product takes two FLOPs per feature. q k^T, dq and dk have the features of a
// query (6 FLOPs per feature in total), dp and dv those of a value (4 FLOPs).
int64_t AttentionGradOp::getFlops() { return attentionFlops(*this, 6, 4); }
