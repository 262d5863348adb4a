// Lowers contractions to matrix products.
//
// A label (of an einsum) names a dimension that two or three of the tensors (A,
// B and the result C) have. A label of both operands and the result is a batch
// dimension. A label of the left operand and the result is called m, a label of
// the right operand and the result n, and a label of both operands but not of
// the result k. Adjacent labels are merged if the strides of all tensors allow
// this.

#include "SelectLibrary.h"
#include "Views.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;

/// On CUDA devices, a batch of at least this many matrix-vector products is
/// computed by a generated kernel instead of a library call.
static constexpr int64_t kManyProducts = 32;

namespace {

/// A label, or several merged labels, with its size and its stride in each
/// tensor.
struct Dim {
  int64_t size = 1;
  int64_t a = 0, b = 0, c = 0;
};
using Dims = SmallVector<Dim>;

/// A tensor with a label for each dimension.
struct Labelled {
  StringRef labels;
  StridedView view;

  int64_t stride(char label) const {
    size_t dim = labels.find(label);
    return dim == StringRef::npos ? 0 : view.strides[dim];
  }
};

/// A contraction, without labels of size 1.
struct Contraction {
  Labelled a, b, c;
  std::string batch, m, n, k;
  llvm::DenseMap<char, int64_t> size;

  Dims dims(StringRef labels) const {
    Dims result;
    for (char label : labels)
      result.push_back({size.lookup(label), a.stride(label), b.stride(label),
                        c.stride(label)});
    return result;
  }
  int64_t extent(StringRef labels) const {
    int64_t product = 1;
    for (char label : labels)
      product *= size.lookup(label);
    return product;
  }
};

} // namespace

/// Merges adjacent dimensions whose strides allow this in every tensor.
static Dims merged(const Dims &dims) {
  Dims result;
  for (const Dim &inner : dims) {
    if (!result.empty()) {
      Dim &outer = result.back();
      if (outer.a == inner.a * inner.size && outer.b == inner.b * inner.size &&
          outer.c == inner.c * inner.size) {
        outer = {outer.size * inner.size, inner.a, inner.b, inner.c};
        continue;
      }
    }
    result.push_back(inner);
  }
  return result;
}

/// Returns the labels in the order in which the tensor has them in memory, that
/// is, by decreasing stride.
static std::string sortedBy(const Labelled &tensor, std::string labels) {
  llvm::stable_sort(labels, [&](char x, char y) {
    return tensor.stride(x) > tensor.stride(y);
  });
  return labels;
}

/// Creates a dense copy of the tensor with its dimensions in `order`. Labels of
/// size 1, which are not in `order`, come first.
static Labelled copied(OpBuilder &b, Location loc, Value value,
                       StringRef labels, StringRef order,
                       std::string &storage) {
  storage.clear();
  for (char label : labels)
    if (!order.contains(label))
      storage.push_back(label);
  storage += order;
  SmallVector<int64_t> permutation;
  for (char label : storage)
    permutation.push_back(labels.find(label));
  // The transpose makes the copy dense. It is also needed if it does not change
  // the order of dimensions.
  Value copy = nn::TransposeOp::create(b, loc, value, permutation);
  return {storage, denseView(copy)};
}

/// Returns whether one of the two matrix dimensions has stride 1, as libraries
/// require.
static bool hasUnitStride(int64_t rows, int64_t rowStride, int64_t columns,
                          int64_t columnStride) {
  return rowStride == 1 || columnStride == 1 || (rows == 1 && columns == 1);
}

namespace {

/// The dimensions of a batched matrix product. If there are several m or n
/// dimensions, one of them is a dimension of the matrices, and the rest are
/// batch dimensions.
struct ProductDims {
  explicit ProductDims(const Contraction &x);

  bool hasUnitStrideA() const {
    return hasUnitStride(m.size, m.a, k.size, k.a);
  }
  bool hasUnitStrideB() const {
    return hasUnitStride(k.size, k.b, n.size, n.b);
  }
  bool hasUnitStrideC() const {
    return hasUnitStride(m.size, m.c, n.size, n.c);
  }

