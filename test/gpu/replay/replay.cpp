// Repeats on devices the checks that `cleave check --record` wrote:
//
//     replay [--local|--nccl] [--most RANKS] FOLDER [ROW]...
//
// A row is a folder in FOLDER with one recorded check; by default, all rows are
// repeated. Ranks share devices (--local) or have one device each (--nccl); the
// default depends on the number of devices. --most skips rows with more ranks.
// A failure may leave the device unusable for this process, so a new process
// repeats the rows after the one that failed.
//
// Every program runs and is compared as `cleave check` compares it: sharded
// with unsharded in f64 and in the training precision, and all f64 results with
// those of a CPU. Prints a line for each row. Exit code 0: all pass; 1: some
// fail; 2: wrong usage; 3: a device or the runtime failed.

#include "../anew.h"
#include "cleave/runtime.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace {
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Gathered {
  std::string name, role;
  int step = 0; // how often the buffer was gathered before
  std::vector<double> values, samples;
  double replicaDifference = 0;
  /// By how much the result changes if the inputs change in their last digits.
  /// A gradient whose exact value is zero because its terms cancel may differ
  /// by that much.
  double noise = 0;
};
using Results = std::vector<Gathered>;

void check(cleave_status status) {
  if (status != CLEAVE_OK)
    throw Fault(std::string(cleave_status_name(status)) + ": " +
                cleave_last_error());
}

std::string readFile(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Fault(path.string() + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs one of the programs of a recorded check, which is a folder called a row.
class Player {
public:
  Player(const fs::path &folder, const std::string &data, const char *transport)
      : folder(folder), data(data) {
    check(cleave_program_load(folder.c_str(), &program));
    cleave_session_options options{};
    options.version = CLEAVE_RUNTIME_VERSION;
    options.watchdog_seconds = 60;
    options.transport = transport;
    check(cleave_session_create(program, &options, &session));
  }
  ~Player() {
    cleave_session_free(session);
    cleave_program_free(program);
  }

  Results play() {
    std::istringstream calls(readFile(folder / "calls.txt"));
    std::string line;
    Results results, stirred;
    std::map<std::string, int> seen;
    // A loss is gathered after each microbatch. Only the last one before the
    // update is the loss of the step; a pipeline may return partial losses
    // before it.
    std::map<std::string, size_t> sinceUpdate;
    while (std::getline(calls, line)) {
      std::istringstream words(line);
      std::string verb, name;
      int type = 0;
      int64_t count = 0, offset = 0, samples = 0;
      words >> verb;
      if (verb == "scatter") {
        words >> type >> count >> offset >> name;
        check(cleave_session_scatter(
            session, name.c_str(), static_cast<cleave_dtype>(type),
            at(offset,
               count * cleave_dtype_size(static_cast<cleave_dtype>(type))),
            count));
      } else if (verb == "begin") {
        words >> name;
        if (name == "steps") {
          stirred = std::exchange(results, {});
          seen.clear();
          sinceUpdate.clear();
        }
      } else if (verb == "run") {
        words >> name;
        check(cleave_session_run(session, name.c_str()));
        if (name == "update")
          sinceUpdate.clear();
      } else if (verb == "gather") {
        Gathered result;
        words >> type >> count >> result.role >> offset >> samples >>
            result.name;
        result.values.resize(count);
        cleave_gather_report report;
        check(cleave_session_gather(session, result.name.c_str(), CLEAVE_F64,
                                    result.values.data(), count, &report));
        result.replicaDifference = report.max_difference;
        result.samples.resize(samples);
        std::memcpy(result.samples.data(), at(offset, 8 * samples),
                    8 * samples);
        auto [at, isNew] = sinceUpdate.try_emplace(result.name, results.size());
        if (isNew) {
          result.step = seen[result.name]++;
          results.push_back(std::move(result));
        } else {
          result.step = results[at->second].step;
          results[at->second] = std::move(result);
        }
      } else {
        throw Fault("calls.txt: unknown call " + verb);
      }
      if (!words)
        throw Fault("calls.txt: cannot be read: " + line);
    }
    noteNoise(results, stirred);
    return results;
  }

  int ranks() const { return cleave_program_num_ranks(program); }

private:
  static void noteNoise(Results &results, const Results &stirred) {
    std::map<std::string, double> noise;
    for (const Gathered &other : stirred)
      for (const Gathered &result : results)
        if (result.role == "tap" && result.step == 0 &&
            result.name == other.name)
          for (size_t i = 0; i < result.values.size(); ++i)
            if (double moved = std::abs(result.values[i] - other.values[i]);
                std::isfinite(moved))
              noise[result.name] = std::max(noise[result.name], moved);
    for (Gathered &result : results)
      if (result.role == "tap")
        result.noise = noise[result.name];
  }

  const char *at(int64_t offset, int64_t bytes) const {
    if (offset < 0 || bytes < 0 || offset + bytes > std::ssize(data))
      throw Fault("data.bin is too short");
    return data.data() + offset;
  }

  const fs::path folder;
  const std::string &data;
  cleave_program *program = nullptr;
  cleave_session *session = nullptr;
};

// Without a device.
int ranksOf(const fs::path &folder) {
  cleave_program *program = nullptr;
  check(cleave_program_load(folder.c_str(), &program));
  int ranks = cleave_program_num_ranks(program);
  cleave_program_free(program);
  return ranks;
}

using Floors = std::map<std::string, double>;

// For each role of results (output, gradient, ...), returns `share` times the
// largest finite magnitude of the results with this role.
Floors floorsOf(const Results &results, double share) {
  Floors floors;
  for (const Gathered &result : results)
    for (double value : result.values)
      if (std::isfinite(value))
        floors[result.role] =
            std::max(floors[result.role], std::abs(value) * share);
  return floors;
}

double largest(const std::vector<double> &values) {
  double most = 0;
  for (double value : values)
    most = std::max(most, std::abs(value));
  return most;
}

// Returns max|a - b| / max(max|b|, floor), or infinity if exactly one of a and
// b is not a number.
double relativeError(const std::vector<double> &a, const std::vector<double> &b,
                     double floor) {
  if (a.size() != b.size())
    return INFINITY;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i]))
      continue;
    double difference = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]);
    most = std::max(most, std::isnan(difference) ? INFINITY : difference);
  }
  double magnitude = std::max(largest(b), floor);
  return most == 0 ? 0 : most / magnitude;
}

