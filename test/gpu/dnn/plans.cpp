// Passes the graphs of attention and of convolutions to the real cuDNN without
// a device: builds plans for devices that are described to cuDNN, and prints
// what the plans need.
//
//     cleave-dnn-plans [--all] [--random N] [--device NAME]
//
// Prints a line for each device and command: the parts into which attention is
// cut, the engine, its workspace, and the planned workspace.
//
// --all: print all engines that cuDNN offers.
//
// --random: also check N commands of random sizes, each for one of the devices
// in turn.
//
// --device: check one device only (A100, H100, B200).
//
// Exit code 0: every plan that the runtime expects exists within the planned
// workspace, and cuDNN refuses what it cannot compute; 1: one of these checks
// fails; 77: cuDNN is not installed. No plan is executed.

#include "convolutions.h"
#include "dnn_attention.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

using namespace cleave;
using namespace cleave::cuda;
using program::Attention;
using program::AttentionRef;

namespace {
struct Properties {
  const char *name;
  int version, processors, sharedBytes, cacheBytes;
  int64_t bytes;
};
constexpr Properties devices[] = {
    {"A100", 80, 108, 166912, 41943040, 85098233856},
    {"H100", 90, 132, 232448, 52428800, 85029158912},
    {"B200", 100, 148, 232448, 132644864, 191503138816}};

// Returns the properties of a device in the JSON format of cuDNN.
std::string jsonOf(const Properties &x) {
  auto number = [](const char *key, int64_t value) {
    return std::string(", \"") + key + "\": " + std::to_string(value);
  };
  return std::string("{\"deviceName\": \"") + x.name + "\"" +
         number("deviceVer", 10 * x.version) + number("driverVer", 13000) +
         number("cudaDeviceId", 0) + number("totalGlobalMem", x.bytes) +
         ", \"maxGridSize\": [2147483647, 65535, 65535]" +
         ", \"maxBlockSize\": [1024, 1024, 64]" +
         number("regsPerBlock", 65536) +
         number("multiProcessorCount", x.processors) + number("warpSize", 32) +
         number("maxSharedMemoryPerBlock", 49152) +
         number("maxSharedMemoryPerBlockOptin", x.sharedBytes) +
         number("reservedSharedMemoryPerBlock", 1024) +
         number("maxRegistersPerSM", 65536) + number("maxCtasPerSM", 32) +
         number("maxThreadsPerBlock", 1024) + number("maxThreadsPerSM", 2048) +
         number("pciDeviceId", 0) + number("isTccDriver", 0) +
         number("supportCoopLaunch", 1) + number("smClockRateKHz", 1980000) +
         number("memClockRateKHz", 2619000) +
         number("l2CacheSize", x.cacheBytes) + "}";
}

struct Sizes {
  std::string name;
  int64_t b = 1, qLen = 2, kLen = 2, n = 1, g = 1, d = 8, dv = 8;
  bool causal = true;
  int64_t shift = 0, window = 0;
  bool headsFirst = false;
};
const Sizes commands[] = {
    {"GPT-2", 8, 1024, 1024, 12, 1, 64, 64},
    {"Llama", 4, 2048, 2048, 8, 4, 64, 64},
    {"Llama, longer", 1, 8192, 8192, 8, 4, 128, 128},
    {"heads first", 2, 512, 512, 8, 2, 128, 128, true, 0, 0, true},
    {"ViT", 8, 197, 197, 12, 1, 64, 64, false},
    {"window", 1, 2048, 2048, 8, 4, 128, 128, true, 0, 512},
    {"last queries", 1, 256, 1024, 8, 1, 64, 64, true, 768},
    {"more keys", 2, 100, 333, 4, 1, 64, 64, true},
    {"more queries", 2, 333, 100, 4, 2, 64, 64, true},
    {"one kv head", 2, 200, 200, 1, 8, 96, 96},
    {"odd sizes", 3, 77, 205, 3, 2, 40, 24, false},
    {"small", 1, 2, 2, 1, 1, 8, 8}};

// Returns random sizes of attention for which the runtime uses cuDNN.
Sizes randomSizes(std::mt19937_64 &engine) {
  auto between = [&](int64_t low, int64_t high) {
    return low + int64_t(engine() % uint64_t(high - low + 1));
  };
  auto one = [&](int64_t of) { return between(1, of) == 1; };
  Sizes s;
  s.b = between(1, 4), s.n = between(1, 4), s.g = between(1, 4);
  s.qLen = between(2, one(2) ? 4000 : 600);
  s.kLen = one(3) ? s.qLen : between(2, one(2) ? 4000 : 600);
  s.d = 8 * between(1, 16), s.dv = one(3) ? 8 * between(1, 16) : s.d;
  s.causal = !one(3), s.headsFirst = one(2);
  if (s.causal && s.qLen <= s.kLen && one(3))
    s.window = between(1, s.qLen);
  else if (s.causal && s.qLen <= s.kLen && one(2))
    s.shift = s.kLen - s.qLen;
  for (int64_t size : {s.b, s.qLen, s.kLen, s.n, s.g, s.d, s.dv, s.shift,
                       s.window, int64_t(s.causal), int64_t(s.headsFirst)})
    s.name += (s.name.empty() ? "" : "-") + std::to_string(size);
  return s;
}

Attention attentionOf(const Sizes &s, bool backward) {
  Attention x;
  x.backward = backward;
  x.dtype = program::DType::BF16;
  x.b = s.b, x.qLen = s.qLen, x.kLen = s.kLen, x.n = s.n, x.g = s.g;
  x.d = s.d, x.dv = s.dv;
  x.causal = s.causal, x.queryOffset = s.shift, x.window = s.window;
  auto place = [&](AttentionRef &ref, int64_t length, int64_t g,
                   int64_t width) {
    int64_t heads = x.n * g;
    int64_t position = s.headsFirst ? width : heads * width;
    int64_t head = s.headsFirst ? length * width : width;
    ref.strides = {length * heads * width, position, g * head, head, 1};
  };
  for (AttentionRef *ref : {&x.q, &x.dq})
    place(*ref, x.qLen, x.g, x.d);
  for (AttentionRef *ref : {&x.o, &x.dO})
    place(*ref, x.qLen, x.g, x.dv);
  for (AttentionRef *ref : {&x.k, &x.dk})
    place(*ref, x.kLen, 1, x.d);
  for (AttentionRef *ref : {&x.v, &x.dV})
    place(*ref, x.kLen, 1, x.dv);
  x.lse.strides = {x.n * x.g * x.qLen, 1, x.g * x.qLen, x.qLen, 0};
  return x;
}

class Check {
public:
  Check(const DnnTarget &target, const char *device, bool all)
      : target(target), device(device), all(all) {}

