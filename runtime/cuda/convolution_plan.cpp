// Properties of a convolution on a CUDA device that can be computed without a
// device.

#include "convolution_plan.h"

#include "kernels/arguments.h"

#include <algorithm>
#include <climits>

using namespace cleave;
using namespace cleave::cuda;
using program::Convolution;
using program::ConvolutionKind;
using program::DType;

namespace {
// Workspace for cuDNN's tables of offsets and other small arrays of its
// engines.
constexpr int64_t fixed = int64_t(64) << 10;
constexpr int64_t mostParts = 8, mostPartBytes = int64_t(32) << 20;
constexpr int64_t most = int64_t(1) << 30;

int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t product(const std::vector<int64_t> &sizes) {
  // The sizes in a damaged program may be so large that their product overflows
  // an int64. So the product is computed in double and clamped to 1e15.
  double out = 1;
  for (int64_t size : sizes)
    out *= double(size);
  return int64_t(std::min(out, 1e15));
}
} // namespace

int64_t ConvolutionProduct::rowTiles() const { return over(rows, productRows); }
int64_t ConvolutionProduct::columnTiles() const {
  return over(columns, productColumns);
}

ConvolutionProduct cuda::productOf(const Convolution &x) {
  int64_t taps = product(x.kernel);
  auto places = [&](const std::vector<int64_t> &spatial) {
    return product({x.samples, product(spatial)});
  };
  switch (x.kind) {
  case ConvolutionKind::Forward:
    return {x.features, places(x.output), product({x.channels, taps})};
  case ConvolutionKind::InputGrad:
    return {x.channels, places(x.input), product({x.features, taps})};
  case ConvolutionKind::FilterGrad:
    return {x.features, product({x.channels, taps}), places(x.output)};
  }
  return {};
}

bool cuda::fitsKernels(const Convolution &x) {
  ConvolutionProduct sizes = productOf(x);
  // The kernels compute positions as sums of two terms, each at most `reach`.
  int64_t reach = 0;
  for (size_t i = 0; i < x.input.size(); ++i)
    for (int64_t last :
         {product({x.output[i], x.strides[i]}),
          product({x.kernel[i], x.dilations[i]}), x.input[i] + x.low[i]})
      reach = std::max(reach, last);
  return std::max({sizes.rows, sizes.columns, sizes.depth, 2 * reach,
                   product({x.groups, sizes.rowTiles(),
                            sizes.columnTiles()})}) <= INT_MAX;
}

int64_t cuda::dnnConvolutionBytes(const Convolution &x) {
  if (x.dtype != DType::F32 && x.dtype != DType::BF16)
    return 0;
  auto units = [](int64_t channels) { return over(channels, 8) * 8; };
  int64_t size = program::sizeOf(x.dtype);
  int64_t channels = units(product({x.groups, x.channels}));
  int64_t features = units(product({x.groups, x.features}));
  auto bytesOf = [&](int64_t outer, int64_t inner,
                     const std::vector<int64_t> &spatial) {
    return over(product({size, outer, inner, product(spatial)}), 256) * 256;
  };
  int64_t filter = bytesOf(features, units(x.channels), x.kernel);
  int64_t bytes = bytesOf(x.samples, channels, x.input) + filter +
                  bytesOf(x.samples, features, x.output);
  int64_t parts = 0;
  if (x.kind == ConvolutionKind::FilterGrad)
    parts = std::min(mostParts * filter * (4 / size), mostPartBytes);
  return fixed + parts + (bytes + parts > most ? 0 : bytes);
}
