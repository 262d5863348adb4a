// Reference semantics of grouped products (grouped GEMM), which multiply each
// row with the matrix of the expert that the row's id selects, and of
// nn.position_in_expert, which numbers the token-expert pairs of each expert.

#include "Model.h"

#include <map>

using namespace mlir;
using namespace cleave;
using namespace cleave::evaluate;

/// Calls `visit(row, matrix)` for every row whose id is in [0, count).
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

/// For each token-expert pair (a token and one of its top-k experts), counts
/// the pairs of the same expert that precede it: those with a smaller token
/// position, or with the same position and a smaller index among the token's
/// experts. Pairs that agree in both do not precede each other.
static void positionInExpert(nn::PositionInExpertOp op, Operands in,
                             Results out) {
  ArrayRef<int64_t> shape = in[0]->shape();
  int64_t s = shape[1], k = shape.size() == 3 ? shape[2] : 1,
          experts = op.getExperts();
  bool perSample = in[1]->rank() == 2;
  for (int64_t sample = 0; sample < shape[0]; ++sample) {
    std::vector<int64_t> taken(experts, 0);
    if (op.getLoads())
      for (int64_t row = 0; row < in[2]->shape()[0]; ++row)
        for (int64_t expert = 0; expert < experts; ++expert)
          if (row < in[3]->ints[sample])
            taken[expert] += in[2]->ints[row * experts + expert];
    std::map<std::pair<int64_t, int64_t>, SmallVector<int64_t, 1>> order;
    for (int64_t at = 0; at < s * k; ++at) {
      int64_t position = in[1]->ints[(perSample ? sample * s : 0) + at / k];
      order[{position, at % k}].push_back(sample * s * k + at);
    }
    for (const auto &[key, slots] : order) {
      std::vector<int64_t> before = taken;
      for (int64_t slot : slots) {
        int64_t id = in[0]->ints[slot];
        bool chooses = id >= 0 && id < experts;
        out[0].ints[slot] = chooses ? before[id] : 0;
        if (chooses)
          ++taken[id];
      }
    }
  }
}

void cleave::evaluate::attachExperts(MLIRContext *context) {
  attach<nn::GroupedDotOp, groupedDot>(context);
  attach<nn::GroupedOuterOp, groupedOuter>(context);
  attach<nn::PositionInExpertOp, positionInExpert>(context);
}
