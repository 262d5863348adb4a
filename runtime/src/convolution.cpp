// Checks convolution commands, and computes the shapes of their operands.

#include "convolution.h"

using namespace cleave;
using program::Convolution;
using program::DType;

namespace {
// The largest size of a dimension; products of two sizes then fit into 64 bits.
constexpr int64_t largest = INT32_MAX;

std::string text(int64_t number) { return std::to_string(number); }

std::vector<int64_t> withFront(int64_t first, int64_t second,
                               const std::vector<int64_t> &rest) {
  std::vector<int64_t> out{first, second};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}
} // namespace

std::string cleave::checkConvolution(const Convolution &x) {
  if (x.dtype != DType::F32 && x.dtype != DType::F64 && x.dtype != DType::BF16)
    return std::string("convolution in ") + nameOf(x.dtype) +
           "; expected f32, f64 or bf16";
  size_t spatial = x.input.size();
  if (spatial < 1 || spatial > 3)
    return "convolution over " + text(int64_t(spatial)) +
           " dimensions; expected 1 to 3";
  struct Named {
    const char *name;
    const std::vector<int64_t> &list;
    int64_t least;
  };
  const std::vector<int64_t> counts{x.samples, x.groups, x.channels,
                                    x.features};
  for (const Named &one :
       {Named{"numbers of samples, groups, channels and "
              "features",
              counts, 1},
        Named{"input", x.input, 1}, Named{"kernel", x.kernel, 1},
        Named{"output", x.output, 1}, Named{"strides", x.strides, 1},
        Named{"dilations", x.dilations, 1}, Named{"low padding", x.low, 0},
        Named{"high padding", x.high, 0}}) {
    if (&one.list != &counts && one.list.size() != spatial)
      return std::string("convolution whose ") + one.name + " has " +
             text(int64_t(one.list.size())) + " numbers; expected " +
             text(int64_t(spatial));
    for (int64_t number : one.list)
      if (number < one.least || number > largest)
        return std::string("convolution with ") + text(number) + " in its " +
               one.name;
  }
  for (size_t i = 0; i < spatial; ++i) {
    __int128 reach = __int128(x.kernel[i] - 1) * x.dilations[i] + 1;
    __int128 room = __int128(x.input[i]) + x.low[i] + x.high[i] - reach;
    if (room < 0 || room / x.strides[i] + 1 != x.output[i])
      return "convolution of " + text(x.input[i]) + " elements, padded by " +
             text(x.low[i]) + " and " + text(x.high[i]) + ", by " +
             text(x.kernel[i]) + ", strides " + text(x.strides[i]) +
             ", dilation " + text(x.dilations[i]) + ", does not give " +
             text(x.output[i]);
  }
  return "";
}

std::vector<int64_t> cleave::inputDims(const Convolution &x) {
  return withFront(x.samples, x.groups * x.channels, x.input);
}
std::vector<int64_t> cleave::filterDims(const Convolution &x) {
  return withFront(x.groups * x.features, x.channels, x.kernel);
}
std::vector<int64_t> cleave::outputDims(const Convolution &x) {
  return withFront(x.samples, x.groups * x.features, x.output);
}
