// Reads, writes and checks schedule tables.

#include "cleave/PipelineSchedule/Table.h"

#include "Rows.h"

#include "cleave/io/Input.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace cleave::pipeline {

std::vector<int> Table::ranksOfStage(int stage) const {
  std::vector<int> found;
  for (int rank = 0; rank < ranks; ++rank)
    if (std::binary_search(stagesOfRank[rank].begin(), stagesOfRank[rank].end(),
                           stage))
      found.push_back(rank);
  return found;
}

int Table::chunks() const {
  size_t most = 0;
  for (const std::vector<int> &stages : stagesOfRank)
    most = std::max(most, stages.size());
  return static_cast<int>(most);
}

Placement::Placement(const Table &table)
    : rank(table.stages, std::vector<int>(table.microbatches, -1)) {
  for (int r = 0; r < table.ranks; ++r)
    for (const Action &action : table.actions[r])
      if (action.kind == ActionKind::F)
        rank[action.stage][action.microbatch] = r;
}

Table repeated(const Table &table, int steps) {
  Table result = table;
  result.microbatches = table.microbatches * steps;
  for (int rank = 0; rank < table.ranks; ++rank)
    for (int step = 1; step < steps; ++step)
      for (Action action : table.actions[rank]) {
        if (action.microbatch >= 0)
          action.microbatch += step * table.microbatches;
        result.actions[rank].push_back(action);
      }
  return result;
}

std::vector<int> weightVersions(const Table &table) {
  std::vector<int> versions(table.ranks, 1);
  if (!table.asynchronous)
    return versions;
  for (int rank = 0; rank < table.ranks; ++rank) {
    int held = 0, most = 1;
    for (const Action &action : table.actions[rank]) {
      held += action.kind == ActionKind::F;
      most = std::max(most, held);
      held -= action.kind == ActionKind::B || action.kind == ActionKind::W;
    }
    versions[rank] = most;
  }
  return versions;
}

std::string writeTable(const Table &table) {
  std::string text;
  for (const std::vector<Action> &row : table.actions) {
    for (size_t i = 0; i < row.size(); ++i)
      text += (i ? "," : "") + print(row[i]);
    text += "\n";
  }
  return text;
}

namespace {

Error missing(const std::string &name, const Action &forward,
              int microbatches) {
  return {name + ": stage " + std::to_string(forward.stage) + ": " +
          print(forward) +
          " is missing; every stage runs every microbatch of 0 to " +
          std::to_string(microbatches - 1)};
}

// Checks that every F occurs once, and that its complete backward pass occurs
// once, on the same rank.
class Completeness {
public:
  Completeness(const Table &table, const std::string &name)
      : table(table), name(name),
        seen(4, std::vector<std::vector<int>>(
                    table.stages, std::vector<int>(table.microbatches, -1))) {}

  std::optional<Error> check() {
    for (int rank = 0; rank < table.ranks; ++rank)
      for (const Action &action : table.actions[rank]) {
        if (!isCompute(action.kind))
          continue;
        int &where = seen[static_cast<int>(action.kind)][action.stage]
                         [action.microbatch];
        if (where >= 0)
          return fail(action, "appears twice, on rank " +
                                  std::to_string(where) + " and on rank " +
                                  std::to_string(rank) +
                                  "; every action runs once");
        where = rank;
      }
    for (int stage = 0; stage < table.stages; ++stage)
      for (int m = 0; m < table.microbatches; ++m)
        if (std::optional<Error> error = checkOne(stage, m))
          return error;
    return std::nullopt;
  }

private:
  int rankOf(ActionKind kind, int stage, int m) const {
    return seen[static_cast<int>(kind)][stage][m];
  }

  std::optional<Error> checkOne(int stage, int m) {
    int f = rankOf(ActionKind::F, stage, m),
        b = rankOf(ActionKind::B, stage, m);
    if (f < 0)
      return missing(name, {stage, ActionKind::F, m}, table.microbatches);
    for (ActionKind kind : {ActionKind::I, ActionKind::W, ActionKind::B}) {
      int where = rankOf(kind, stage, m);
      bool wanted = (kind == ActionKind::B) == (b >= 0);
      if (where < 0 && wanted)
        return fail({stage, kind, m},
                    kind == ActionKind::B
                        ? "is missing"
                        : "is missing; a forward pass needs I and W, or B");
      if (where >= 0 && !wanted)
        return fail({stage, kind, m},
                    "repeats part of " +
                        print(Action{stage, ActionKind::B, m}) +
                        ", which is I and W");
      if (where >= 0 && where != f)
        return fail({stage, kind, m},
                    "is on rank " + std::to_string(where) + ", but " +
                        print(Action{stage, ActionKind::F, m}) + " on rank " +
                        std::to_string(f) +
                        "; activations stay where they are");
    }
    return std::nullopt;
  }

  std::optional<Error> fail(const Action &action,
                            const std::string &why) const {
    return Error{name + ": stage " + std::to_string(action.stage) + ": " +
                 print(action) + " " + why};
  }

  const Table &table;
  const std::string &name;
  std::vector<std::vector<std::vector<int>>> seen; // by kind, stage, microbatch
};

} // namespace