struct Verdict {
  double exact = 0, cpu = 0,
         rounding = 0; // largest error over its limit
  std::string worst;
  int compared = 0;

  void note(double &part, double error, double limit, const Gathered &of,
            const char *what) {
    ++compared;
    double share = std::isfinite(error) ? error / limit : INFINITY;
    if (share > 1 && share > std::max({exact, cpu, rounding}))
      worst = std::string(what) + " of " + of.name + ": " +
              std::to_string(error) + ", limit " + std::to_string(limit);
    part = std::max(part, share);
  }
  bool pass() const { return exact <= 1 && cpu <= 1 && rounding <= 1; }
};

// Returns `some` elements of a result at equal distances: those that `cleave
// check --record` stores of the same result.
std::vector<double> samplesOf(const Gathered &result, int64_t some) {
  std::vector<double> samples;
  int64_t count = std::ssize(result.values);
  for (int64_t i = 0; i < some; ++i)
    samples.push_back(result.values[i * count / some]);
  return samples;
}

// An extra tolerance for results of a device, relative to the largest element
// of the tensor. The limit is derived from the error of the CPU, but `cleave
// check --record` stores only a few elements of each tensor. By chance, the CPU
// may round these elements better than the device does.
double deviceSlack(double epsilon) { return 16 * epsilon; }

