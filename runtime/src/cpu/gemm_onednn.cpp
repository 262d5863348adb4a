// Matrix products by oneDNN's matmul, for products for which oneDNN has an
// optimized implementation.

#include "cpu/gemm.h"

#include "cpu/micro.h"
#include "cpu/parallel.h"
#include "error.h"

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <memory>
#include <optional>

using namespace cleave;
using program::Activation;
using program::DType;
using program::Gemm;
using program::MatrixRef;

namespace {
const dnnl::engine &cpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type oneDnnType(DType type) {
  return type == DType::BF16 ? dnnl::memory::data_type::bf16
                             : dnnl::memory::data_type::f32;
}

// Describes a matrix for oneDNN. If a batch stride is 0 in a program (a
// broadcast), the dimension gets size 1, as oneDNN requires. Batch dimensions
// that have size 1 in the product are dropped.
dnnl::memory::desc describe(const Gemm &gemm, const MatrixRef &matrix,
                            int64_t rows, int64_t columns, DType type) {
  dnnl::memory::dims dims, strides;
  for (size_t i = 0; i < gemm.batch.size(); ++i) {
    if (gemm.batch[i] == 1)
      continue;
    bool broadcast = matrix.batchStrides[i] == 0;
    dims.push_back(broadcast ? 1 : gemm.batch[i]);
    strides.push_back(broadcast ? rows * columns : matrix.batchStrides[i]);
  }
  dims.insert(dims.end(), {rows, columns});
  strides.insert(strides.end(), {matrix.rowStride, matrix.colStride});
  return {dims, oneDnnType(type), strides};
}

void appendActivation(dnnl::post_ops &ops, Activation activation) {
  using dnnl::algorithm;
  switch (activation) {
  case Activation::None:
    break;
  case Activation::GeluTanh:
    ops.append_eltwise(1.0f, algorithm::eltwise_gelu_tanh, 0.0f, 0.0f);
    break;
  case Activation::GeluErf:
    ops.append_eltwise(1.0f, algorithm::eltwise_gelu_erf, 0.0f, 0.0f);
    break;
  case Activation::Relu:
    ops.append_eltwise(1.0f, algorithm::eltwise_relu, 0.0f, 0.0f);
    break;
  case Activation::Silu:
    ops.append_eltwise(1.0f, algorithm::eltwise_swish, 1.0f, 0.0f);
    break;
  }
}

using Primitive = dnnl::matmul::primitive_desc;

// Returns nullopt if oneDNN does not support the product, or supports it only
// by its slow reference implementation.
std::optional<Primitive> makePrimitive(const Gemm &gemm) {
  if (gemm.dtype == DType::F64 || gemm.m == 0 || gemm.n == 0 || gemm.k == 0)
    return std::nullopt;
  // oneDNN cannot compute these cases: its scale would apply to the bias, too,
  // and its post-op `sum` would read the destination, which is preActivation
  // (if it is stored) and not C.
  bool scaled = gemm.alpha != 1.0;
  if ((scaled && gemm.bias.present()) ||
      (gemm.accumulate && gemm.preActivation.present()))
    return std::nullopt;
  if (std::count_if(gemm.batch.begin(), gemm.batch.end(),
                    [](int64_t size) { return size != 1; }) > 1)
    return std::nullopt;
  try {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (scaled)
      attributes.set_output_scales(0, {static_cast<float>(gemm.alpha)});
    dnnl::post_ops ops;
    if (gemm.accumulate)
      ops.append_sum();
    if (!gemm.preActivation.present())
      appendActivation(ops, gemm.activation);
    attributes.set_post_ops(ops);
    auto a = describe(gemm, gemm.a, gemm.m, gemm.k, gemm.dtype);
    auto b = describe(gemm, gemm.b, gemm.k, gemm.n, gemm.dtype);
    auto c = describe(gemm, gemm.c, gemm.m, gemm.n, gemm.resultType());
    dnnl::matmul::desc operation(a, b, c);
    if (gemm.bias.present()) {
      dnnl::memory::dims dims(c.dims().size(), 1), strides(dims.size(), gemm.n);
      dims.back() = gemm.n;
      strides.back() = 1;
      operation =
          dnnl::matmul::desc(a, b, {dims, oneDnnType(gemm.dtype), strides}, c);
    }
    Primitive primitive(operation, attributes, cpuEngine());
    if (std::strstr(primitive.impl_info_str(), "ref"))
      return std::nullopt;
    return primitive;
  } catch (const dnnl::error &) {
    return std::nullopt;
  }
}

// Returns a call that computes C = activation(preActivation), row by row.
template <class S>
std::function<void()> makeActivation(const Gemm &gemm,
                                     const GemmBuffers &buffers, int threads) {
  int64_t batch = 1;
  for (int64_t size : gemm.batch)
    batch *= size;
  int64_t matrixStride = 0;
  for (size_t i = 0; i < gemm.batch.size(); ++i)
    if (gemm.batch[i] != 1)
      matrixStride = gemm.c.batchStrides[i]; // at most one dimension is not 1
  return [=, kernel = kernelsOf<S>(microKernels()).activate, m = gemm.m,
          n = gemm.n, rowStride = gemm.c.rowStride,
          activation = static_cast<int>(gemm.activation),
          src = static_cast<const S *>(buffers.preActivation),
          dst = static_cast<S *>(buffers.c)] {
    parallelFor(batch * m, std::max<int64_t>(1, 16384 / n), threads,
                [&](int64_t begin, int64_t end, int) {
                  for (int64_t row = begin; row < end; ++row) {
                    int64_t at = row / m * matrixStride + row % m * rowStride;
                    kernel(activation, src + at, dst + at, n);
                  }
                });
  };
}

} // namespace