Result<int>
forEachCell(std::string_view text, const std::string &name,
            const std::function<std::optional<Error>(int row, std::string_view)>
                &cell) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  if (text.starts_with(mark))
    text.remove_prefix(mark.size());
  text = text.substr(0, text.find_last_not_of(" \t\r\n\v\f") + 1);
  int row = 0;
  for (; !text.empty(); ++row) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    for (int column = 1;; ++column) {
      size_t comma = line.find(',');
      if (std::optional<Error> error = cell(row, line.substr(0, comma)))
        return Error{name + ": row " + std::to_string(row + 1) + ", cell " +
                     std::to_string(column) + ": " + error->message};
      if (comma == std::string_view::npos)
        break;
      line.remove_prefix(comma + 1);
    }
  }
  return row;
}

namespace {

/// Reads the actions of all rows and counts stages, microbatches and ranks.
std::optional<Error> readActions(std::string_view text, const std::string &name,
                                 Table &table) {
  Result<int> rows = forEachCell(
      text, name, [&](int row, std::string_view cell) -> std::optional<Error> {
        table.actions.resize(row + 1);
        Result<std::vector<Action>> parsed = parseCell(cell);
        if (!parsed)
          return Error{parsed.error()};
        for (const Action &action : *parsed) {
          if (isTransfer(action.kind))
            return Error{
                print(action) +
                " is a transfer; the table of a schedule has none, they "
                "follow from the placement of the stages"};
          table.stages = std::max(table.stages, action.stage + 1);
          table.microbatches =
              std::max(table.microbatches, action.microbatch + 1);
          table.actions[row].push_back(action);
        }
        return std::nullopt;
      });
  if (!rows)
    return Error{rows.error()};
  table.ranks = *rows;
  if (table.stages == 0 || table.microbatches == 0)
    return Error{name +
                 ": the table has no action; expected a row per rank with "
                 "cells like 0F0,0B0"};
  return std::nullopt;
}

/// Returns the first forward pass that is missing in a table with too few
/// actions.
Action firstMissing(const Table &table) {
  std::set<Action> there;
  for (const std::vector<Action> &actions : table.actions)
    there.insert(actions.begin(), actions.end());
  Action next{0, ActionKind::F, 0};
  while (there.count(next))
    next = next.microbatch + 1 < table.microbatches
               ? Action{next.stage, ActionKind::F, next.microbatch + 1}
               : Action{next.stage + 1, ActionKind::F, 0};
  return next;
}

/// Checks that stages and microbatches are numbered without gaps.
std::optional<Error> checkNumbers(const Table &table, const std::string &name) {
  size_t cells = 0;
  std::vector<bool> runs(table.stages);
  for (const std::vector<Action> &actions : table.actions) {
    cells += actions.size();
    for (const Action &action : actions)
      if (action.kind == ActionKind::F)
        runs[action.stage] = true;
  }
  for (int stage = 0; stage < table.stages; ++stage)
    if (!runs[stage])
      return Error{name + ": stage " + std::to_string(stage) +
                   " runs nowhere; expected F of stages 0 to " +
                   std::to_string(table.stages - 1) + ", without a gap"};
  if (static_cast<size_t>(table.microbatches) > cells)
    return Error{name + ": microbatch " +
                 std::to_string(table.microbatches - 1) + " is in a table of " +
                 std::to_string(cells) +
                 " actions; microbatches are numbered from 0 without a gap"};
  // Reports a missing action before allocating memory for every pass, because
  // the numbers in a faulty file can be large.
  if (static_cast<size_t>(table.stages) * table.microbatches > cells)
    return missing(name, firstMissing(table), table.microbatches);
  return std::nullopt;
}

/// Fills `stagesOfRank`. A row may only have actions of a stage if it also has
/// an F of this stage.
std::optional<Error> assignStages(Table &table, const std::string &name) {
  table.stagesOfRank.resize(table.ranks);
  for (int rank = 0; rank < table.ranks; ++rank) {
    std::vector<int> &stages = table.stagesOfRank[rank];
    stages = stagesIn(table.actions[rank],
                      [](const Action &action) { return action; });
    if (stages.empty())
      return Error{name + ": row " + std::to_string(rank + 1) +
                   (table.actions[rank].empty() ? " has no action"
                                                : " computes nothing") +
                   "; expected a row for each rank of the pipeline"};
    for (const Action &action : table.actions[rank])
      if (!std::binary_search(stages.begin(), stages.end(), action.stage))
        return Error{name + ": row " + std::to_string(rank + 1) + ": " +
                     print(action) + " is of stage " +
                     std::to_string(action.stage) +
                     ", which the row does not run"};
  }
  return std::nullopt;
}

} // namespace

Result<Table> readTableText(std::string_view text, const std::string &name) {
  Table table;
  table.schedule = "custom";
  if (std::optional<Error> error = readActions(text, name, table))
    return *error;
  if (std::optional<Error> error = checkNumbers(table, name))
    return *error;
  if (std::optional<Error> error = assignStages(table, name))
    return *error;
  if (std::optional<Error> error = Completeness(table, name).check())
    return *error;
  return table;
}

Result<Table> readTable(const std::string &path) {
  std::string text, reason;
  if (!readInput(path, text, reason))
    return Error{path +
                 ": cannot be read as the table of a schedule: " + reason};
  return readTableText(text, path);
}

} // namespace cleave::pipeline