  // Returns whether cuDNN has a plan within the planned workspace.
  bool accepts(const Sizes &sizes, bool backward) {
    Attention x = attentionOf(sizes, backward);
    std::string why;
    std::optional<AttentionDiagonal> diagonal = diagonalOf(x, why);
    std::optional<AttentionCut> cut = cutOf(x, why);
    if (!cut)
      return say(sizes.name, backward, "FAIL: not for cuDNN: " + why, false);
    std::string parts =
        std::to_string(x.b * x.n / (cut->batch * cut->heads)) + " parts, ";
    x.b = cut->batch, x.n = cut->heads;
    try {
      std::optional<DnnEngine> engine = dnnEngineFor(target, x);
      DnnGraph graph(target.api);
      buildDnnAttention(graph, x, *diagonal);
      if (all)
        for (const DnnChoice &choice : DnnPlan::choices(target, graph, engine))
          std::printf("    engine %lld, %lld bytes\n",
                      static_cast<long long>(choice.engine),
                      static_cast<long long>(choice.workspace));
      DnnPlan plan(target, graph, cut->engineBytes, engine);
      return say(sizes.name, backward,
                 parts + "engine " + std::to_string(plan.choice().engine) +
                     ", " + std::to_string(plan.choice().workspace) + " of " +
                     std::to_string(cut->engineBytes) + " bytes",
                 true);
    } catch (const DnnRefusal &refusal) {
      return say(sizes.name, backward,
                 "FAIL: " + parts + "refused: " + refusal.what(), false);
    }
  }

  // Checks that cuDNN itself refuses the attention `x`. The runtime does not
  // even ask cuDNN in this case, because diagonalOf() rejects `x`; this
  // function does not call diagonalOf(). Returns true if cuDNN refuses.
  bool refuses(const std::string &name, const Attention &x) {
    try {
      DnnGraph graph(target.api);
      buildDnnAttention(graph, x, {x.causal, 0, 0});
      DnnPlan plan(target, graph, INT64_MAX, dnnEngineFor(target, x));
    } catch (const DnnRefusal &) {
      return say(name, x.backward, "refused, as it is to be", true);
    }
    return say(name, x.backward, "FAIL: accepted", false);
  }

private:
  bool say(const std::string &name, bool backward, const std::string &text,
           bool isGood) {
    std::printf("%-5s %-14s %-9s %s\n", device, name.c_str(),
                backward ? "backward" : "forward", text.c_str());
    std::fflush(stdout);
    return isGood;
  }

  const DnnTarget &target;
  const char *device;
  const bool all;
};
} // namespace

int main(int argc, char **argv) {
  bool all = false;
  int random = 0;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--all") == 0) {
      all = true;
    } else if (std::strcmp(argv[i], "--random") == 0 && i + 1 < argc) {
      random = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
      only = argv[++i];
    } else {
      std::fputs(
          "usage: cleave-dnn-plans [--all] [--random N] [--device NAME]\n",
          stderr);
      return 2;
    }
  }
  const DnnApi *api = dnn();
  if (!api) {
    std::fputs("cleave-dnn-plans: there is no cuDNN (libcudnn.so)\n", stderr);
    return 77;
  }
  std::printf("cuDNN %zu; no plan is run\n", api->cudnnGetVersion());
  int wrong = 0;
  for (size_t i = 0; i < std::size(devices); ++i)
    try {
      const Properties &device = devices[i];
      if (!only.empty() && only != device.name)
        continue;
      DnnDescriptor properties(*api, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
      std::string json = jsonOf(device);
      properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                     std::ssize(json), json.data());
      properties.finalize();
      DnnTarget target{*api, device.version, nullptr, &properties};
      checkDnnTarget(target);
      Check check(target, device.name, all);
      for (const Sizes &sizes : commands)
        for (bool backward : {false, true})
          wrong += !check.accepts(sizes, backward);
      Attention wide = attentionOf({"", 1, 128, 128, 2, 1, 264, 264}, true);
      wrong += !check.refuses("264 features", wide);
      Attention loose = attentionOf({"", 1, 128, 128, 2, 1, 64, 64}, true);
      loose.v.strides[4] = 2;
      wrong += !check.refuses("loose features", loose);
      std::mt19937_64 engine(i);
      for (int one = int(i); one < random; one += int(std::size(devices))) {
        Sizes sizes = randomSizes(engine);
        wrong += !check.accepts(sizes, engine() % 3 != 0);
      }
      wrong += gpu::checkConvolutions(target, device.name, all, random, engine);
    } catch (const DnnRefusal &refusal) {
      std::printf("%s: FAIL: %s\n", devices[i].name, refusal.what());
      ++wrong;
    }
  std::printf("%d wrong\n", wrong);
  return wrong ? 1 : 0;
}
