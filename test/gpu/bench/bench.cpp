// Times a compiled training program on the device that it was compiled for:
//
//     cleave-device-bench FOLDER --vocabulary V [--steps N] [--warmup N]
//                         [--lr X] [--profile N]
//
// Weights and batches are computed from seeds (weightAt, tokenAt), so that they
// need not be copied to the device machine as files; reference.py computes the
// same values. Prints a line of JSON: the median milliseconds of a step, the
// bytes planned on the device, and the losses. With --profile, the line also
// has the time of the commands, summed over commands of the same name
// (familyOf), as means over N more steps in which each command is timed with
// CUDA events. These steps run without CUDA graphs, so the sum is longer than a
// step. The program must process a step in one microbatch, and tokens must be
// its only inputs.

#include "cleave/runtime.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {
struct Options {
  std::string folder;
  int64_t vocabulary = 0;
  int steps = 20, warmup = 5, profile = 0;
  double lr = 3e-4;
};

void check(cleave_status status) {
  if (status != CLEAVE_OK)
    throw std::runtime_error(std::string(cleave_status_name(status)) + ": " +
                             cleave_last_error());
}

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014: the mixing function of SplitMix64.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// FNV-1a.
uint64_t hashOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text)
    hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

// Returns a weight: uniform with standard deviation 0.02; gains are 1, biases
// 0.
float weightAt(std::string_view name, bool isVector, uint64_t seed, int64_t i) {
  if (isVector)
    return name.ends_with("bias") ? 0 : 1;
  double unit = double(mix(seed + uint64_t(i)) >> 11) * 0x1p-53;
  return float((2 * unit - 1) * 0.02 * std::sqrt(3.0));
}

// Returns the token of a synthetic batch. The steps cycle through four batches.
// The labels are the tokens shifted by one position.
int64_t tokenAt(int64_t step, int64_t sample, int64_t position,
                int64_t vocabulary) {
  uint64_t at =
      uint64_t(step % 4) << 48 | uint64_t(sample) << 24 | uint64_t(position);
  return int64_t(mix(at) % uint64_t(vocabulary));
}

// Returns the name under which the times of a command are summed. For a kernel,
// this is its name without the number, for example layer_norm for
// layer_norm_12. For a command that a library runs, it is the kind of the
// command.
std::string familyOf(const cleave_trace_event &event) {
  std::string_view name = *event.kernel ? event.kernel : event.kind;
  constexpr std::string_view unaligned = "_unaligned";
  if (name.ends_with(unaligned))
    name.remove_suffix(unaligned.size());
  size_t end = name.find_last_not_of("0123456789");
  if (end + 1 < name.size() && name[end] == '_')
    name = name.substr(0, end);
  return std::string(name);
}

struct Family {
  int64_t launches = 0, nanoseconds = 0, bytes = 0, flops = 0;
};

class Bench {
public:
  explicit Bench(const Options &options) : options(options) {
    check(cleave_program_load(options.folder.c_str(), &program));
    cleave_session_options native{};
    native.version = CLEAVE_RUNTIME_VERSION;
    native.transport = "auto";
    check(cleave_session_create(program, &native, &session));
    std::vector<float> weights;
    for (int32_t i = 0; i < cleave_program_num_buffers(program); ++i) {
      cleave_buffer_info info;
      check(cleave_program_buffer(program, i, &info));
      std::string_view role = info.role;
      if (role == "tokens" || role == "labels")
        inputs.push_back(info);
      else if (role == "parameter" && !*info.tie)
        fill(info, weights);
      countsSteps |= role == "step";
    }
    if (inputs.empty())
      throw std::runtime_error("the program takes no tokens");
    check(cleave_session_set_scalar(session, "lr", options.lr));
  }
  ~Bench() {
    cleave_session_free(session);
    cleave_program_free(program);
  }

  void run() {
    using Clock = std::chrono::steady_clock;
    std::vector<double> times, losses;
    for (int step = 1; step <= options.warmup + options.steps; ++step) {
      prepare(step);
      auto begin = Clock::now();
      train();
      std::chrono::duration<double, std::milli> took = Clock::now() - begin;
      if (step > options.warmup)
        times.push_back(took.count());
      losses.push_back(read("loss") / read("weight"));
    }
    std::sort(times.begin(), times.end());
    int64_t bytes = 0;
    for (int32_t rank = 0; rank < cleave_program_num_ranks(program); ++rank) {
      cleave_memory memory;
      check(cleave_session_memory(session, rank, &memory));
      bytes +=
          memory.arena_bytes + memory.scratch_bytes + memory.unplanned_bytes;
    }
    std::printf("{\"ms\": %.4f, \"peak_bytes\": %lld, \"losses\": [",
                times.empty() ? 0 : times[times.size() / 2],
                static_cast<long long>(bytes));
    for (size_t i = 0; i < losses.size(); ++i)
      std::printf("%s%.9g", i ? ", " : "", losses[i]);
    std::printf("]");
    if (options.profile > 0)
      printProfile(options.warmup + options.steps);
    std::printf("}\n");
  }

private:
  void prepare(int step) {
    feed(step);
    if (countsSteps)
      check(cleave_session_set_integer(session, "step", step));
  }

