// Reference semantics of products of rows with the matrices that they choose.

#include "Model.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::evaluate;

/// Calls `visit(row, matrix)` for every row whose id is one of `count`
/// matrices.
template <typename Visit>
static void forEachChosen(const Tensor &ids, int64_t count, Visit visit) {
  for (int64_t row = 0; row < ids.size(); ++row)
    if (int64_t id = ids.ints[row]; id >= 0 && id < count)
      visit(row, id);
}

static void groupedDot(nn::GroupedDotOp op, Operands in, Results out) {
  ArrayRef<int64_t> shape = in[1]->shape();
  bool transposed = op.getTransposed();
  int64_t k = shape[transposed ? 2 : 1], n = shape[transposed ? 1 : 2];
  std::fill(out[0].floats.begin(), out[0].floats.end(), 0.0);
  forEachChosen(*in[2], shape[0], [&](int64_t row, int64_t id) {
    const double *x = in[0]->floats.data() + row * k;
    const double *w = in[1]->floats.data() + id * k * n;
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += x[i] * w[transposed ? j * k + i : i * n + j];
      out[0].floats[row * n + j] = sum;
    }
  });
}

static void groupedOuter(nn::GroupedOuterOp, Operands in, Results out) {
  ArrayRef<int64_t> shape = out[0].shape();
  int64_t k = shape[1], n = shape[2];
  std::fill(out[0].floats.begin(), out[0].floats.end(), 0.0);
  forEachChosen(*in[2], shape[0], [&](int64_t row, int64_t id) {
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < n; ++j)
        out[0].floats[(id * k + i) * n + j] +=
            in[0]->floats[row * k + i] * in[1]->floats[row * n + j];
  });
}

void cleave::evaluate::attachExperts(MLIRContext *context) {
  attach<nn::GroupedDotOp, groupedDot>(context);
  attach<nn::GroupedOuterOp, groupedOuter>(context);
}
