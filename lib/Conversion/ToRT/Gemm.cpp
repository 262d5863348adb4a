// Lowers contractions to matrix products.
//
// A label is a dimension of two or three of the tensors. Labels in both
// operands and the result are batch dimensions; labels of the left operand and
// the result are m, of the right operand and the result n, of both operands
// only k. Neighbours are merged if the strides of all tensors allow it.

#include "SelectLibrary.h"
#include "Views.h"

using namespace mlir;
using namespace cleave;

/// From this number of matrix-vector products on, a kernel computes them.
static constexpr int64_t kManyProducts = 32;

namespace {

/// One label, or several merged ones: size, and stride in each tensor.
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

/// A contraction. Labels of size 1 are left out.
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

/// Merges neighbouring dimensions that are contiguous in every tensor.
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

/// Labels by decreasing stride in one tensor, which is their order in memory.
static std::string sortedBy(const Labelled &tensor, std::string labels) {
  llvm::stable_sort(labels, [&](char x, char y) {
    return tensor.stride(x) > tensor.stride(y);
  });
  return labels;
}

/// A dense copy of the tensor with its dimensions in `order`. Labels of size 1,
/// which `order` does not have, come first.
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
  // Even with an unchanged order, the transpose makes the copy dense.
  Value copy = nn::TransposeOp::create(b, loc, value, permutation);
  return {storage, denseView(copy)};
}

/// Whether one of the two matrix dimensions has stride 1, as libraries require.
static bool hasUnitStride(int64_t rows, int64_t rowStride, int64_t columns,
                          int64_t columnStride) {
  return rowStride == 1 || columnStride == 1 || (rows == 1 && columns == 1);
}

/// The elementwise product of the operands, before the sum over contracted
/// labels.
static Value elementwise(OpBuilder &b, Location loc, nn::EinsumOp op,
                         StringRef order, RankedTensorType wide) {
  auto spread = [&](Value value, StringRef labels) -> Value {
    SmallVector<int64_t> permutation, dims;
    for (auto [dim, label] : llvm::enumerate(order))
      if (labels.contains(label)) {
        permutation.push_back(labels.find(label));
        dims.push_back(dim);
      }
    Value placed = b.createOrFold<nn::TransposeOp>(loc, value, permutation);
    if (auto type = cast<RankedTensorType>(placed.getType());
        type.getElementType() != wide.getElementType())
      placed = arith::ExtFOp::create(b, loc, type.clone(wide.getElementType()),
                                     placed);
    return b.createOrFold<nn::BroadcastOp>(loc, wide, placed, dims);
  };
  nn::EinsumOp::Labels labels = op.getLabels();
  return arith::MulFOp::create(b, loc, spread(op.getLhs(), labels.lhs),
                               spread(op.getRhs(), labels.rhs));
}

