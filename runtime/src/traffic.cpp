// Bytes that commands read and write, from their sizes alone.

#include "traffic.h"

#include <functional>
#include <numeric>

using namespace cleave;
using namespace cleave::program;

namespace {
int64_t productOf(const std::vector<int64_t> &sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(1),
                         std::multiplies<>());
}

// Matrices of an operand: one along dimensions where its stride is 0.
int64_t matricesOf(const MatrixRef &matrix, const std::vector<int64_t> &batch) {
  int64_t count = 1;
  for (size_t i = 0; i < batch.size(); ++i)
    count *= matrix.batchStrides[i] == 0 ? 1 : batch[i];
  return count;
}

struct Traffic {
  const Program &program;

  int64_t operator()(const Launch &x) const {
    int64_t bytes = 0;
    for (const KernelArg &arg : program.kernels[x.kernel].args)
      bytes += arg.bytes;
    return bytes;
  }

  int64_t operator()(const Gemm &x) const {
    int64_t results = productOf(x.batch) * x.m * x.n;
    int64_t narrow = matricesOf(x.a, x.batch) * x.m * x.k +
                     matricesOf(x.b, x.batch) * x.k * x.n;
    if (x.bias.present())
      narrow += x.n;
    if (x.preActivation.present() || x.derivativeAt.present())
      narrow += results;
    int64_t wide = (x.accumulate ? 2 : 1) * results;
    if (x.sums.present())
      wide += x.numSums();
    return narrow * sizeOf(x.dtype) + wide * sizeOf(x.resultType());
  }

  int64_t operator()(const Attention &x) const {
    int64_t rows = x.b * x.qLen * x.n * x.g;
    int64_t queries = rows * x.d, results = rows * x.dv;
    int64_t keys = x.b * x.kLen * x.n * (x.d + x.dv);
    // Backward: q, k, v and their gradients, o and its gradient.
    int64_t arrays =
        x.backward ? 2 * (queries + keys + results) : queries + keys + results;
    DType statistics = x.dtype == DType::BF16 ? DType::F32 : x.dtype;
    return arrays * sizeOf(x.dtype) + rows * sizeOf(statistics);
  }

  int64_t operator()(const GroupedGemm &x) const {
    int64_t rows = productOf(x.rows), size = sizeOf(x.dtype);
    int64_t written = sizeOf(x.resultType());
    return rows * (x.k * size + sizeOf(DType::I64)) +
           rows * x.n * (x.outer ? size : written) +
           x.e * x.k * x.n * (x.outer ? written : size);
  }

  int64_t operator()(const Convolution &x) const {
    int64_t filter = x.groups * x.features * x.channels * productOf(x.kernel);
    int64_t sample = x.groups * (x.channels * productOf(x.input) +
                                 x.features * productOf(x.output));
    return (x.samples * sample + filter) * sizeOf(x.dtype);
  }

  int64_t operator()(const Copy &x) const {
    return 2 * productOf(x.shape) * x.elementSize;
  }

  int64_t operator()(const Fill &x) const { return x.count * x.elementSize; }

  int64_t operator()(const PlanRows &x) const {
    int64_t places = x.rounds * x.ranks * x.places;
    return (2 * x.rows + 2 * places + x.ranks * x.rounds) * sizeOf(DType::I64);
  }

  int64_t operator()(const SortRows &x) const {
    return 4 * x.rows * sizeOf(DType::I64);
  }

  int64_t operator()(const PositionInExpert &x) const {
    int64_t positions = x.perSample ? x.b * x.s : x.s;
    return (2 * x.b * x.s * x.k + positions + x.rows * x.e) *
           sizeOf(DType::I64);
  }

  int64_t operator()(const Collective &) const { return 0; }
  int64_t operator()(const Wait &) const { return 0; }
  int64_t operator()(const Call &) const { return 0; }
};
} // namespace

int64_t cleave::trafficOf(const Program &program, const Command &command) {
  return std::visit(Traffic{program}, command.op);
}
