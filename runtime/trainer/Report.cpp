//===- Report.cpp - what a run says while it runs -------------------------===//
#include "Report.h"
#include "cleave/io/Error.h"
#include "cleave/io/Escape.h"
#include "cleave/io/Nesting.h"

#include "cleave/io/JsonText.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/ioctl.h>
#include <unistd.h>

using Json = nlohmann::ordered_json;

namespace cleave {

/// JSON has no NaN, so it is written as null.
static Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
static Json number(const std::optional<double> &value) {
  return value ? number(*value) : Json(nullptr);
}

std::string toJsonLine(const StepRecord &r) {
  double time = std::chrono::duration<double>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count();
  Json json = {{"step", r.step},
               {"loss", number(r.loss)},
               {"val_loss", number(r.valLoss)},
               {"val_samples", r.valLoss ? Json(r.valSamples) : Json(nullptr)},
               {"lr", r.lr},
               {"grad_norm", number(r.gradNorm)},
               {"tokens", r.tokens},
               {"tokens_per_s", number(r.tokensPerSecond)},
               {"step_ms", r.stepMs},
               {"sent_bytes", r.sentBytes},
               {"peak_bytes", r.peakBytes},
               {"time", time}};
  if (r.leftOut != LeftOut::no)
    json["left_out"] = r.leftOut == LeftOut::notFinite ? "not finite"
                       : r.leftOut == LeftOut::noLabels
                           ? "no labels"
                           : "no labels, but updated";
  if (!r.balance.empty())
    json["experts"] = toLogEntry(r.balance);
  if (r.balance.overflow)
    json["overflow"] = *r.balance.overflow;
  return jsonText(json);
}

void trimLog(const std::string &path, int64_t step) {
  if (!std::filesystem::exists(path))
    return;
  std::string text = readTextFile(path), kept;
  size_t begin = 0, number = 0;
  while (begin < text.size()) {
    ++number;
    size_t end = text.find('\n', begin);
    if (end == std::string::npos)
      break; // a line that a killed run did not finish
    std::string line = text.substr(begin, end - begin);
    Json json = nestsTooDeep(line) ? Json() : Json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("step") &&
        !json["step"].is_number_integer())
      throw InputError(path + ", line " + std::to_string(number) +
                       ": key 'step' is " + jsonText(json["step"]) +
                       ", expected a whole number; mend the line or remove "
                       "it");
    if (json.is_object() && json.value("step", step + 1) <= step)
      kept += line + '\n';
    begin = end + 1;
  }
  if (kept != text)
    writeFileAtomically(path, kept);
}

/// Returns the peak memory of this program. getrusage would include the peak of
/// the compiler, which ran in this process before exec.
static int64_t peakResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("VmHWM:"))
      return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  return 0;
}

std::string countersToJson(StepExecutor &executor, const StepRecord &record,
                           std::optional<Allocations> allocations) {
  Json ranks = Json::array();
  for (int64_t rank = 0; rank < executor.ranks(); ++rank) {
    Json traffic = Json::array();
    for (const RankTraffic &entry : executor.traffic(rank))
      traffic.push_back({{"purpose", entry.purpose},
                         {"sent_bytes", entry.sentBytes},
                         {"received_bytes", entry.receivedBytes},
                         {"calls", entry.calls}});
    RankMemory memory = executor.memory(rank);
    ranks.push_back({{"rank", rank},
                     {"traffic", traffic},
                     {"attention_flops", executor.attentionFlops(rank)},
                     {"memory",
                      {{"arenas", memory.arenaBytes},
                       {"touched", memory.touchedBytes},
                       {"scratch", memory.scratchBytes},
                       {"unplanned", memory.unplannedBytes},
                       {"pool", memory.poolBytes}}}});
  }
  Json json = {{"step", record.step},
               {"peak_resident_bytes", peakResidentBytes()},
               {"allocations",
                allocations ? Json{{"step", allocations->step},
                                   {"after_warm_up", allocations->afterWarmUp},
                                   {"process", allocations->process}}
                            : Json(nullptr)},
               {"ranks", ranks}};
  if (!record.balance.empty())
    json["experts"] = toCounts(record.balance);
  return jsonText(json, 1) + "\n";
}