Verdict compare(const std::map<std::string, Results> &all, double epsilon) {
  // The limits are those of Tolerances in cleave/Check/Compare.h.
  constexpr double exactLimit = 1e-9, stepsLimit = 1e-8, noiseFactor = 64;
  Verdict verdict;
  const Results &reference = all.at("exact-reference");
  const Results &sharded = all.at("exact-sharded");
  Floors floors = floorsOf(reference, 1e-6);
  if (sharded.size() != reference.size())
    throw Fault("the sharded program gives other results than the unsharded");
  std::map<std::string, double> floorOfNoise;
  for (size_t i = 0; i < sharded.size(); ++i) {
    const Gathered &a = sharded[i], &b = reference[i];
    double limit = b.step ? stepsLimit : exactLimit;
    floorOfNoise[b.name] = noiseFactor * b.noise / exactLimit;
    double floor = std::max(floors[b.role], floorOfNoise[b.name]);
    verdict.note(verdict.exact, relativeError(a.values, b.values, floor), limit,
                 a, "f64");
    verdict.note(verdict.exact, a.replicaDifference, limit, a, "replicas");
  }
  for (const auto &[name, results] : all)
    if (name.starts_with("exact"))
      for (const Gathered &result : results) {
        std::vector<double> samples = samplesOf(result, result.samples.size());
        double floor = std::max({floors[result.role], largest(result.values),
                                 floorOfNoise[result.name]});
        verdict.note(verdict.cpu, relativeError(samples, result.samples, floor),
                     result.step ? stepsLimit : exactLimit, result,
                     "f64 beside a CPU");
      }
  if (!all.count("rounding-sharded"))
    return verdict;
  Results truth;
  for (const Gathered &result : reference)
    if (result.step == 0)
      truth.push_back(result);
  floors = floorsOf(truth, 1e-3);
  auto find = [&](const Results &results, const std::string &name) {
    for (const Gathered &result : results)
      if (result.name == name && result.step == 0)
        return &result;
    throw Fault("nothing was gathered of " + name);
  };
  for (const Gathered &exact : truth) {
    const Gathered *a = find(all.at("rounding-sharded"), exact.name);
    const Gathered *b = find(all.at("rounding-reference"), exact.name);
    double floor = floors[exact.role];
    double slack = 1e-6 + (exact.values.size() == 1 ? 16 * epsilon : 0);
    // Normally the error limit is a multiple of the error of the unsharded
    // program. But in this precision, the noise of a gradient (how much
    // rounding changes it) may be larger than the gradient. Then the error of
    // the unsharded program is only one random sample of the noise and may be
    // small by chance, so the limit is at least the noise.
    double noise = noiseFactor * exact.noise * epsilon /
                   std::numeric_limits<double>::epsilon();
    if (noise > 0 && noise >= largest(exact.values))
      slack = std::max(slack, noise / std::max(largest(exact.values), floor));
    // The error of the unsharded program does not raise the limit if that error
    // is not finite.
    auto limitOf = [&](double alone) {
      return std::isfinite(alone) ? 4 * alone + slack : slack;
    };
    double alone = relativeError(b->values, exact.values, floor);
    verdict.note(verdict.rounding,
                 relativeError(a->values, exact.values, floor), limitOf(alone),
                 *a, "rounding");
    // The sharded and the unsharded program could have the same error on this
    // device, so the unsharded results are also compared with those of a CPU in
    // the same precision.
    std::vector<double> here = samplesOf(*b, b->samples.size()),
                        right = samplesOf(exact, b->samples.size());
    floor = std::max(floor, largest(exact.values));
    verdict.note(verdict.cpu, relativeError(here, right, floor),
                 limitOf(relativeError(b->samples, right, floor)) +
                     deviceSlack(epsilon),
                 *b, "rounding beside a CPU");
  }
  return verdict;
}

