// The list of schedules, their requirements and their generators.

#include "Generators.h"

#include <algorithm>

namespace cleave::pipeline {

namespace {

struct Schedule {
  const char *name;
  int chunks; // stages per rank that it requires
  bool anyChunks;
  StagePlacement placement;
  void (*fill)(Table &table);
  bool asynchronous = false;
};

constexpr StagePlacement loop = StagePlacement::Loop, v = StagePlacement::V;

const Schedule schedules[] = {
    {"gpipe", 1, false, loop, fillGPipe},
    {"1f1b", 1, false, loop, fill1F1B},
    {"interleaved", 2, true, loop, fillInterleaved},
    {"looped-bfs", 2, true, loop, fillLoopedBfs},
    {"chimera", 1, false, StagePlacement::Both, fillChimera},
    {"zb-h1", 1, false, loop, fillZeroBubble1},
    {"zb-h2", 1, false, loop, fillZeroBubble2},
    {"zb-v", 2, false, v, fillZeroBubbleV},
    {"v-half", 2, false, v, fillVHalf},
    {"dualpipe-v", 2, false, v, fillDualPipeV},
    {"pipedream-async", 1, false, loop, fill1F1B, /*asynchronous=*/true},
};

const Schedule *find(const std::string &name) {
  for (const Schedule &schedule : schedules)
    if (name == schedule.name)
      return &schedule;
  return nullptr;
}

Error unknown(const std::string &name) {
  std::vector<std::string> names = scheduleNames();
  std::string message = "unknown schedule '" + name + "'";
  if (std::optional<std::string> close = nearest(name, names))
    message += "; did you mean '" + *close + "'?";
  message += "; known are";
  for (size_t i = 0; i < names.size(); ++i)
    message += (i ? ", " : " ") + names[i];
  return {message};
}

Error refuse(const std::string &name, const std::string &why) {
  return {"schedule " + name + ": " + why};
}

} // namespace

std::vector<std::string> scheduleNames() {
  std::vector<std::string> names;
  for (const Schedule &schedule : schedules)
    names.push_back(schedule.name);
  names.push_back("custom");
  return names;
}

Result<int> chunksOf(const std::string &name, int chunks) {
  const Schedule *schedule = find(name);
  if (!schedule)
    return unknown(name);
  if (chunks == 0)
    return schedule->chunks;
  if (chunks < 0)
    return refuse(name,
                  "chunks is " + std::to_string(chunks) +
                      "; expected a number of stages per rank, or 0 for what "
                      "the schedule needs");
  if (!schedule->anyChunks && chunks != schedule->chunks)
    return refuse(name,
                  "it has " + std::to_string(schedule->chunks) +
                      (schedule->chunks == 1 ? " stage" : " stages") +
                      " per rank, but chunks is " + std::to_string(chunks) +
                      "; leave chunks at 0, or take interleaved or looped-bfs, "
                      "where it is free");
  return chunks;
}

Table emptyTable(const ScheduleSpec &spec, int chunks,
                 StagePlacement placement) {
  Table table;
  table.schedule = spec.name;
  table.ranks = spec.ranks;
  table.stages = spec.ranks * chunks;
  table.microbatches = spec.microbatches;
  table.stagesOfRank.resize(spec.ranks);
  table.actions.resize(spec.ranks);
  if (placement == StagePlacement::Both)
    for (int i = 0; i < spec.ranks; ++i)
      table.stagesOfRank[i] = {std::min(i, spec.ranks - 1 - i),
                               std::max(i, spec.ranks - 1 - i)};
  else
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int i = 0; i < spec.ranks; ++i) {
        bool up = placement == StagePlacement::V && chunk % 2;
        table.stagesOfRank[up ? spec.ranks - 1 - i : i].push_back(
            chunk * spec.ranks + i);
      }
  return table;
}

Result<Table> generate(const ScheduleSpec &spec) {
  const Schedule *schedule = find(spec.name);
  if (!schedule)
    return spec.name == "custom"
               ? refuse(spec.name, "it is read from a table, not generated")
               : unknown(spec.name);
  Result<int> chunks = chunksOf(spec.name, spec.chunks);
  if (!chunks)
    return Error{chunks.error()};
  constexpr int most = 1 << 16;
  if (spec.ranks < 1 || spec.ranks > most)
    return refuse(spec.name, "ranks is " + std::to_string(spec.ranks) +
                                 "; expected 1 to " + std::to_string(most));
  if (spec.microbatches < 1 || spec.microbatches > most)
    return refuse(spec.name, "microbatches is " +
                                 std::to_string(spec.microbatches) +
                                 "; expected 1 to " + std::to_string(most));
  if (*chunks > most)
    return refuse(spec.name, "chunks is " + std::to_string(*chunks) +
                                 "; expected at most " + std::to_string(most));
  constexpr int64_t mostActions = 1 << 26;
  if (int64_t(spec.ranks) * *chunks * spec.microbatches > mostActions)
    return refuse(spec.name, "a table of more than " +
                                 std::to_string(mostActions) +
                                 " actions is not written");
  if (spec.name == "chimera" && (spec.ranks % 2 || spec.microbatches < 2))
    return refuse(spec.name,
                  "it needs an even number of ranks and at least 2 "
                  "microbatches, as half of them go up the pipeline; there "
                  "are " +
                      std::to_string(spec.ranks) + " ranks and " +
                      std::to_string(spec.microbatches) + " microbatches");
  if (spec.name == "dualpipe-v" && spec.microbatches < 2 * spec.ranks)
    return refuse(spec.name,
                  "it needs at least as many microbatches as stages; there "
                  "are " +
                      std::to_string(spec.microbatches) + " microbatches and " +
                      std::to_string(2 * spec.ranks) + " stages");
  Table table = emptyTable(spec, *chunks, schedule->placement);
  table.asynchronous = schedule->asynchronous;
  schedule->fill(table);
  return table;
}

} // namespace cleave::pipeline