//===----------------------------------------------------------------------===//
// Progress
//===----------------------------------------------------------------------===//

Progress::Progress(int64_t first, int64_t last, std::optional<bool> bar,
                   std::string unit)
    : unit(std::move(unit)), first(first), last(last),
      bar(bar.value_or(::isatty(STDOUT_FILENO))), started(Clock::now()) {}

Progress::~Progress() {
  if (drawn)
    printEscaped(stdout, "\n");
  std::fflush(stdout);
}

void Progress::clear() {
  if (drawn)
    std::printf("\r\033[K");
  drawn = false;
}

void Progress::say(const std::string &line) {
  clear();
  printEscaped(stdout, "%s\n", line.c_str());
  std::fflush(stdout);
}

/// 1234567 -> "1.23M".
static std::string shortNumber(double value) {
  char text[32];
  const char *unit = "";
  for (const char *next : {"k", "M", "G"}) {
    if (std::fabs(value) < 1000)
      break;
    value /= 1000;
    unit = next;
  }
  std::snprintf(text, sizeof text, "%.3g%s", value, unit);
  return text;
}

static std::string shortTime(double seconds) {
  char text[32];
  auto whole = static_cast<long long>(seconds + 0.5);
  if (whole >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600,
                  whole / 60 % 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  return text;
}

void Progress::step(const StepRecord &record) {
  if (bar)
    return draw(record);
  // Without a terminal: prints the first and last step, every validation, and
  // one step every two seconds.
  Clock::time_point now = Clock::now();
  if (record.step == first || record.step == last || record.valLoss ||
      now - printed >= std::chrono::seconds(2)) {
    printed = now;
    print(record);
  }
}

/// A loss as text. The sign of a NaN has no meaning and is left out.
static std::string lossText(double loss) {
  char text[400];
  std::snprintf(text, sizeof text, "%.4f", std::isnan(loss) ? NAN : loss);
  return text;
}

void Progress::print(const StepRecord &r) {
  printEscaped(stdout, "step %lld/%lld  loss %s",
               static_cast<long long>(r.step), static_cast<long long>(last),
               lossText(r.loss).c_str());
  if (r.valLoss)
    printEscaped(stdout, "  val_loss %s of %lld samples",
                 lossText(*r.valLoss).c_str(),
                 static_cast<long long>(r.valSamples));
  printEscaped(stdout, "  lr %.3g", r.lr);
  if (r.gradNorm)
    printEscaped(stdout, "  grad_norm %.3g", *r.gradNorm);
  printEscaped(stdout, "%s", summaryOf(r.balance).c_str());
  printEscaped(stdout, "  %s %s/s\n", shortNumber(r.tokensPerSecond).c_str(),
               unit.c_str());
  std::fflush(stdout);
}

void Progress::draw(const StepRecord &r) {
  clear();
  if (r.valLoss || r.step == last)
    print(r);
  double elapsed =
      std::chrono::duration<double>(Clock::now() - started).count();
  int64_t done = r.step - first + 1;
  double left =
      elapsed / static_cast<double>(done) * static_cast<double>(last - r.step);
  char tail[160];
  std::snprintf(tail, sizeof tail, "] %lld/%lld  loss %s  %s %s/s  %s left",
                static_cast<long long>(r.step), static_cast<long long>(last),
                lossText(r.loss).c_str(),
                shortNumber(r.tokensPerSecond).c_str(), unit.c_str(),
                shortTime(left).c_str());
  struct winsize size{};
  int columns = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col
                    ? size.ws_col
                    : 80;
  int width = std::clamp<int>(
      columns - 2 - static_cast<int>(std::char_traits<char>::length(tail)), 0,
      40);
  int filled =
      static_cast<int>(static_cast<double>(width) * static_cast<double>(done) /
                       static_cast<double>(last - first + 1));
  std::string line =
      "[" + std::string(filled, '=') + std::string(width - filled, ' ') + tail;
  // A line longer than the terminal is wide would wrap, and could not be
  // redrawn.
  printEscaped(stdout, "%s", line.substr(0, columns - 1).c_str());
  std::fflush(stdout);
  drawn = true;
}

} // namespace cleave
