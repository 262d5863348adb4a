// Choosing and preparing a matrix product: oneDNN's matmul primitive where it
// has an optimized implementation, the blocked loop elsewhere.

#include "cpu/gemm.h"

#include "cleave/workspace.h"
#include "cpu/micro.h"
#include "cpu/parallel.h"
#include "error.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <dnnl.hpp>
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

// Libraries ask for the thread count while they prepare.
struct ThreadsGuard {
  explicit ThreadsGuard(int threads) : before(getThreads()) {
    if (threads != before)
      setThreads(threads);
  }
  ~ThreadsGuard() { setThreads(before); }
  int before;
};

dnnl::memory::data_type oneDnnType(DType type) {
  return type == DType::BF16 ? dnnl::memory::data_type::bf16
                             : dnnl::memory::data_type::f32;
}

// oneDNN takes dims of size 1 for broadcast, where a program says stride 0;
// batch dimensions of size 1 are dropped.
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

// Nothing if oneDNN does not do this product, or does it by its slow
// reference implementation.
std::optional<Primitive> makePrimitive(const Gemm &gemm) {
  if (gemm.dtype == DType::F64 || gemm.m == 0 || gemm.n == 0 || gemm.k == 0)
    return std::nullopt;
  // Its scale covers the bias, and its sum reads the one output it has.
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

// C = activation(preActivation), row by row.
template <class S>
std::function<void()> makeActivation(const Gemm &gemm,
                                     const GemmBuffers &buffers, int threads) {
  int64_t batch = 1;
  for (int64_t size : gemm.batch)
    batch *= size;
  int64_t matrixStride = 0;
  for (size_t i = 0; i < gemm.batch.size(); ++i)
    if (gemm.batch[i] != 1)
      matrixStride = gemm.c.batchStrides[i]; // at most one such dimension
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

std::function<void()> makeOneDnn(const Gemm &gemm, const Primitive &descriptor,
                                 const GemmBuffers &buffers, int threads) {
  // Everything that an execution needs; the arguments point into it.
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
} // namespace

std::string cleave::checkGemm(const Gemm &gemm) {
  if (gemm.dtype != DType::F32 && gemm.dtype != DType::F64 &&
      gemm.dtype != DType::BF16)
    return std::string("gemm in ") + nameOf(gemm.dtype) +
           " is not supported; use f32, f64 or bf16";
  if (gemm.wideResult && gemm.dtype != DType::BF16)
    return std::string("gemm in ") + nameOf(gemm.dtype) +
           " whose result is to be f32: only that of bf16 is wider";
  if (gemm.wideResult && gemm.preActivation.present())
    return "gemm in bf16 with two results of f32 is not supported";
  constexpr int64_t limit = int64_t(1) << 31;
  __int128 work = 1;
  for (int64_t size : {gemm.m, gemm.n, gemm.k})
    if (size < 0 || size > limit)
      return "gemm of size " + std::to_string(size);
  for (const MatrixRef *matrix : {&gemm.a, &gemm.b, &gemm.c})
    if (matrix->batchStrides.size() != gemm.batch.size())
      return "gemm with " + std::to_string(gemm.batch.size()) +
             " batch dimensions has an operand with " +
             std::to_string(matrix->batchStrides.size());
  for (size_t i = 0; i < gemm.batch.size(); ++i) {
    work *= gemm.batch[i];
    if (gemm.batch[i] < 0 || work > limit)
      return "gemm with a batch of " + std::to_string(gemm.batch[i]);
    if (gemm.batch[i] > 1 && gemm.c.batchStrides[i] == 0)
      return "gemm that writes one output for a whole batch";
  }
  if (gemm.preActivation.present() && gemm.c.colStride != 1 && gemm.n > 1)
    return "gemm with a second output needs contiguous rows";
  return "";
}

int64_t cleave::gemmWorkspace(const Gemm &gemm, int threads,
                              std::string &error) {
  error = checkGemm(gemm);
  if (!error.empty())
    return -1;
  ThreadsGuard guard(threads);
  if (std::optional<Primitive> primitive = makePrimitive(gemm)) {
    auto bytes = static_cast<int64_t>(primitive->scratchpad_desc().get_size());
    return (bytes + 63) / 64 * 64;
  }
  return blockedGemmWorkspace(gemm, threads);
}

std::function<void()> cleave::makeGemm(const Gemm &gemm,
                                       const GemmBuffers &buffers, int threads,
                                       GemmBackend backend) {
  std::string error = checkGemm(gemm);
  if (!error.empty())
    fail(CLEAVE_UNSUPPORTED, error);
  ThreadsGuard guard(threads);
  if (backend == GemmBackend::Auto)
    if (std::optional<Primitive> primitive = makePrimitive(gemm))
      return makeOneDnn(gemm, *primitive, buffers, threads);
  return makeBlockedGemm(gemm, buffers, threads);
}
