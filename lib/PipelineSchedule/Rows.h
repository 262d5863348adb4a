// The rows and cells of a table's file.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_ROWS_H
#define CLEAVE_LIB_PIPELINESCHEDULE_ROWS_H

#include "cleave/PipelineSchedule/Action.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace cleave::pipeline {

// Calls `cell` for every cell with the row's number from 0. If it returns an
// error, adds the file, row and cell to it. Blank lines at the end are not
// rows, and a byte order mark at the beginning is skipped. Returns the number
// of rows.
Result<int> forEachCell(
    std::string_view text, const std::string &name,
    const std::function<std::optional<Error>(int row, std::string_view)> &cell);

// The stages that a rank computes, ascending. Transfers and gathers of
// parameters do not count.
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
