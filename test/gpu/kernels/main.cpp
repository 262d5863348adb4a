// Checks the runtime's kernels and its products by cuBLASLt on a device, in
// random sizes, against sums in double precision on the host; or measures them:
//
//     cleave-gpu-kernels [--cases N] [--seed S] [--only TEXT] [--small]
//     cleave-gpu-kernels --bandwidth
//
// Prints a line for each family: its cases, the largest error as a share of its
// limit (harness.h), and the first case that fails. --only: families whose
// names contain TEXT. --small: sizes that the recorder does in seconds. Exit
// code 0: all pass; 1: some do not; 2: wrong usage; 3: a device or the runtime
// failed.

#include "harness.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>

using namespace cleave;
using namespace cleave::gpu;

namespace {
struct Options {
  int64_t cases = 0; // 0: as many as a family has by itself
  int64_t seed = 1;
  std::string only;
  bool isSmall = false, measures = false;
};

constexpr const char *usage =
    "usage: cleave-gpu-kernels [--cases N] [--seed S] [--only TEXT] [--small]\n"
    "       cleave-gpu-kernels --bandwidth\n";

bool parse(int argc, char **argv, Options &out) {
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    auto number = [&](int64_t &into, int64_t least) {
      if (++i == argc)
        return false;
      const char *end = argv[i] + std::strlen(argv[i]);
      auto [at, error] = std::from_chars(argv[i], end, into);
      return error == std::errc() && at == end && into >= least;
    };
    if (flag == "--small")
      out.isSmall = true;
    else if (flag == "--bandwidth")
      out.measures = true;
    else if (flag == "--only" && i + 1 < argc)
      out.only = argv[++i];
    else if (!(flag == "--cases" && number(out.cases, 1)) &&
             !(flag == "--seed" && number(out.seed, 0)))
      return false;
  }
  return true;
}

// The same for a family and a number, whatever else runs.
uint64_t seedOf(const Family &family, int64_t seed, int64_t number) {
  uint64_t hash = 1469598103934665603u;
  for (char letter : family.name)
    hash = (hash ^ uint64_t(letter)) * 1099511628211u;
  return hash + uint64_t(seed) * 0x9e3779b97f4a7c15u + uint64_t(number);
}

// Whether all cases pass.
bool runFamily(const Family &family, const Options &options,
               cuda::Device &device, CUstream stream) {
  auto begin = std::chrono::steady_clock::now();
  int64_t cases = options.cases     ? options.cases
                  : options.isSmall ? family.small
                                    : family.cases;
  double worst = 0;
  std::string fault;
  for (int64_t number = 0; number < cases; ++number) {
    Case one(device, stream, seedOf(family, options.seed, number),
             options.isSmall);
    auto called = [&] {
      return "case " + std::to_string(number) + " of seed " +
             std::to_string(options.seed) + " (" + one.text + ")";
    };
    try {
      family.check(one);
    } catch (const std::exception &error) {
      throw std::runtime_error(family.name + ", " + called() + ": " +
                               error.what());
    }
    if (fault.empty() && !one.fault.empty())
      fault = called() + ": " + one.fault;
    worst = std::max(worst, one.worst);
  }
  std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  std::printf("%-40s %5lld %9.3g %6.1f s  %s%s\n", family.name.c_str(),
              static_cast<long long>(cases), worst, seconds.count(),
              fault.empty() ? "pass" : "FAIL: ", fault.c_str());
  std::fflush(stdout);
  return fault.empty();
}

int runAll(const Options &options) {
  cuda::Device &device = cuda::Device::of(0);
  device.use();
  if (options.measures) {
    if (cuda::driver().note) {
      std::fprintf(stderr, "cleave-gpu-kernels: error: the driver is the "
                           "recorder, whose times tell nothing; --bandwidth "
                           "needs a device\n");
      return 3;
    }
    measure(device);
    return 0;
  }
  std::vector<Family> families;
  addGemmFamilies(families);
  addAttentionFamilies(device, families);
  addConvolutionFamilies(device, families);
  addGroupedFamilies(families);
  addRowFamilies(families);
  addMoveFamilies(families);
  cuda::Stream stream = cuda::makeStream();
  std::printf("%s, sm_%d%s\n%-40s %5s %9s\n", device.name().c_str(),
              device.capability(), cuda::driver().note ? " (the recorder)" : "",
              "family (errors are shares of limits)", "cases", "worst");
  int ran = 0, failed = 0;
  for (const Family &family : families)
    if (family.name.find(options.only) != std::string::npos) {
      ++ran;
      failed += !runFamily(family, options, device, stream.get());
    }
  if (ran == 0) {
    std::fprintf(stderr,
                 "cleave-gpu-kernels: error: no family is called \"%s\"\n",
                 options.only.c_str());
    return 2;
  }
  std::printf("%d families, %d failed\n", ran, failed);
  return failed ? 1 : 0;
}
} // namespace

int main(int argc, char **argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fputs(usage, stderr);
    return 2;
  }
  try {
    return runAll(options);
  } catch (const std::exception &error) {
    std::fflush(stdout);
    std::fprintf(stderr, "cleave-gpu-kernels: error: %s\n", error.what());
    return 3;
  }
}