  SmallVector<int64_t> batchSizes() const;
  /// Returns a tensor's offset, its batch strides, and the strides of the row
  /// and of the column of its matrices.
  SmallVector<int64_t> viewOf(const Labelled &tensor, int64_t Dim::*stride,
                              const Dim &row, const Dim &column) const;

  Dim m, n, k;
  Dims batch;
};

} // namespace

/// Removes from `dims` the dimension that is the best by the comparison
/// `better`, and returns it. Returns a dimension of size 1 if `dims` is empty.
static Dim
takeBest(Dims &dims,
         llvm::function_ref<bool(const Dim &dim, const Dim &best)> better) {
  if (dims.empty())
    return Dim();
  auto *best = dims.begin();
  for (auto *dim = dims.begin(); dim != dims.end(); ++dim)
    if (better(*dim, *best))
      best = dim;
  Dim taken = *best;
  dims.erase(best);
  return taken;
}

ProductDims::ProductDims(const Contraction &x) {
  batch = merged(x.dims(x.batch));
  Dims ms = merged(x.dims(x.m)), ns = merged(x.dims(x.n)),
       ks = merged(x.dims(x.k));
  if (!ks.empty())
    k = ks.front();
  m = takeBest(
      ms, [](const Dim &dim, const Dim &best) { return dim.size > best.size; });
  n = takeBest(ns, [](const Dim &dim, const Dim &best) {
    return dim.c == 1 || (best.c != 1 && dim.size > best.size);
  });
  batch.append(ms);
  batch.append(ns);
}

SmallVector<int64_t> ProductDims::batchSizes() const {
  SmallVector<int64_t> sizes;
  for (const Dim &dim : batch)
    sizes.push_back(dim.size);
  return sizes;
}

SmallVector<int64_t> ProductDims::viewOf(const Labelled &tensor,
                                         int64_t Dim::*stride, const Dim &row,
                                         const Dim &column) const {
  SmallVector<int64_t> entries = {tensor.view.offset};
  for (const Dim &dim : batch)
    entries.push_back(dim.*stride);
  // The stride of a dimension of size 1 is never used, but libraries check it:
  // it must be 1, or the size of the other dimension if that is contiguous.
  auto last = [&](const Dim &dim, const Dim &other) {
    if (dim.size > 1)
      return dim.*stride;
    return other.size > 1 && other.*stride == 1 ? other.size : int64_t(1);
  };
  entries.push_back(last(row, column));
  entries.push_back(last(column, row));
  return entries;
}

namespace {

/// Lowers one contraction. Creates the new operations; the caller replaces the
/// old one.
class EinsumLowering {
public:
  explicit EinsumLowering(nn::EinsumOp op);

  /// Returns whether a library call is faster than a kernel.
  bool suitsLibrary(program::Device device) const;
  /// Creates an elementwise product and a reduction, which become part of a
  /// kernel.
  Value createElementwise();
  /// Creates a matrix product, with copies if the strides require them.
  Value createGemm();

private:
  void chooseSides();
  void classifyLabels();
  /// Creates the elementwise product of the operands, before the sum over
  /// contracted labels. Its dimensions are those of `order`.
  Value multiply(StringRef order, RankedTensorType wide);
  Value spread(Value operand, StringRef own, StringRef order,
               RankedTensorType wide);
  bool isOneK(StringRef order, bool ofA, bool ofB) const;
  void orderContracted();
  void copyA() {
    x.a = copied(b, loc, lhs, labels.lhs, x.batch + x.m + x.k, labelsOfCopyA);
  }
  void copyB() {
    x.b = copied(b, loc, rhs, labels.rhs, x.batch + x.k + x.n, labelsOfCopyB);
  }
  /// Lets the product store its result densely, with the dimensions in this
  /// order.
  void storeResult(std::string order);
  ProductDims arrange();
  Value createCommand(const ProductDims &dims);

