// For convolutions and their derivatives, checks that cuDNN has a plan that
// fits into the planned workspace and uses only permitted arithmetic, and that
// cuDNN refuses sizes that do not fit together. No plan is executed.

#include "convolutions.h"

#include "convolution.h"
#include "convolution_plan.h"
#include "dnn_convolution.h"

#include <array>
#include <cstdio>

using namespace cleave;
using namespace cleave::cuda;
using program::Convolution;
using program::ConvolutionKind;
using program::DType;

namespace {
struct Sizes {
  std::string name;
  int64_t samples, groups, channels, features; // of a group
  std::vector<int64_t> input, kernel;
  std::vector<int64_t> strides, dilations, low, high;
};
// Returns the sizes of a convolution with the same window along all dimensions.
// `window` is {kernel, stride, dilation, low padding, high padding}.
Sizes alike(const char *name, std::array<int64_t, 4> counts,
            const std::vector<int64_t> &input, std::array<int64_t, 5> window) {
  auto all = [&](int i) {
    return std::vector<int64_t>(input.size(), window[size_t(i)]);
  };
  return {name,   counts[0], counts[1], counts[2], counts[3], input,
          all(0), all(1),    all(2),    all(3),    all(4)};
}
const Sizes commands[] = {
    alike("ResNet stem", {32, 1, 3, 64}, {224, 224}, {7, 2, 1, 3, 3}),
    alike("ResNet 3x3", {32, 1, 64, 64}, {56, 56}, {3, 1, 1, 1, 1}),
    alike("ResNet 1x1", {32, 1, 256, 64}, {56, 56}, {1, 1, 1, 0, 0}),
    alike("ResNet down", {32, 1, 128, 128}, {56, 56}, {3, 2, 1, 1, 1}),
    alike("ViT patches", {16, 1, 3, 768}, {224, 224}, {16, 16, 1, 0, 0}),
    alike("Whisper 1", {8, 1, 80, 384}, {3000}, {3, 1, 1, 1, 1}),
    alike("Whisper 2", {8, 1, 384, 384}, {3000}, {3, 2, 1, 1, 1}),
    alike("depthwise", {8, 32, 1, 1}, {56, 56}, {3, 1, 1, 1, 1}),
    alike("ConvNeXt", {8, 96, 1, 1}, {56, 56}, {7, 1, 1, 3, 3}),
    alike("groups", {8, 4, 16, 16}, {28, 28}, {3, 1, 1, 1, 1}),
    alike("dilated", {8, 1, 16, 16}, {28, 28}, {3, 1, 2, 2, 2}),
    alike("uneven pads", {8, 1, 16, 16}, {32, 32}, {3, 2, 1, 0, 1}),
    alike("odd sizes", {3, 1, 5, 7}, {13, 11}, {3, 1, 1, 1, 1}),
    alike("a tile's halo", {4, 1, 64, 64}, {30, 58}, {3, 1, 1, 0, 0}),
    alike("video", {2, 1, 16, 32}, {8, 28, 28}, {3, 1, 1, 1, 1})};

Sizes randomSizes(std::mt19937_64 &engine) {
  auto between = [&](int64_t low, int64_t high) {
    return low + int64_t(engine() % uint64_t(high - low + 1));
  };
  auto one = [&](int64_t of) { return between(1, of) == 1; };
  Sizes s{"random",
          between(1, 16),
          one(2) ? 1 : between(1, 8),
          between(1, 64),
          between(1, 64),
          {},
          {},
          {},
          {},
          {},
          {}};
  int64_t dims = one(4) ? 1 : one(5) ? 3 : 2;
  for (int64_t i = 0; i < dims; ++i) {
    s.kernel.push_back(between(1, 5));
    s.dilations.push_back(one(3) ? between(1, 3) : 1);
    s.strides.push_back(one(2) ? 1 : between(1, 3));
    int64_t reach = (s.kernel.back() - 1) * s.dilations.back() + 1;
    s.low.push_back(one(3) ? between(0, reach - 1) : reach / 2);
    s.high.push_back(one(3) ? between(0, reach - 1) : s.low.back());
    s.input.push_back(between(reach, dims == 3 ? 20 : 100));
  }
  auto list = [](const std::vector<int64_t> &values) {
    std::string out;
    for (int64_t value : values)
      out += (out.empty() ? "" : ",") + std::to_string(value);
    return out;
  };
  s.name = list({s.samples, s.groups, s.channels, s.features}) + " " +
           list(s.input) + " " + list(s.kernel) + " " + list(s.strides) + " " +
           list(s.dilations) + " " + list(s.low) + " " + list(s.high);
  return s;
}

Convolution convolutionOf(const Sizes &s, ConvolutionKind kind, DType type) {
  Convolution x;
  x.kind = kind, x.dtype = type;
  x.samples = s.samples, x.groups = s.groups;
  x.channels = s.channels, x.features = s.features;
  x.input = s.input, x.kernel = s.kernel;
  x.strides = s.strides, x.dilations = s.dilations;
  x.low = s.low, x.high = s.high;
  for (size_t i = 0; i < s.input.size(); ++i)
    x.output.push_back((s.input[i] + s.low[i] + s.high[i] -
                        (s.kernel[i] - 1) * s.dilations[i] - 1) /
                           s.strides[i] +
                       1);
  return x;
}

struct Precision {
  const char *name;
  DType type;
  bool tf32;
};
constexpr Precision precisions[] = {{"f32", DType::F32, false},
                                    {"tf32", DType::F32, true},
                                    {"bf16", DType::BF16, false}};
constexpr const char *kinds[] = {"convolution", "input grad", "filter grad"};

class Check {
public:
  Check(const DnnTarget &target, const char *device, bool all)
      : target(target), device(device), all(all) {}

