// Reads the rows and cells of a file with a schedule table.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_ROWS_H
#define CLEAVE_LIB_PIPELINESCHEDULE_ROWS_H

#include "cleave/PipelineSchedule/Action.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace cleave::pipeline {

// Calls `cell` for every cell of the table in `text`, with the number of the
// row (from 0). If `cell` returns an error, adds the file's `name`, the row and
// the cell to the message. Blank lines at the end are not rows, and a byte
// order mark at the beginning is skipped. Returns the number of rows.
Result<int> forEachCell(
    std::string_view text, const std::string &name,
    const std::function<std::optional<Error>(int row, std::string_view)> &cell);

// Returns the stages that a rank computes, ascending. Stages that occur only in
// transfers or gathers of parameters do not count.
template <typename List, typename Get>
std::vector<int> stagesIn(const List &list, Get action) {
  std::vector<int> stages;
  for (const auto &entry : list)
    if (isCompute(action(entry).kind))
      stages.push_back(action(entry).stage);
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  return stages;
}

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINESCHEDULE_ROWS_H
