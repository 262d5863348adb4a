// Reads and writes lowered tables.

#include "Rows.h"
#include "cleave/PipelineSchedule/Lower.h"

#include <algorithm>
#include <set>

namespace cleave::pipeline {

std::string print(const LoweredAction &action) {
  std::string text = print(action.action);
  if (action.phase == Phase::Wait)
    text.insert(text.find_first_not_of("0123456789"), "WAIT_");
  return text;
}

std::string writeLowered(const LoweredTable &table) {
  std::string text;
  for (const std::vector<LoweredAction> &row : table.actions) {
    for (size_t i = 0; i < row.size(); ++i)
      text += (i ? "," : "") + print(row[i]);
    text += "\n";
  }
  return text;
}

Result<LoweredTable> readLoweredText(std::string_view text,
                                     const std::string &name) {
  LoweredTable table;
  table.schedule = "custom";
  size_t cells = 0;
  Result<int> rows = forEachCell(
      text, name, [&](int row, std::string_view cell) -> std::optional<Error> {
        table.actions.resize(row + 1);
        std::string plain(cell);
        size_t wait = plain.find("WAIT_");
        if (wait != std::string::npos)
          plain.erase(wait, 5);
        Result<std::vector<Action>> parsed = parseCell(plain);
        if (!parsed)
          return Error{parsed.error()};
        for (const Action &action : *parsed) {
          if (wait != std::string::npos && !isTransfer(action.kind))
            return Error{"'" + std::string(cell) +
                         "': only transfers are waited for"};
          table.stages = std::max(table.stages, action.stage + 1);
          table.microbatches =
              std::max(table.microbatches, action.microbatch + 1);
          table.actions[row].push_back(
              {action, wait != std::string::npos ? Phase::Wait : Phase::Run,
               -1});
        }
        cells += parsed->size();
        return std::nullopt;
      });
  if (!rows)
    return Error{rows.error()};
  table.ranks = *rows;
  if (static_cast<size_t>(table.stages) * table.microbatches > cells)
    return Error{name + ": " + std::to_string(table.stages) + " stages and " +
                 std::to_string(table.microbatches) +
                 " microbatches need more than the " + std::to_string(cells) +
                 " actions of the table: every stage runs every microbatch"};
  for (std::vector<LoweredAction> &row : table.actions) {
    std::set<Action> waited;
    for (const LoweredAction &action : row)
      if (action.phase == Phase::Wait)
        waited.insert(action.action);
    for (LoweredAction &action : row)
      if (action.phase == Phase::Run && waited.count(action.action))
        action.phase = Phase::Start;
    table.stagesOfRank.push_back(stagesIn(
        row, [](const LoweredAction &action) { return action.action; }));
  }
  return table;
}

} // namespace cleave::pipeline