void cleave::selectEinsum(nn::EinsumOp op, program::Device device) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  nn::EinsumOp::Labels labels = op.getLabels();
  Value lhs = op.getLhs(), rhs = op.getRhs();
  auto resultType = cast<RankedTensorType>(op.getType());

  Contraction x;
  auto sizes = [&](StringRef names, Value value) {
    for (auto [name, size] :
         llvm::zip(names, cast<RankedTensorType>(value.getType()).getShape()))
      x.size[name] = size;
  };
  sizes(labels.lhs, lhs);
  sizes(labels.rhs, rhs);

  // The innermost label of the result must be n, a label of the right operand;
  // else the operands are swapped.
  for (char label : llvm::reverse(labels.result)) {
    if (x.size[label] == 1)
      continue;
    if (StringRef(labels.rhs).contains(label))
      break;
    std::swap(lhs, rhs);
    std::swap(labels.lhs, labels.rhs);
    break;
  }
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

  // Without contraction, or with one dot product per batch entry, a library
  // call is not worth it, and a kernel can be fused with its neighbours.
  bool rows = x.m.empty() && x.n.empty();
  // Many matrix-vector products read every element once, and a library on a
  // device would use one tile for each.
  bool vectors = device == program::Device::Cuda &&
                 (x.m.empty() || x.n.empty()) &&
                 x.extent(x.batch) >= kManyProducts;
  if (x.k.empty() || (rows && !x.batch.empty()) || vectors) {
    std::string order = labels.result;
    SmallVector<int64_t> shape(resultType.getShape()), contracted;
    for (char label : labels.lhs)
      if (!inC.contains(label)) {
        contracted.push_back(order.size());
        order.push_back(label);
        shape.push_back(x.size[label]);
      }
    // bf16 is multiplied and summed in f32.
    bool rounds = resultType.getElementType().isBF16();
    Type element = rounds ? b.getF32Type() : resultType.getElementType();
    Value product =
        elementwise(b, loc, op, order, resultType.clone(shape, element));
    if (!contracted.empty())
      product = b.createOrFold<nn::ReduceOp>(loc, nn::Combiner::Sum, product,
                                             contracted);
    if (rounds)
      product = arith::TruncFOp::create(b, loc, resultType, product);
    op.replaceAllUsesWith(product);
    op.erase();
    return;
  }

  // k needs one order for both operands. Otherwise the smaller operand that can
  // take the other's order is copied.
  std::string copyA, copyB;
  auto kMerges = [&](bool a, bool bb) {
    Dims dims = x.dims(x.k);
    for (Dim &dim : dims) {
      dim.a = a ? dim.a : 0;
      dim.b = bb ? dim.b : 0;
    }
    return merged(dims).size() <= 1;
  };
  x.k = sortedBy(x.a, x.k);
  if (!kMerges(true, true)) {
    std::string byA = sortedBy(x.a, x.k), byB = sortedBy(x.b, x.k);
    x.k = byA;
    bool keepA = kMerges(true, false);
    x.k = byB;
    bool keepB = kMerges(false, true);
    bool smallerA = x.extent(x.m) < x.extent(x.n);
    if (keepB && (!keepA || smallerA)) {
      x.a = copied(b, loc, lhs, labels.lhs, x.batch + x.m + x.k, copyA);
    } else {
      x.k = byA;
      x.b = copied(b, loc, rhs, labels.rhs, x.batch + x.k + x.n, copyB);
      if (!keepA)
        x.a = copied(b, loc, lhs, labels.lhs, x.batch + x.m + x.k, copyA);
    }
  }

  // The result has its own order, or is dense and transposed afterwards.
  std::string order = labels.result;
  RankedTensorType type = resultType;
  auto setResult = [&] {
    x.c = {order, StridedView{Value(), 0, SmallVector<int64_t>(type.getShape()),
                              denseStrides(type.getShape())}};
  };
  setResult();

  Dim m, n, k;
  Dims batch, ms, ns;
  auto pick = [](Dims &dims, Dim &chosen, auto better) {
    if (dims.empty())
      return;
    auto *best = dims.begin();
    for (auto *dim = dims.begin(); dim != dims.end(); ++dim)
      if (better(*dim, *best))
        best = dim;
    chosen = *best;
    dims.erase(best);
  };
  auto arrange = [&] {
    m = n = k = Dim();
    batch = merged(x.dims(x.batch));
    ms = merged(x.dims(x.m));
    ns = merged(x.dims(x.n));
    Dims ks = merged(x.dims(x.k));
    if (!ks.empty())
      k = ks.front();
    pick(ms, m,
         [](const Dim &dim, const Dim &best) { return dim.size > best.size; });
    pick(ns, n, [](const Dim &dim, const Dim &best) {
      return dim.c == 1 || (best.c != 1 && dim.size > best.size);
    });
    batch.append(ms);
    batch.append(ns);
  };
  arrange();
  if (!hasUnitStride(m.size, m.a, k.size, k.a)) {
    x.a = copied(b, loc, lhs, labels.lhs, x.batch + x.m + x.k, copyA);
    arrange();
  }
  if (!hasUnitStride(k.size, k.b, n.size, n.b)) {
    x.b = copied(b, loc, rhs, labels.rhs, x.batch + x.k + x.n, copyB);
    arrange();
  }
  if (!hasUnitStride(m.size, m.c, n.size, n.c)) {
    order.clear();
    for (char label : labels.result)
      if (x.size[label] == 1)
        order.push_back(label);
    order += x.batch + x.m + x.n;
    SmallVector<int64_t> shape;
    for (char label : order)
      shape.push_back(x.size[label]);
    type = resultType.clone(shape);
    setResult();
    arrange();
  }

  // The stride of a dimension of size 1 is never used; libraries expect 1.
  auto view = [&](const Labelled &tensor, int64_t Dim::*stride, const Dim &row,
                  const Dim &column) {
    SmallVector<int64_t> entries = {tensor.view.offset};
    for (const Dim &dim : batch)
      entries.push_back(dim.*stride);
    auto last = [&](const Dim &dim, const Dim &other) {
      if (dim.size > 1)
        return dim.*stride;
      return other.size > 1 && other.*stride == 1 ? other.size : int64_t(1);
    };
    entries.push_back(last(row, column));
    entries.push_back(last(column, row));
    return entries;
  };
  SmallVector<int64_t> batchSizes;
  for (const Dim &dim : batch)
    batchSizes.push_back(dim.size);
  auto gemm =
      rt::GemmOp::create(b, loc, TypeRange{type}, x.a.view.base, x.b.view.base,
                         Value(), Value(), Value(), view(x.a, &Dim::a, m, k),
                         view(x.b, &Dim::b, k, n), view(x.c, &Dim::c, m, n),
                         batchSizes, m.size, n.size, k.size, APFloat(1.0));
  Value result = gemm.getC();
  if (order != labels.result) {
    SmallVector<int64_t> permutation;
    for (char label : labels.result)
      permutation.push_back(order.find(label));
    result = nn::TransposeOp::create(b, loc, result, permutation);
  }
  op.replaceAllUsesWith(result);
  op.erase();
}
