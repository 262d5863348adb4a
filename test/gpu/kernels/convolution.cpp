// Checks convolutions and their derivatives over one to three dimensions, with
// strides, dilations, asymmetric padding and groups, both by the runtime's
// kernels and by cuDNN.

#include "harness.h"

#include "cleave/workspace.h"
#include "dnn.h"
#include "error.h"

#include <cstdio>

using namespace cleave;
using namespace cleave::gpu;
using program::Convolution;
using program::ConvolutionKind;

namespace {
// Who computes it.
enum class By { Kernels, Dnn, DnnTf32 };

Convolution sizesOf(Case &one, DType type, ConvolutionKind kind) {
  Convolution x;
  x.kind = kind, x.dtype = type;
  int64_t dims = one.between(1, 3);
  x.samples = one.between(1, 3);
  x.groups = one.one(2) ? 1 : one.between(1, 4);
  int64_t most = one.isSmall ? 6 : 40;
  x.channels = one.one(4) ? 1 : one.length(most);
  x.features = one.one(4) ? 1 : one.length(most);
  // The limits of the sizes are such that inputs with one, two or three
  // dimensions have about the same number of elements.
  int64_t mostSize = dims == 1 ? 60 : dims == 2 ? 12 : 6;
  if (!one.isSmall)
    mostSize *= 2;
  for (int64_t i = 0; i < dims; ++i) {
    int64_t kernel = one.between(1, dims == 3 ? 3 : 5);
    int64_t dilation = one.one(3) ? one.between(1, 3) : 1;
    int64_t reach = (kernel - 1) * dilation + 1;
    int64_t low = one.one(2) ? one.below(reach) : reach / 2;
    int64_t high = one.one(2) ? low : one.below(reach);
    int64_t input = one.between(1, mostSize);
    input = std::max(input, reach - low - high);
    x.input.push_back(input), x.kernel.push_back(kernel);
    x.strides.push_back(one.one(2) ? 1 : one.between(1, 3));
    x.dilations.push_back(dilation);
    x.low.push_back(low), x.high.push_back(high);
    x.output.push_back((input + low + high - reach) / x.strides.back() + 1);
  }
  one.say("samples", x.samples), one.say("groups", x.groups);
  one.say("channels", x.channels), one.say("features", x.features);
  one.say("input", x.input), one.say("kernel", x.kernel);
  one.say("strides", x.strides), one.say("dilations", x.dilations);
  one.say("low", x.low), one.say("high", x.high);
  return x;
}

struct Arrays {
  Array x, w, y;
};

Array &resultOf(const Convolution &x, Arrays &arrays) {
  return x.kind == ConvolutionKind::Forward     ? arrays.y
         : x.kind == ConvolutionKind::InputGrad ? arrays.x
                                                : arrays.w;
}

std::vector<Expected> reference(const Convolution &x, Arrays &in) {
  std::vector<Expected> out(size_t(resultOf(x, in).size()));
  for (Expected &one : out)
    one.isWritten = true;
  std::vector<int64_t> xDims = inputDims(x), wDims = filterDims(x),
                       yDims = outputDims(x);
  int64_t count = 0;
  std::vector<int64_t> xStrides = denseStrides(xDims, count),
                       wStrides = denseStrides(wDims, count),
                       yStrides = denseStrides(yDims, count);
  std::vector<int64_t> taps(wDims.begin() + 1, wDims.end());
  forAll(yDims, [&](const std::vector<int64_t> &o) {
    forAll(taps, [&](const std::vector<int64_t> &tap) {
      int64_t group = o[1] / x.features;
      std::vector<int64_t> from{o[0], group * x.channels + tap[0]};
      std::vector<int64_t> filter{o[1]};
      filter.insert(filter.end(), tap.begin(), tap.end());
      for (size_t i = 0; i < x.input.size(); ++i) {
        int64_t at =
            o[i + 2] * x.strides[i] + tap[i + 1] * x.dilations[i] - x.low[i];
        if (at < 0 || at >= x.input[i])
          return;
        from.push_back(at);
      }
      int64_t xAt = dot(from, xStrides), wAt = dot(filter, wStrides),
              yAt = dot(o, yStrides);
      auto add = [&](int64_t to, double product) {
        out[size_t(to)].add(product, std::abs(product));
      };
      if (x.kind == ConvolutionKind::Forward)
        add(yAt, in.x.at(xAt) * in.w.at(wAt));
      else if (x.kind == ConvolutionKind::InputGrad)
        add(xAt, in.y.at(yAt) * in.w.at(wAt));
      else
        add(wAt, in.y.at(yAt) * in.x.at(xAt));
    });
  });
  return out;
}

void checkConvolution(Case &one, DType type, ConvolutionKind kind, By by) {
  Convolution x = sizesOf(one, type, kind);
  if (std::string fault = cleave::checkConvolution(x); !fault.empty())
    fail(CLEAVE_INTERNAL, fault);
  auto make = [&](const std::vector<int64_t> &dims) {
    int64_t count = 1;
    for (int64_t size : dims)
      count *= size;
    // cuDNN needs arrays that are aligned to 16 bytes.
    return Array(type, count, by == By::Kernels ? one.below(4) : 0);
  };
  Arrays arrays{make(inputDims(x)), make(filterDims(x)), make(outputDims(x))};
  Array &result = resultOf(x, arrays);
  for (Array *array : {&arrays.x, &arrays.w, &arrays.y})
    if (array != &result)
      array->randomize(one);
  ConvolutionBuffers at;
  at.x = arrays.x.upload(one.stream), at.w = arrays.w.upload(one.stream);
  at.y = arrays.y.upload(one.stream);
  std::string error;
  int64_t bytes = cuda::convolutionWorkspace(x, error);
  if (bytes < 0)
    fail(CLEAVE_INTERNAL, error);
  // cuDNN plans need the workspace aligned to 64 bytes.
  cuda::DeviceMemory workspace(bytes + 64, "workspace");
  at.workspace = workspace.data() + 64;
  if (by == By::Kernels) {
    one.run(cuda::makeConvolution(one.kernels, x, at));
  } else {
    std::string why;
    cuda::Enqueue enqueue =
        cuda::makeDnnConvolution(one.device, x, at, by == By::DnnTf32, why);
    if (!enqueue) {
      one.refusal = "cuDNN does not do it: " + why;
      return;
    }
    one.run(enqueue);
  }
  result.download(one.stream);
  one.compare("result", result, reference(x, arrays),
              by == By::DnnTf32 ? limitTf32 : limitOf(type));
}

template <DType type, ConvolutionKind kind, By by> void check(Case &one) {
  checkConvolution(one, type, kind, by);
}

template <DType type, By by>
void add(std::vector<Family> &to, const std::string &name) {
  to.push_back({"convolution, " + name,
                check<type, ConvolutionKind::Forward, by>, 48, 24});
  to.push_back({"convolution input grad, " + name,
                check<type, ConvolutionKind::InputGrad, by>, 48, 24});
  to.push_back({"convolution filter grad, " + name,
                check<type, ConvolutionKind::FilterGrad, by>, 48, 24});
}
} // namespace

void gpu::addConvolutionFamilies(cuda::Device &device,
                                 std::vector<Family> &to) {
  add<DType::F32, By::Kernels>(to, "f32");
  add<DType::F64, By::Kernels>(to, "f64");
  add<DType::BF16, By::Kernels>(to, "bf16");
  std::string why;
  if (!cuda::hasDnn(device, why)) {
    std::printf("no convolutions by cuDNN: %s\n", why.c_str());
    return;
  }
  add<DType::F32, By::Dnn>(to, "f32, cuDNN");
  add<DType::F32, By::DnnTf32>(to, "tf32, cuDNN");
  add<DType::BF16, By::Dnn>(to, "bf16, cuDNN");
}
