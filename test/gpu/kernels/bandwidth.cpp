// Measures what a device's memory and its matrix units achieve, as a yardstick
// for the kernels.

#include "harness.h"

#include "blas.h"
#include "cleave/workspace.h"
#include "dnn.h"
#include "error.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <functional>

using namespace cleave;
using namespace cleave::gpu;
using cuda::check;
using cuda::DeviceMemory;
using cuda::driver;

namespace {
constexpr int64_t gibibyte = int64_t(1) << 30;

class Bench {
public:
  explicit Bench(cuda::Device &device)
      : device(device), kernels(cuda::Kernels::of(device)) {}

  void measureCopy();
  void measureMemory();
  void measureProduct();
  void measureGrouped();
  void measureAttention(int64_t features);

  double copyRate = 0;    // GB/s of a device-to-device copy
  double productRate = 0; // TFLOP/s of the largest product

private:
  // Returns the median milliseconds of 20 runs, after three warm-up runs.
  double timeOf(const cuda::Enqueue &enqueue) {
    constexpr int warmUps = 3, runs = 20;
    std::vector<double> times;
    for (int run = 0; run < warmUps + runs; ++run) {
      check(driver().cuEventRecord(begin.get(), stream.get()), "timing");
      enqueue(stream.get());
      check(driver().cuEventRecord(end.get(), stream.get()), "timing");
      check(driver().cuEventSynchronize(end.get()), "timing");
      float milliseconds = 0;
      check(driver().cuEventElapsedTime(&milliseconds, begin.get(), end.get()),
            "timing");
      if (run >= warmUps)
        times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    return (times[runs / 2 - 1] + times[runs / 2]) / 2;
  }

  // Times a command and prints its bandwidth, also relative to the first
  // command that was measured. `bytes` counts the bytes that are read and the
  // bytes that are written.
  void printBandwidth(const char *what, int64_t bytes,
                      const cuda::Enqueue &enqueue) {
    double milliseconds = timeOf(enqueue);
    double rate = double(bytes) / milliseconds / 1e6;
    if (copyRate == 0)
      copyRate = rate;
    std::printf("%-44s %9.3f ms %8.0f GB/s %6.1f %%\n", what, milliseconds,
                rate, 100 * rate / copyRate);
    std::fflush(stdout);
  }
  double printSpeed(const char *what, double flops,
                    const cuda::Enqueue &enqueue) {
    double milliseconds = timeOf(enqueue);
    double rate = flops / milliseconds / 1e9;
    std::printf("%-44s %9.3f ms %8.1f TFLOP/s\n", what, milliseconds, rate);
    std::fflush(stdout);
    return rate;
  }

  // Returns random numbers in bf16. Zeros would take less power and therefore
  // run faster.
  DeviceMemory numbers(int64_t count) {
    constexpr int64_t piece = int64_t(1) << 22;
    if (random.empty()) {
      std::mt19937 engine(1);
      std::normal_distribution<float> normal;
      for (int64_t i = 0; i < piece; ++i) {
        float x = normal(engine);
        random.push_back(uint16_t(std::bit_cast<uint32_t>(x) >> 16));
      }
    }
    DeviceMemory out(2 * count, "operands");
    for (int64_t at = 0; at < count; at += piece)
      check(driver().cuMemcpyHtoDAsync(
                cuda::address(out.data() + 2 * at), random.data(),
                size_t(2 * std::min(piece, count - at)), stream.get()),
            "copying to the device");
    check(driver().cuStreamSynchronize(stream.get()), "copying to the device");
    return out;
  }

  cuda::Device &device;
  cuda::Kernels &kernels;
  cuda::Stream stream = cuda::makeStream();
  cuda::Event begin = cuda::makeEvent(true), end = cuda::makeEvent(true);
  std::vector<uint16_t> random;
};

void Bench::measureCopy() {
  DeviceMemory from(gibibyte, "a copy"), to(gibibyte, "a copy");
  printBandwidth("copy by the driver, 1 GiB", 2 * gibibyte,
                 [&](CUstream stream) {
                   check(driver().cuMemcpyDtoDAsync(cuda::address(to.data()),
                                                    cuda::address(from.data()),
                                                    gibibyte, stream),
                         "copying");
                 });
}

void Bench::measureMemory() {
  DeviceMemory from(gibibyte, "a copy"), to(gibibyte, "a copy");
  auto copy = [&](const char *what, int64_t size, std::vector<int64_t> dims,
                  std::vector<int64_t> dst, std::vector<int64_t> src) {
    int64_t bytes = size;
    for (int64_t dim : dims)
      bytes *= dim;
    cuda::StridedCopy x{to.data(), from.data(), size, dims, dst, src};
    printBandwidth(what, 2 * bytes, cuda::makeCopy(kernels, x));
  };
  copy("copy, 1 GiB", 1, {gibibyte}, {1}, {1});
  // Copies 4 KiB of each row of 16 KiB, like a copy that cuts a rank's shard
  // out of a weight.
  copy("copy, strided, 64 Ki rows of 4 KiB", 4, {65536, 1024}, {4096, 4},
       {16384, 4});
  // Transposes [batch, position, head, feature] to [batch, head, position,
  // feature].
  copy("copy, heads before positions, bf16", 2, {4, 32, 16384, 128},
       {134217728, 4194304, 256, 2}, {134217728, 256, 8192, 2});
  copy("copy, transposing, bf16, 16384 x 16384", 2, {16384, 16384}, {32768, 2},
       {2, 32768});
  copy("copy, transposing, f32, 16384 x 16384", 4, {16384, 16384}, {65536, 4},
       {4, 65536});
  printBandwidth("fill, 1 GiB", gibibyte,
                 cuda::makeFill(kernels, to.data(), gibibyte / 4, 4, 0));
  constexpr int64_t part = gibibyte / 8;
  for (DType type : {DType::F32, DType::BF16})
    for (int sources : {2, 4, 8}) {
      cuda::Reduction x;
      x.dst = to.data();
      for (int i = 0; i < sources; ++i)
        x.srcs.push_back(from.data() + i * part);
      x.count = part / program::sizeOf(type);
      x.dtype = type;
      std::string what = std::string("reduce, ") + program::nameOf(type) +
                         ", " + std::to_string(sources) + " x 128 MiB";
      printBandwidth(what.c_str(), (sources + 1) * part, [&](CUstream stream) {
        cuda::reduce(kernels, x, stream);
      });
    }
}

void Bench::measureProduct() {
  constexpr int64_t size = 8192;
  DeviceMemory a = numbers(size * size), b = numbers(size * size),
               c = numbers(size * size);
  program::Gemm gemm;
  gemm.dtype = DType::BF16;
  gemm.m = gemm.n = gemm.k = size;
  gemm.a.rowStride = gemm.b.rowStride = gemm.c.rowStride = size;
  std::string error;
  int64_t bytes = cuda::gemmWorkspace(gemm, error);
  DeviceMemory workspace(bytes, "workspace");
  GemmBuffers at;
  at.a = a.data(), at.b = b.data(), at.c = c.data();
  at.workspace = workspace.data();
  productRate =
      printSpeed("gemm, bf16, 8192 x 8192 x 8192", 2.0 * size * size * size,
                 cuda::makeGemm(device, gemm, at, bytes));
}

// Measures a grouped product of 16384 rows that choose among 8 matrices. Each
// matrix is chosen by the same number of rows, in random order.
void Bench::measureGrouped() {
  constexpr int64_t rows = 16384, count = 8, k = 2048, n = 4096;
  DeviceMemory a = numbers(rows * k), w = numbers(count * k * n),
               c = numbers(rows * n), ids(8 * rows, "ids");
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < rows; ++i)
    chosen.push_back(i % count);
  std::shuffle(chosen.begin(), chosen.end(), std::mt19937(1));
  check(driver().cuMemcpyHtoDAsync(cuda::address(ids.data()), chosen.data(),
                                   8 * rows, stream.get()),
        "copying to the device");
  check(driver().cuStreamSynchronize(stream.get()), "copying to the device");
  enum Form { Rows, Columns, Outer };
  auto measure = [&](const char *what, Form form) {
    program::GroupedGemm x;
    x.dtype = DType::BF16;
    x.rows = {rows};
    x.e = count, x.k = k, x.n = n;
    x.a.strides = {k}, x.c.strides = {n}, x.ids.strides = {1};
    x.w.batchStrides = {k * n};
    x.w.rowStride = form == Columns ? 1 : n;
    x.w.colStride = form == Columns ? k : 1;
    x.outer = form == Outer;
    std::string error;
    DeviceMemory workspace(cuda::groupedWorkspace(x, error), "workspace");
    GroupedBuffers at;
    at.a = a.data(), at.c = c.data(), at.w = w.data();
    at.ids = reinterpret_cast<int64_t *>(ids.data());
    at.workspace = workspace.data();
    printSpeed(what, 2.0 * rows * k * n, cuda::makeGrouped(kernels, x, at));
  };
  measure("grouped, bf16, 16384 x 2048 x 4096, of 8", Rows);
  measure("grouped, the same, turned", Columns);
  measure("grouped outer, the same", Outer);
}

void Bench::measureAttention(int64_t features) {
  program::Attention x;
  x.dtype = DType::BF16;
  x.b = 4, x.qLen = x.kLen = 4096, x.n = 16;
  x.d = x.dv = features;
  x.scale = 1 / std::sqrt(double(features));
  x.causal = true;
  int64_t line = x.n * features;
  for (program::AttentionRef *ref :
       {&x.q, &x.k, &x.v, &x.o, &x.dO, &x.dq, &x.dk, &x.dV})
    ref->strides = {x.qLen * line, line, features, features, 1};
  x.lse.strides = {x.n * x.qLen, 1, x.qLen, x.qLen, 1};
  int64_t count = x.b * x.qLen * line;
  DeviceMemory q = numbers(count), k = numbers(count), v = numbers(count),
               dO = numbers(count), o(2 * count, "o"), dq(2 * count, "dq"),
               dk(2 * count, "dk"), dV(2 * count, "dv"),
               lse(4 * x.b * x.n * x.qLen, "lse");
  AttentionBuffers at;
  at.q = q.data(), at.k = k.data(), at.v = v.data(), at.o = o.data();
  at.lse = lse.data(), at.dO = dO.data();
  at.dq = dq.data(), at.dk = dk.data(), at.dV = dV.data();
  // The forward pass computes two products for each visible pair of query and
  // key, the backward pass five.
  double pairs =
      double(x.b * x.n) *
      double(program::attentionPairs(x.qLen, x.kLen, x.causal, x.window));
  for (bool backward : {false, true}) {
    x.backward = backward;
    std::string error;
    DeviceMemory workspace(cuda::attentionWorkspace(x, error), "workspace");
    at.workspace = workspace.data();
    std::string what = std::string("attention") +
                       (backward ? " backward" : "") + ", bf16, causal, d " +
                       std::to_string(features);
    double products = (backward ? 10 : 4) * double(features) * pairs;
    printSpeed((what + ", own").c_str(), products,
               cuda::makeAttention(kernels, x, at));
    std::string why;
    if (cuda::Enqueue enqueue = cuda::makeDnnAttention(device, x, at, why))
      printSpeed((what + ", cuDNN").c_str(), products, enqueue);
    else
      std::printf("%s, cuDNN: not done: %s\n", what.c_str(), why.c_str());
  }
}
} // namespace

void gpu::measure(cuda::Device &device, bool onlyCeilings) {
  std::printf("%s, sm_%d\n%-44s %12s %13s %8s\n", device.name().c_str(),
              device.capability(),
              "what (medians of 20; bytes read and written)", "time", "rate",
              "of copy");
  Bench bench(device);
  bench.measureCopy();
  if (onlyCeilings) {
    bench.measureProduct();
    std::printf("{\"copy_gb_per_s\": %.1f, \"bf16_tflop_per_s\": %.1f}\n",
                bench.copyRate, bench.productRate);
    return;
  }
  bench.measureMemory();
  bench.measureProduct();
  bench.measureGrouped();
  for (int64_t features : {64, 128})
    bench.measureAttention(features);
}
