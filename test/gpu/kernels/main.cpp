// Checks the runtime's kernels and its products by cuBLASLt on a device, at
// random sizes, against sums in double precision on the host; or measures the
// device:
//
//     cleave-gpu-kernels [--cases N] [--seed S] [--only TEXT] [--small]
//     cleave-gpu-kernels --bandwidth
//     cleave-gpu-kernels --ceilings
//
// The cases are divided into families, each with its own generator of random
// cases, such as copies. Prints a line for each family: its number of cases,
// the largest error relative to the error limit (harness.h), and the first case
// that fails.
//
// --only: check only families whose names contain TEXT.
//
// --small: use sizes that the simulated CUDA library computes in seconds.
//
// A failure may leave the device unusable for this process, so the program
// starts itself again (with --from) to check the families after the one that
// failed.
//
// --ceilings: measure only a device-to-device copy by the driver and one large
// product, and print a last line in JSON.
//
// Exit code 0: all pass; 1: some fail; 2: wrong usage; 3: a device or the
// runtime failed.

#include "../anew.h"
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
  int64_t cases = 0; // 0: the number that each family sets
  int64_t seed = 1;
  std::string only;
  int64_t from = 0; // the number of the first family to check
  bool isSmall = false;
  std::string measures; // "--bandwidth", "--ceilings"; empty: checks
};

constexpr const char *usage =
    "usage: cleave-gpu-kernels [--cases N] [--seed S] [--only TEXT] [--small]\n"
    "                          [--from NUMBER]\n"
    "       cleave-gpu-kernels --bandwidth | --ceilings\n";

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
    else if (flag == "--bandwidth" || flag == "--ceilings")
      out.measures = flag;
    else if (flag == "--only" && i + 1 < argc)
      out.only = argv[++i];
    else if (!(flag == "--cases" && number(out.cases, 1)) &&
             !(flag == "--from" && number(out.from, 0)) &&
             !(flag == "--seed" && number(out.seed, 0)))
      return false;
  }
  return true;
}

// Returns the seed of a case. The seed depends only on the family, the run's
// seed and the case's number, not on which other cases run.
uint64_t seedOf(const Family &family, int64_t seed, int64_t number) {
  uint64_t hash = 1469598103934665603u;
  for (char letter : family.name)
    hash = (hash ^ uint64_t(letter)) * 1099511628211u;
  return hash + uint64_t(seed) * 0x9e3779b97f4a7c15u + uint64_t(number);
}

// Runs the cases of a family and returns whether all of them pass.
bool runFamily(const Family &family, const Options &options,
               cuda::Device &device, CUstream stream) {
  auto begin = std::chrono::steady_clock::now();
  int64_t cases = options.cases     ? options.cases
                  : options.isSmall ? family.small
                                    : family.cases;
  double worst = 0;
  int64_t refused = 0;
  std::string fault, refusal;
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
    if (!one.refusal.empty() && refused++ == 0)
      refusal = called() + ": " + one.refusal;
    if (fault.empty() && !one.fault.empty())
      fault = called() + ": " + one.fault;
    worst = std::max(worst, one.worst);
  }
  std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  // A case that cuBLASLt or cuDNN refuses is no fault, because programs use our
  // own kernels for it. It is a fault if all cases are refused.
  if (refused == cases)
    fault = refusal;
  else if (refused && fault.empty())
    refusal =
        " (" + std::to_string(refused) + " refused, the first " + refusal + ")";
  std::printf("%-40s %5lld %9.3g %6.1f s  %s%s\n", family.name.c_str(),
              static_cast<long long>(cases), worst, seconds.count(),
              fault.empty() ? "pass" : "FAIL: ",
              fault.empty() ? refusal.c_str() : fault.c_str());
  std::fflush(stdout);
  return fault.empty();
}

// Runs the families from number `from` on in a new process of this program, and
// returns its exit code.
int runElsewhere(const Options &options, int64_t from) {
  std::vector<std::string> words{"cleave-gpu-kernels", "--from",
                                 std::to_string(from), "--seed",
                                 std::to_string(options.seed)};
  if (options.cases)
    words.insert(words.end(), {"--cases", std::to_string(options.cases)});
  if (!options.only.empty())
    words.insert(words.end(), {"--only", options.only});
  if (options.isSmall)
    words.push_back("--small");
  return runAnew(std::move(words));
}

int runAll(const Options &options) {
  cuda::Device &device = cuda::Device::of(0);
  device.use();
  if (!options.measures.empty()) {
    if (cuda::driver().note) {
      std::fprintf(stderr,
                   "cleave-gpu-kernels: error: the driver is the recorder, "
                   "whose times tell nothing; %s needs a device\n",
                   options.measures.c_str());
      return 3;
    }
    measure(device, options.measures == "--ceilings");
    return 0;
  }
  std::vector<Family> all, families;
  addGemmFamilies(all);
  addAttentionFamilies(device, all);
  addConvolutionFamilies(device, all);
  addGroupedFamilies(all);
  addRowFamilies(all);
  addMoveFamilies(all);
  for (const Family &family : all)
    if (family.name.find(options.only) != std::string::npos)
      families.push_back(family);
  if (families.empty()) {
    std::fprintf(stderr,
                 "cleave-gpu-kernels: error: no family is called \"%s\"\n",
                 options.only.c_str());
    return 2;
  }
  cuda::Stream stream = cuda::makeStream();
  if (options.from == 0)
    std::printf("%s, sm_%d%s\n%-40s %5s %9s\n", device.name().c_str(),
                device.capability(),
                cuda::driver().note ? " (the recorder)" : "",
                "family (errors are shares of limits)", "cases", "worst");
  int ran = 0, failed = 0, code = 0;
  for (auto i = options.from; i < std::ssize(families) && code == 0; ++i) {
    const Family &family = families[i];
    ++ran;
    try {
      failed += !runFamily(family, options, device, stream.get());
    } catch (const std::exception &error) {
      ++failed;
      std::printf("%-40s FAILED: %s\n", family.name.c_str(), error.what());
      std::fflush(stdout);
      if (i + 1 < std::ssize(families))
        (void)runElsewhere(options, i + 1);
      code = 3;
    }
  }
  std::printf("%d families, %d failed\n", ran, failed);
  return code ? code : failed ? 1 : 0;
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
