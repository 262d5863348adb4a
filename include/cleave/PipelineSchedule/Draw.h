// Pictures of a replayed table: text for a terminal, SVG for a browser.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINESCHEDULE_DRAW_H
#define CLEAVE_PIPELINESCHEDULE_DRAW_H

#include "cleave/PipelineSchedule/Replay.h"

#include <string>

namespace cleave::pipeline {

// A line per rank. If all times are multiples of one of them, a column is that
// unit of time and a dot is an idle unit. Otherwise a line lists the actions in
// order.
std::string drawText(const Table &table, const Replay &replay);

// A row per rank, a box per action with its microbatch, coloured by kind and
// shaded by the stage's place on its rank. The file is self-contained.
std::string drawSvg(const Table &table, const Replay &replay);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_DRAW_H
