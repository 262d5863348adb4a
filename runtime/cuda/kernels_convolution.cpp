// Launches the runtime's convolution kernels.

#include "kernels.h"

#include "cleave/workspace.h"
#include "convolution_plan.h"
#include "error.h"
#include "kernels/convolution_arguments.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;
using program::Convolution;
using program::DType;

namespace {
// Writes the values of one to three spatial dimensions to the end of `three`.
// The leading entries of missing dimensions get `rest`.
void fill(int32_t *three, const std::vector<int64_t> &values, int32_t rest) {
  std::fill_n(three, 3, rest);
  for (size_t i = 0; i < values.size(); ++i)
    three[3 - values.size() + i] = static_cast<int32_t>(values[i]);
}

ConvolutionGrid gridOf(const std::vector<int64_t> &sizes) {
  ConvolutionGrid out{};
  fill(out.size, sizes, 1);
  out.count = 1;
  for (int i = 0; i < 3; ++i) {
    out.by[i] = dividerOf(static_cast<uint32_t>(out.size[i]));
    out.count *= out.size[i];
  }
  return out;
}

ConvolutionArguments argumentsOf(const Convolution &x,
                                 const ConvolutionBuffers &at) {
  ConvolutionArguments out{};
  out.x = at.x, out.w = at.w, out.y = at.y;
  out.groups = x.groups, out.channels = x.channels, out.features = x.features;
  out.input = gridOf(x.input), out.kernel = gridOf(x.kernel);
  out.output = gridOf(x.output);
  fill(out.stride, x.strides, 1);
  fill(out.dilation, x.dilations, 1);
  fill(out.low, x.low, 0);
  ConvolutionProduct sizes = productOf(x);
  out.rows = sizes.rows, out.columns = sizes.columns, out.depth = sizes.depth;
  out.rowTiles = sizes.rowTiles(), out.columnTiles = sizes.columnTiles();
  out.isBf16 = x.dtype == DType::BF16;
  return out;
}
} // namespace

Enqueue cuda::makeConvolution(Kernels &kernels, const Convolution &x,
                              const ConvolutionBuffers &at) {
  std::string error;
  if (cuda::convolutionWorkspace(x, error) < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  constexpr const char *kinds[] = {"forward", "input_grad", "filter_grad"};
  std::string name = std::string("cleave_convolution_") +
                     kinds[static_cast<int>(x.kind)] +
                     (x.dtype == DType::F64 ? "_f64" : "_f32");
  ConvolutionArguments args = argumentsOf(x, at);
  return
      [&kernels, args, name,
       blocks = x.groups * args.rowTiles * args.columnTiles](CUstream stream) {
        kernels.launch(name.c_str(), blocks, productThreads, 0, stream, args);
      };
}