// Repeats the recorded check in the folder `row`. Returns 0, 1 or 3 with the
// meaning of the exit codes above, or -1 if the check needs more than `most`
// ranks and is skipped.
int runRow(const fs::path &row, const char *transport, int most) {
  auto begin = std::chrono::steady_clock::now();
  std::string name = row.filename().string();
  try {
    std::string data = readFile(row / "data.bin");
    std::istringstream settings(readFile(row / "check.txt"));
    std::string key;
    double epsilon = 0;
    settings >> key >> epsilon;
    if (!settings || key != "epsilon")
      throw Fault("check.txt: expected \"epsilon E\"");
    std::map<std::string, Results> all;
    int ranks = 0;
    if (int needed = ranksOf(row / "exact-sharded"); needed > most) {
      std::printf("%-34s left out: needs %d ranks, there are %d\n",
                  name.c_str(), needed, most);
      return -1;
    }
    for (const char *part : {"exact-sharded", "exact-reference",
                             "rounding-sharded", "rounding-reference"})
      if (fs::exists(row / part)) {
        Player player(row / part, data, transport);
        all[part] = player.play();
        ranks = std::max(ranks, player.ranks());
      }
    Verdict verdict = compare(all, epsilon);
    std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - begin;
    std::printf("%-44s %5d %6d %9.2g %9.2g %9.2g %6.1f s  %s%s%s\n",
                name.c_str(), ranks, verdict.compared, verdict.exact,
                verdict.cpu, verdict.rounding, seconds.count(),
                verdict.pass() ? "pass" : "FAIL",
                verdict.worst.empty() ? "" : ": ", verdict.worst.c_str());
    std::fflush(stdout);
    return verdict.pass() ? 0 : 1;
  } catch (const std::exception &error) {
    std::printf("%-44s FAILED: %s\n", name.c_str(), error.what());
    std::fflush(stdout);
    return 3;
  }
}

// Repeats the recorded checks in the folders `rows` in a new process of this
// program, and returns the exit code of that process.
int runElsewhere(const char *transport, int most, const fs::path &folder,
                 const std::vector<fs::path> &rows) {
  std::vector<std::string> words{"replay", "--untitled"};
  if (transport != std::string_view("auto"))
    words.push_back(std::string("--") + transport);
  if (most != INT_MAX)
    words.insert(words.end(), {"--most", std::to_string(most)});
  words.push_back(folder.string());
  for (const fs::path &row : rows)
    words.push_back(row.filename().string());
  return cleave::gpu::runAnew(std::move(words));
}
} // namespace

int main(int argc, char **argv) {
  const char *transport = "auto";
  int most = INT_MAX;
  bool isUsage = false, hasTitle = true;
  for (; argc > 1 && std::string_view(argv[1]).starts_with("--");
       --argc, ++argv) {
    std::string_view flag = argv[1];
    if (flag == "--local" || flag == "--nccl") {
      transport = argv[1] + 2;
    } else if (flag == "--untitled") {
      hasTitle = false;
    } else if (flag == "--most" && argc > 2 && std::atoi(argv[2]) > 0) {
      most = std::atoi(argv[2]);
      --argc;
      ++argv;
    } else {
      isUsage = true;
    }
  }
  if (isUsage || argc < 2 || !fs::is_directory(argv[1])) {
    std::fprintf(stderr, "usage: replay [--local|--nccl] [--most RANKS] FOLDER "
                         "[ROW]...\n");
    return 2;
  }
  std::vector<fs::path> rows;
  for (int i = 2; i < argc; ++i)
    rows.push_back(fs::path(argv[1]) / argv[i]);
  if (rows.empty())
    for (const fs::directory_entry &entry : fs::directory_iterator(argv[1]))
      if (fs::exists(entry.path() / "data.bin"))
        rows.push_back(entry.path());
  std::sort(rows.begin(), rows.end());
  if (hasTitle)
    std::printf("%-44s %5s %6s %9s %9s %9s\n",
                "row (errors are shares of their "
                "limits)",
                "ranks", "values", "f64", "CPU", "rounding");
  int worst = -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    int code = runRow(rows[i], transport, most);
    worst = std::max(worst, code);
    if (code == 3 && i + 1 < rows.size()) {
      std::vector<fs::path> rest(rows.begin() + i + 1, rows.end());
      worst = std::max(worst, runElsewhere(transport, most, argv[1], rest));
      break;
    }
  }
  if (worst < 0) {
    std::fprintf(stderr, "replay: no row was run: %s has none%s\n", argv[1],
                 rows.empty() ? "" : " of so few ranks");
    return 2;
  }
  return worst;
}