  nn::EinsumOp op;
  OpBuilder b;
  Location loc;
  nn::EinsumOp::Labels labels;
  Value lhs, rhs;
  RankedTensorType resultType;
  Contraction x;
  std::string labelsOfCopyA, labelsOfCopyB;
  std::string storedLabels; // of the result
  RankedTensorType storedType;
};

} // namespace

EinsumLowering::EinsumLowering(nn::EinsumOp op)
    : op(op), b(op), loc(op.getLoc()), labels(op.getLabels()), lhs(op.getLhs()),
      rhs(op.getRhs()), resultType(typeOf(op)) {
  auto sizes = [&](StringRef names, Value value) {
    for (auto [name, size] : llvm::zip(names, typeOf(value).getShape()))
      x.size[name] = size;
  };
  sizes(labels.lhs, lhs);
  sizes(labels.rhs, rhs);
  chooseSides();
  classifyLabels();
}

/// Swaps the operands if the innermost label of the result is not a label of
/// the right operand (n).
void EinsumLowering::chooseSides() {
  for (char label : llvm::reverse(labels.result)) {
    if (x.size[label] == 1)
      continue;
    if (StringRef(labels.rhs).contains(label))
      return;
    std::swap(lhs, rhs);
    std::swap(labels.lhs, labels.rhs);
    return;
  }
}

void EinsumLowering::classifyLabels() {
  x.a = {labels.lhs, traceView(lhs)};
  x.b = {labels.rhs, traceView(rhs)};
  StringRef inA(labels.lhs), inB(labels.rhs), inC(labels.result);
  for (char label : labels.result) {
    if (x.size[label] == 1)
      continue;
    bool a = inA.contains(label), bb = inB.contains(label);
    (a && bb ? x.batch : a ? x.m : x.n).push_back(label);
  }
  for (char label : labels.lhs)
    if (!inC.contains(label) && x.size[label] != 1)
      x.k.push_back(label);
}

bool EinsumLowering::suitsLibrary(program::Device device) const {
  // If nothing is contracted, or the product is a batch of dot products, a
  // library call is not faster than a kernel, which can be fused with other
  // operations.
  bool rows = x.m.empty() && x.n.empty();
  // In a matrix-vector product, every element of the matrix is used only once,
  // so the tiles of a matrix library save no memory traffic. A GPU library
  // would also compute each product of a large batch with a single tile. So a
  // kernel computes many matrix-vector products.
  bool vectors = device == program::Device::Cuda &&
                 (x.m.empty() || x.n.empty()) &&
                 x.extent(x.batch) >= kManyProducts;
  return !x.k.empty() && !(rows && !x.batch.empty()) && !vectors;
}

Value EinsumLowering::createElementwise() {
  std::string order = labels.result;
  SmallVector<int64_t> shape(resultType.getShape()), contracted;
  for (char label : labels.lhs)
    if (!StringRef(labels.result).contains(label)) {
      contracted.push_back(order.size());
      order.push_back(label);
      shape.push_back(x.size[label]);
    }
  // bf16 is multiplied and summed in f32.
  bool rounds = resultType.getElementType().isBF16();
  Type element = rounds ? b.getF32Type() : resultType.getElementType();
  Value product = multiply(order, resultType.clone(shape, element));
  if (!contracted.empty())
    product = b.createOrFold<nn::ReduceOp>(loc, nn::Combiner::Sum, product,
                                           contracted);
  if (rounds)
    product = arith::TruncFOp::create(b, loc, resultType, product);
  return product;
}

Value EinsumLowering::multiply(StringRef order, RankedTensorType wide) {
  nn::EinsumOp::Labels given = op.getLabels(); // before operands are swapped
  return arith::MulFOp::create(b, loc,
                               spread(op.getLhs(), given.lhs, order, wide),
                               spread(op.getRhs(), given.rhs, order, wide));
}

