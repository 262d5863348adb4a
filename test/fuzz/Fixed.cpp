// Runs a fuzz target without a fuzzer, first on all seeds and then on random
// mutations of the seeds. The mutations are the same in each run, so that
// failures are reproducible.
//
//     cleave-fuzz-NAME RUNS FOUND SEEDS...
//
// RUNS is the total number of inputs, FOUND the file to which a failing input
// is written, and SEEDS are folders whose files are the seeds.

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace fs = std::filesystem;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *data,
                                                                size_t size,
                                                                size_t most,
                                                                unsigned seed);

static std::mt19937_64 chance;
static std::vector<uint8_t> input;
static const char *found;
static long number = 0;

static uint64_t below(uint64_t end) { return end ? chance() % end : 0; }

/// Mutates some bytes of the input and returns its new length.
extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) {
  static constexpr int64_t numbers[] = {
      0,   1,     -1,        127,       128,       255,
      256, 65535, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
  size_t at = below(size), room = most - size;
  size_t part = 1 + below(std::min<size_t>(64, size - at) + !size);
  switch (size ? below(8) : 7) {
  case 0:
    data[at] ^= 1 << below(8);
    break;
  case 1:
    data[at] = static_cast<uint8_t>(chance());
    break;
  case 2: { // overwrite with a special number
    int64_t value = numbers[below(std::size(numbers))];
    std::memcpy(data + at, &value, std::min<size_t>(1 << below(4), size - at));
    break;
  }
  case 3: // remove bytes
    std::memmove(data + at, data + at + part, size - at - part);
    return size - part;
  case 4: // copy bytes to another offset
    std::memmove(data + below(size - part + 1), data + at, part);
    break;
  case 5: { // change a digit, if there is one
    uint8_t *digit = std::find_if(
        data + at, data + size, [](uint8_t c) { return c >= '0' && c <= '9'; });
    if (digit != data + size)
      *digit = static_cast<uint8_t>('0' + below(10));
    break;
  }
  case 6: // truncate
    return at;
  default: // insert bytes
    if (part = std::min(part, room); !part)
      return size;
    std::memmove(data + at + part, data + at, size - at);
    std::generate_n(data + at, part, [] {
      return below(2) ? static_cast<uint8_t>(chance())
                      : static_cast<uint8_t>("{}[]\".,:=-0129 \n"[below(16)]);
    });
    return size + part;
  }
  return size;
}

static void keep(int signal) {
  int file = ::open(found, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  [[maybe_unused]] ssize_t kept = ::write(file, input.data(), input.size());
  std::fprintf(stderr, "signal %d at input %ld, which is kept in %s\n", signal,
               number, found);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

static void run() {
  ::alarm(30); // for slow and busy machines; most inputs take a millisecond
  LLVMFuzzerTestOneInput(input.data(), input.size());
  ++number;
}

static std::vector<std::vector<uint8_t>> seedsOf(char **begin, char **end) {
  std::vector<fs::path> paths;
  for (char **folder = begin; folder != end; ++folder)
    for (const fs::directory_entry &entry : fs::directory_iterator(*folder))
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::vector<uint8_t>> seeds;
  for (const fs::path &path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file),
                       std::istreambuf_iterator<char>());
  }
  return seeds;
}

int main(int argc, char **argv) {
  if (argc < 4)
    return 2;
  const long runs = std::atol(argv[1]);
  found = argv[2];
  if (const char *other = std::getenv("CLEAVE_FUZZ_SEED")) // for longer runs
    chance.seed(std::strtoull(other, nullptr, 10));
  for (int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGALRM})
    std::signal(number, keep);
  rlimit memory{rlim_t(4) << 30, rlim_t(4) << 30};
  ::setrlimit(RLIMIT_AS, &memory);
  const std::vector<std::vector<uint8_t>> seeds =
      seedsOf(argv + 3, argv + argc);
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds\n");
    return 2;
  }
  for (const std::vector<uint8_t> &seed : seeds) {
    input = seed;
    run();
  }
  constexpr size_t most = 100'000;
  while (number < runs) {
    const std::vector<uint8_t> &seed = seeds[below(seeds.size())];
    input = seed;
    input.resize(std::max(most, seed.size()));
    size_t size = seed.size();
    for (uint64_t i = 0, changes = 1 + below(4); i < changes; ++i)
      size = LLVMFuzzerCustomMutator
                 ? LLVMFuzzerCustomMutator(input.data(), size, input.size(),
                                           static_cast<unsigned>(chance()))
                 : LLVMFuzzerMutate(input.data(), size, input.size());
    input.resize(size);
    run();
  }
  std::printf("%ld inputs, none fails\n", number);
  return 0;
}