  void train() {
    check(cleave_session_run(session, "loss_grad"));
    check(cleave_session_run(session, "update"));
  }

  void printProfile(int done) {
    check(cleave_session_trace(session, 1));
    for (int step = 1; step <= options.profile; ++step) {
      prepare(done + step);
      train();
    }
    std::map<std::string, Family> families;
    std::vector<cleave_trace_event> events(4096);
    for (int64_t count = 1; count > 0;) {
      check(cleave_session_trace_read(session, 0, events.data(),
                                      int64_t(events.size()), &count));
      for (int64_t i = 0; i < count; ++i) {
        const cleave_trace_event &event = events[i];
        Family &family = families[familyOf(event)];
        ++family.launches;
        family.nanoseconds += event.end_ns - event.begin_ns;
        family.bytes += event.bytes;
        family.flops += event.flops;
      }
    }
    std::printf(", \"families\": {");
    const char *comma = "";
    double steps = options.profile;
    for (const auto &[name, family] : families) {
      std::printf("%s\"%s\": {\"launches\": %g, \"ms\": %.6f, "
                  "\"bytes\": %.17g, \"flops\": %.17g}",
                  comma, name.c_str(), double(family.launches) / steps,
                  double(family.nanoseconds) / 1e6 / steps,
                  double(family.bytes) / steps, double(family.flops) / steps);
      comma = ", ";
    }
    std::printf("}");
  }

  void fill(const cleave_buffer_info &info, std::vector<float> &weights) {
    int64_t count = 1;
    for (int32_t d = 0; d < info.rank; ++d)
      count *= info.global_shape[d];
    std::string_view name = *info.onnx_name ? info.onnx_name : info.name;
    uint64_t seed = hashOf(name);
    weights.resize(count);
    // One thread would take longer for billions of weights than all steps take.
    int64_t parts = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::jthread> threads;
    for (int64_t part = 0; part < parts; ++part)
      threads.emplace_back(
          [&, begin = count * part / parts, end = count * (part + 1) / parts] {
            for (int64_t i = begin; i < end; ++i)
              weights[i] = weightAt(name, info.rank < 2, seed, i);
          });
    threads.clear(); // joins
    check(cleave_session_scatter(session, info.name, CLEAVE_F32, weights.data(),
                                 count));
    // In bf16 training the optimizer's update reads the f32 copy of the weight,
    // so that copy is set, too.
    std::string master = std::string(info.name) + ".master";
    if (cleave_program_find_buffer(program, master.c_str()) >= 0)
      check(cleave_session_scatter(session, master.c_str(), CLEAVE_F32,
                                   weights.data(), count));
  }

  void feed(int64_t step) {
    std::vector<int64_t> tokens;
    for (const cleave_buffer_info &info : inputs) {
      if (info.rank != 2)
        throw std::runtime_error(std::string("input ") + info.name +
                                 " is not [batch, sequence]");
      int64_t samples = info.global_shape[0], positions = info.global_shape[1];
      int64_t shift = std::string_view(info.role) == "labels";
      tokens.resize(samples * positions);
      for (int64_t s = 0; s < samples; ++s)
        for (int64_t p = 0; p < positions; ++p)
          tokens[s * positions + p] =
              tokenAt(step, s, p + shift, options.vocabulary);
      check(cleave_session_scatter(session, info.name, info.dtype,
                                   tokens.data(), samples * positions));
    }
  }

  double read(const char *name) {
    double value = 0;
    check(cleave_session_gather(session, name, CLEAVE_F64, &value, 1, nullptr));
    return value;
  }

  const Options options;
  cleave_program *program = nullptr;
  cleave_session *session = nullptr;
  bool countsSteps = false; // a program with dropout reads their number
  std::vector<cleave_buffer_info> inputs;
};

bool parse(int argc, char **argv, Options &out) {
  for (int i = 1; i < argc; ++i) {
    std::string_view word = argv[i];
    if (!word.starts_with("--")) {
      if (!out.folder.empty())
        return false;
      out.folder = word;
      continue;
    }
    if (++i == argc)
      return false;
    double value = std::atof(argv[i]);
    if (word == "--vocabulary")
      out.vocabulary = int64_t(value);
    else if (word == "--steps")
      out.steps = int(value);
    else if (word == "--warmup")
      out.warmup = int(value);
    else if (word == "--lr")
      out.lr = value;
    else if (word == "--profile")
      out.profile = int(value);
    else
      return false;
  }
  return !out.folder.empty() && out.vocabulary > 0 && out.steps > 0 &&
         out.warmup >= 0;
}
} // namespace

int main(int argc, char **argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: cleave-device-bench FOLDER --vocabulary V "
                         "[--steps N] [--warmup N] [--lr X] [--profile N]\n");
    return 2;
  }
  try {
    Bench(options).run();
    return 0;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "cleave-device-bench: error: %s\n", error.what());
    return 3;
  }
}