/// Transposes, extends and broadcasts an operand to the type of the elementwise
/// product.
Value EinsumLowering::spread(Value operand, StringRef own, StringRef order,
                             RankedTensorType wide) {
  SmallVector<int64_t> permutation, dims;
  for (auto [dim, label] : llvm::enumerate(order))
    if (own.contains(label)) {
      permutation.push_back(own.find(label));
      dims.push_back(dim);
    }
  Value placed = b.createOrFold<nn::TransposeOp>(loc, operand, permutation);
  if (auto type = typeOf(placed);
      type.getElementType() != wide.getElementType())
    placed = arith::ExtFOp::create(b, loc, type.clone(wide.getElementType()),
                                   placed);
  return b.createOrFold<nn::BroadcastOp>(loc, wide, placed, dims);
}

Value EinsumLowering::createGemm() {
  orderContracted();
  storeResult(labels.result);
  return createCommand(arrange());
}

/// Returns whether the contracted labels in the order `order` can be merged
/// into one dimension, in A (if `ofA`) and in B (if `ofB`).
bool EinsumLowering::isOneK(StringRef order, bool ofA, bool ofB) const {
  Dims dims = x.dims(order);
  for (Dim &dim : dims) {
    dim.a = ofA ? dim.a : 0;
    dim.b = ofB ? dim.b : 0;
  }
  return merged(dims).size() <= 1;
}

/// Chooses an order of the contracted labels, which must be the same in both
/// operands. If the operands have different orders, copies the smaller operand
/// whose order may change.
void EinsumLowering::orderContracted() {
  x.k = sortedBy(x.a, x.k);
  if (isOneK(x.k, true, true))
    return;
  std::string byA = sortedBy(x.a, x.k), byB = sortedBy(x.b, x.k);
  bool keepA = isOneK(byA, true, false), keepB = isOneK(byB, false, true);
  bool smallerA = x.extent(x.m) < x.extent(x.n);
  if (keepB && (!keepA || smallerA)) {
    x.k = byB;
    copyA();
    return;
  }
  x.k = byA;
  copyB();
  if (!keepA)
    copyA();
}

void EinsumLowering::storeResult(std::string order) {
  storedLabels = std::move(order);
  SmallVector<int64_t> shape;
  for (char label : storedLabels)
    shape.push_back(x.size[label]);
  storedType = resultType.clone(shape);
  x.c = {storedLabels, StridedView{Value(), 0, shape, denseStrides(shape)}};
}

/// Copies operands, and changes the order of the result's dimensions, until
/// each of the three matrices has a dimension with stride 1, as libraries
/// require.
ProductDims EinsumLowering::arrange() {
  ProductDims dims(x);
  if (!dims.hasUnitStrideA()) {
    copyA();
    dims = ProductDims(x);
  }
  if (!dims.hasUnitStrideB()) {
    copyB();
    dims = ProductDims(x);
  }
  if (!dims.hasUnitStrideC()) {
    std::string order;
    for (char label : labels.result)
      if (x.size[label] == 1)
        order.push_back(label);
    storeResult(order + x.batch + x.m + x.n);
    dims = ProductDims(x);
  }
  return dims;
}

Value EinsumLowering::createCommand(const ProductDims &dims) {
  const auto &[m, n, k, batch] = dims;
  auto gemm = rt::GemmOp::create(
      b, loc, TypeRange{storedType}, x.a.view.base, x.b.view.base, Value(),
      Value(), Value(), dims.viewOf(x.a, &Dim::a, m, k),
      dims.viewOf(x.b, &Dim::b, k, n), dims.viewOf(x.c, &Dim::c, m, n),
      dims.batchSizes(), m.size, n.size, k.size, APFloat(1.0));
  if (storedLabels == labels.result)
    return gemm.getC();
  SmallVector<int64_t> permutation;
  for (char label : labels.result)
    permutation.push_back(storedLabels.find(label));
  return nn::TransposeOp::create(b, loc, gemm.getC(), permutation);
}

void cleave::selectEinsum(nn::EinsumOp op, program::Device device) {
  EinsumLowering lowering(op);
  Value result = lowering.suitsLibrary(device) ? lowering.createGemm()
                                               : lowering.createElementwise();
  op.replaceAllUsesWith(result);
  op.erase();
}