int64_t cleave::oneDnnGemmWorkspace(const Gemm &gemm) {
  std::optional<Primitive> primitive = makePrimitive(gemm);
  if (!primitive)
    return -1;
  auto bytes = static_cast<int64_t>(primitive->scratchpad_desc().get_size());
  return (bytes + 63) / 64 * 64;
}

std::function<void()> cleave::makeOneDnnGemm(const Gemm &gemm,
                                             const GemmBuffers &buffers,
                                             int threads) {
  std::optional<Primitive> found = makePrimitive(gemm);
  if (!found)
    return nullptr;
  const Primitive &descriptor = *found;
  // A oneDNN primitive and the arguments with which it is executed. The
  // arguments in `args` refer to the objects in `memories`.
  struct Prepared {
    dnnl::matmul primitive;
    dnnl::stream stream;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> args;
    std::function<void()> activation;
  };
  auto prepared = std::make_shared<Prepared>();
  prepared->primitive = dnnl::matmul(descriptor);
  prepared->stream = dnnl::stream(cpuEngine());
  auto add = [&](int arg, const dnnl::memory::desc &desc, const void *data) {
    prepared->memories.emplace_back(desc, cpuEngine(),
                                    const_cast<void *>(data));
    prepared->args.push_back({arg, prepared->memories.back().get()});
  };
  bool twoOutputs = gemm.preActivation.present();
  add(DNNL_ARG_SRC, descriptor.src_desc(), buffers.a);
  add(DNNL_ARG_WEIGHTS, descriptor.weights_desc(), buffers.b);
  if (gemm.bias.present())
    add(DNNL_ARG_BIAS, descriptor.bias_desc(), buffers.bias);
  add(DNNL_ARG_DST, descriptor.dst_desc(),
      twoOutputs ? buffers.preActivation : buffers.c);
  add(DNNL_ARG_SCRATCHPAD, descriptor.scratchpad_desc(), buffers.workspace);
  if (twoOutputs)
    prepared->activation = gemm.dtype == DType::BF16
                               ? makeActivation<Bf16>(gemm, buffers, threads)
                               : makeActivation<float>(gemm, buffers, threads);
  return [prepared] {
    dnnl_status_t status = dnnl_primitive_execute(
        prepared->primitive.get(), prepared->stream.get(),
        static_cast<int>(prepared->args.size()), prepared->args.data());
    if (status != dnnl_success)
      fail(CLEAVE_RANK_FAILED,
           "oneDNN's matmul failed with status " + std::to_string(status));
    if (prepared->activation)
      prepared->activation();
  };
}
