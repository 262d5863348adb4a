// Convolutions and their gradients as implicit matrix products: the windows are
// read in place. Every sum has a fixed order.

#include "convolution_arguments.h"
#include "product.h"

using namespace cleave::cuda;
using namespace cleave::cuda::device;

namespace {
// The decomposition of an index over [outer, grid...], where the grid is the
// spatial dimensions.
struct Place {
  int32_t outer, at[3];
  int64_t inner; // the index over the grid alone
};
CLEAVE_DEVICE Place placeOf(int64_t index, const ConvolutionGrid &grid) {
  Place out;
  uint32_t rest = uint32_t(index);
#pragma unroll
  for (int i = 2; i >= 0; --i) {
    uint32_t next = divide(rest, grid.by[i]);
    out.at[i] = int32_t(rest - next * uint32_t(grid.size[i]));
    rest = next;
  }
  out.outer = int32_t(rest);
  out.inner = index - int64_t(rest) * grid.count;
  return out;
}

// Returns the offset of the input element that output position `o` multiplies
// with kernel position `k`, or -1 if it is in the padding, which reads as zero.
CLEAVE_DEVICE int64_t inputAt(const ConvolutionArguments &x, const Place &o,
                              const Place &k) {
  int64_t at = 0;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    int32_t element =
        o.at[i] * x.stride[i] + k.at[i] * x.dilation[i] - x.low[i];
    if (element < 0 || element >= x.input.size[i])
      return -1;
    at = at * x.input.size[i] + element;
  }
  return at;
}

// Returns the output position whose window has the input element `in` at kernel
// position `k`, or -1 if there is none.
CLEAVE_DEVICE int64_t windowOf(const ConvolutionArguments &x, const Place &in,
                               const Place &k) {
  int64_t at = 0;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    int32_t from = in.at[i] + x.low[i] - k.at[i] * x.dilation[i];
    int32_t window = from / x.stride[i];
    if (from < 0 || window * x.stride[i] != from || window >= x.output.size[i])
      return -1;
    at = at * x.output.size[i] + window;
  }
  return at;
}

/// Like ProductSide, but reads zeros where `place` returns a negative offset.
template <class T, class Find> struct PaddedSide : ProductSide<T, Find> {
  CLEAVE_DEVICE void load(int64_t row0, int64_t depth0, T *values) const {
#pragma unroll
    for (int i = 0; i < this->perThread; ++i) {
      int row, depth;
      this->locate(i, row, depth);
      int64_t at = -1;
      if (row0 + row < this->outer && depth0 + depth < this->inner)
        at = this->place(row0 + row, depth0 + depth);
      values[i] = at >= 0 ? loadAs<T>(this->from, at, this->isBf16) : T(0);
    }
  }
};
template <class T, class Find>
CLEAVE_DEVICE PaddedSide<T, Find> windowsOf(const ConvolutionArguments &x,
                                            const void *from, bool alongInner,
                                            Find find) {
  return {{from, x.isBf16 != 0, alongInner, x.columns, x.depth, find}};
}

// The first row and column of the tile of the matrix product that this block
// computes, and the first channel and feature of the tile's group.
struct Tile {
  int64_t row0, column0, channel0, feature0;
};
CLEAVE_DEVICE Tile tileOf(const ConvolutionArguments &x) {
  int64_t rest = blockIdx.x / x.columnTiles, group = rest / x.rowTiles;
  return {rest % x.rowTiles * productRows,
          blockIdx.x % x.columnTiles * productColumns, group * x.channels,
          group * x.features};
}

// y[m; n, o] = sum over channels c and kernel positions k
template <class T> CLEAVE_DEVICE void forward(const ConvolutionArguments &x) {
  Tile tile = tileOf(x);
  int64_t channels = x.groups * x.channels, features = x.groups * x.features;
  auto filter = sideOf<T>(x.w, x.isBf16, true, x.rows, x.depth,
                          [&](int64_t row, int64_t depth) {
                            return (tile.feature0 + row) * x.depth + depth;
                          });
  auto windows = windowsOf<T>(
      x, x.x, false, [&](int64_t column, int64_t depth) -> int64_t {
        Place o = placeOf(column, x.output), k = placeOf(depth, x.kernel);
        int64_t at = inputAt(x, o, k);
        int64_t plane = o.outer * channels + tile.channel0 + k.outer;
        return at < 0 ? -1 : plane * x.input.count + at;
      });
  T sums[productSide][productSide];
  multiplyTile<T>(filter, windows, tile.row0, tile.column0, sums);
  forElements<T>(sums, tile.row0, tile.column0, x.rows, x.columns,
                 [&](int64_t row, int64_t column, T sum) {
                   Place o = placeOf(column, x.output);
                   int64_t plane = o.outer * features + tile.feature0 + row;
                   storeAs<T>(x.y, plane * x.output.count + o.inner, sum,
                              x.isBf16);
                 });
}

