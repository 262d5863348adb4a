//===- TraceFile.cpp - what ranks did when, for a person to look at -------===//
#include "TraceFile.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/WriteError.h"

#include "cleave/io/JsonText.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

using Json = nlohmann::ordered_json;

namespace cleave {

/// Threads are numbered across all ranks, so that numbers are unique.
static int64_t threadOf(int64_t rank, bool transfers) {
  return 2 * rank + (transfers ? 1 : 0);
}

/// Returns the coordinates of a rank in the mesh for a label, such as "
/// (pipeline 1, data 0)". Axes of size 1 are left out.
static std::string placeOf(const Manifest &manifest, int64_t rank) {
  std::string text;
  for (size_t i = manifest.mesh.size(); i-- > 0;) {
    const auto &[axis, size] = manifest.mesh[i];
    if (size > 1)
      text = axis + " " + std::to_string(rank % size) +
             (text.empty() ? "" : ", " + text);
    rank /= size;
  }
  return text.empty() ? "" : " (" + text + ")";
}

/// As every trace begins.
static constexpr const char *beginning =
    "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";

TraceFile::TraceFile(const std::string &path, const Manifest &manifest)
    : path(path) {
  refuseOtherKind(path, beginning, "a trace");
  file = std::fopen(path.c_str(), "w");
  if (!file)
    throw InputError("--trace " + path +
                     ": cannot be written: " + std::strerror(errno));
  std::fputs(beginning, file);
  auto name = [&](const char *what, int64_t rank, int64_t thread,
                  const std::string &text) {
    write(jsonText(Json{{"ph", "M"},
                        {"name", what},
                        {"pid", rank},
                        {"tid", thread},
                        {"args", {{"name", text}}}}));
  };
  for (int64_t rank = 0; rank < manifest.ranks; ++rank) {
    name("process_name", rank, threadOf(rank, false),
         "rank " + std::to_string(rank) + placeOf(manifest, rank));
    name("thread_name", rank, threadOf(rank, false), "compute");
    name("thread_name", rank, threadOf(rank, true), "send/recv");
  }
}

TraceFile::~TraceFile() {
  std::fputs("\n]}\n", file);
  std::fclose(file);
}

void TraceFile::write(const std::string &event) {
  if (std::fputs(isEmpty ? "\n" : ",\n", file) == EOF ||
      std::fputs(event.c_str(), file) == EOF)
    failure = failure ? failure : errno;
  isEmpty = false;
}

void TraceFile::append(StepExecutor &executor, int64_t step) {
  std::vector<std::vector<RankEvent>> events;
  for (int64_t rank = 0; rank < executor.ranks(); ++rank)
    events.push_back(executor.takeTrace(rank));
  if (origin == 0)
    for (const std::vector<RankEvent> &own : events)
      if (!own.empty() && (origin == 0 || own.front().beginNs < origin))
        origin = own.front().beginNs;
  const int64_t ranks = executor.ranks();
  auto micro = [](int64_t ns) { return static_cast<double>(ns) / 1000; };
  for (size_t rank = 0; rank < events.size(); ++rank)
    for (const RankEvent &event : events[rank]) {
      Json args{{"step", step}, {"kind", event.kind}};
      if (!event.kernel.empty())
        args["kernel"] = event.kernel;
      auto took = static_cast<double>(event.endNs - event.beginNs);
      if (event.bytes > 0 && took > 0)
        args["GB/s"] = static_cast<double>(event.bytes) / took;
      if (event.flops > 0 && took > 0)
        args["TFLOP/s"] = static_cast<double>(event.flops) / took / 1000;
      write(jsonText(
          Json{{"ph", "X"},
               {"name", event.name},
               {"cat", event.kind},
               {"pid", rank},
               {"tid", threadOf(static_cast<int64_t>(rank), event.transfers)},
               {"ts", micro(event.beginNs - origin)},
               {"dur", micro(event.endNs - event.beginNs)},
               {"args", std::move(args)}}));
      if (event.from < 0)
        continue;
      // A flow arrow leads from the beginning of a send to the end of a
      // receive. Both ends have the same name, category and number.
      bool sends = event.from == static_cast<int64_t>(rank);
      int64_t at =
          sends ? event.beginNs : std::max(event.beginNs, event.endNs - 1);
      Json arrow{
          {"ph", sends ? "s" : "f"},
          {"name", "message"},
          {"cat", "message"},
          {"id", (event.message * ranks + event.from) * ranks + event.to},
          {"pid", rank},
          {"tid", threadOf(static_cast<int64_t>(rank), event.transfers)},
          {"ts", micro(at - origin)}};
      if (!sends)
        arrow["bp"] = "e"; // the slice around it, not the next one
      write(jsonText(arrow));
    }
  if (std::fflush(file) == EOF)
    failure = failure ? failure : errno;
  if (failure)
    throw RunError("--trace " +
                   writeError(path, {failure, std::generic_category()}));
}

} // namespace cleave