  bool accepts(const Sizes &sizes, ConvolutionKind kind,
               const Precision &precision) {
    Convolution x = convolutionOf(sizes, kind, precision.type);
    std::string name = std::string(kinds[int(kind)]) + " " + precision.name;
    if (std::string fault = checkConvolution(x); !fault.empty())
      return say(sizes.name, name, "FAIL: " + fault, false);
    int64_t planned = dnnConvolutionBytes(x);
    try {
      DnnGraph graph(target.api);
      buildDnnConvolution(graph, x);
      if (all)
        for (const DnnChoice &choice : DnnPlan::choices(target, graph)) {
          std::string notes;
          for (cudnnBackendNumericalNote_t note : choice.notes)
            notes += " " + std::to_string(note);
          std::printf("    engine %lld, %lld bytes, notes%s\n",
                      static_cast<long long>(choice.engine),
                      static_cast<long long>(choice.workspace), notes.c_str());
        }
      DnnPlan plan(target, graph, planned, std::nullopt,
                   refusedOfConvolutions(x.dtype, precision.tf32));
      bool isGood = true;
      for (cudnnBackendNumericalNote_t note : plan.choice().notes)
        isGood &= note == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP ||
                  (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE &&
                   std::string(precision.name) != "f32");
      return say(sizes.name, name,
                 (isGood ? "" : "FAIL: by its notes, ") +
                     std::string("engine ") +
                     std::to_string(plan.choice().engine) + ", " +
                     std::to_string(plan.choice().workspace) + " of " +
                     std::to_string(planned) + " bytes",
                 isGood);
    } catch (const DnnRefusal &refusal) {
      return say(sizes.name, name,
                 std::string("FAIL: refused: ") + refusal.what(), false);
    }
  }

  // Returns whether cuDNN refuses a convolution whose sizes do not fit
  // together.
  bool refuses(const std::string &what, const Convolution &x) {
    try {
      DnnGraph graph(target.api);
      buildDnnConvolution(graph, x);
      DnnPlan plan(target, graph, INT64_MAX);
    } catch (const DnnRefusal &) {
      return say(what, kinds[int(x.kind)], "refused, as it is to be", true);
    }
    return say(what, kinds[int(x.kind)], "FAIL: accepted", false);
  }

private:
  bool say(const std::string &sizes, const std::string &name,
           const std::string &text, bool isGood) {
    std::printf("%-5s %-14s %-17s %s\n", device, sizes.c_str(), name.c_str(),
                text.c_str());
    std::fflush(stdout);
    return isGood;
  }

  const DnnTarget &target;
  const char *device;
  const bool all;
};
} // namespace

int gpu::checkConvolutions(const DnnTarget &target, const char *device,
                           bool all, int random, std::mt19937_64 &engine) {
  Check check(target, device, all);
  int wrong = 0;
  for (const Sizes &sizes : commands)
    for (auto kind : {ConvolutionKind::Forward, ConvolutionKind::InputGrad,
                      ConvolutionKind::FilterGrad})
      for (const Precision &precision : precisions)
        wrong += !check.accepts(sizes, kind, precision);
  Convolution longer =
      convolutionOf(commands[1], ConvolutionKind::Forward, DType::BF16);
  ++longer.output[1];
  wrong += !check.refuses("one window more", longer);
  Convolution wide =
      convolutionOf(commands[1], ConvolutionKind::FilterGrad, DType::BF16);
  wide.low[0] = 2;
  wrong += !check.refuses("one zero more", wide);
  for (int i = 0; i < random; ++i) {
    Sizes sizes = randomSizes(engine);
    wrong += !check.accepts(sizes, ConvolutionKind(engine() % 3),
                            precisions[engine() % 3]);
  }
  return wrong;
}