// x[c; n, i] = sum over features m and kernel positions k
template <class T> CLEAVE_DEVICE void inputGrad(const ConvolutionArguments &x) {
  Tile tile = tileOf(x);
  int64_t channels = x.groups * x.channels, features = x.groups * x.features;
  auto filter = sideOf<T>(
      x.w, x.isBf16, true, x.rows, x.depth, [&](int64_t row, int64_t depth) {
        Place k = placeOf(depth, x.kernel);
        int64_t plane = (tile.feature0 + k.outer) * x.channels + row;
        return plane * x.kernel.count + k.inner;
      });
  auto windows = windowsOf<T>(
      x, x.y, false, [&](int64_t column, int64_t depth) -> int64_t {
        Place in = placeOf(column, x.input), k = placeOf(depth, x.kernel);
        int64_t at = windowOf(x, in, k);
        int64_t plane = in.outer * features + tile.feature0 + k.outer;
        return at < 0 ? -1 : plane * x.output.count + at;
      });
  T sums[productSide][productSide];
  multiplyTile<T>(filter, windows, tile.row0, tile.column0, sums);
  forElements<T>(sums, tile.row0, tile.column0, x.rows, x.columns,
                 [&](int64_t row, int64_t column, T sum) {
                   Place in = placeOf(column, x.input);
                   int64_t plane = in.outer * channels + tile.channel0 + row;
                   storeAs<T>(x.x, plane * x.input.count + in.inner, sum,
                              x.isBf16);
                 });
}

// w[m; c, k] = sum over samples n and output positions o
template <class T>
CLEAVE_DEVICE void filterGrad(const ConvolutionArguments &x) {
  Tile tile = tileOf(x);
  int64_t channels = x.groups * x.channels, features = x.groups * x.features;
  auto cotangent = sideOf<T>(
      x.y, x.isBf16, true, x.rows, x.depth, [&](int64_t row, int64_t depth) {
        Place o = placeOf(depth, x.output);
        int64_t plane = o.outer * features + tile.feature0 + row;
        return plane * x.output.count + o.inner;
      });
  auto windows =
      windowsOf<T>(x, x.x, true, [&](int64_t column, int64_t depth) -> int64_t {
        Place k = placeOf(column, x.kernel), o = placeOf(depth, x.output);
        int64_t at = inputAt(x, o, k);
        int64_t plane = o.outer * channels + tile.channel0 + k.outer;
        return at < 0 ? -1 : plane * x.input.count + at;
      });
  T sums[productSide][productSide];
  multiplyTile<T>(cotangent, windows, tile.row0, tile.column0, sums);
  forElements<T>(sums, tile.row0, tile.column0, x.rows, x.columns,
                 [&](int64_t row, int64_t column, T sum) {
                   int64_t at = (tile.feature0 + row) * x.columns + column;
                   storeAs<T>(x.w, at, sum, x.isBf16);
                 });
}
} // namespace

#define CLEAVE_CONVOLUTION(name, body, type)                                   \
  extern "C" __global__ void __launch_bounds__(productThreads)                 \
      cleave_convolution_##name(ConvolutionArguments x) {                      \
    body<type>(x);                                                             \
  }
CLEAVE_CONVOLUTION(forward_f32, forward, float)
CLEAVE_CONVOLUTION(forward_f64, forward, double)
CLEAVE_CONVOLUTION(input_grad_f32, inputGrad, float)
CLEAVE_CONVOLUTION(input_grad_f64, inputGrad, double)
CLEAVE_CONVOLUTION(filter_grad_f32, filterGrad, float)
CLEAVE_CONVOLUTION(filter_grad_f64, filterGrad, double)

CLEAVE_KERNELS(convolution, CLEAVE_KERNEL(convolution_forward_f32),
               CLEAVE_KERNEL(convolution_forward_f64),
               CLEAVE_KERNEL(convolution_input_grad_f32),
               CLEAVE_KERNEL(convolution_input_grad_f64),
               CLEAVE_KERNEL(convolution_filter_grad_f32),
               CLEAVE_KERNEL(convolution_filter_grad_f64))
