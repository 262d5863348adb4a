// Draws the simulated execution of a pipeline schedule on a time line, as text
// for a terminal or as SVG for a browser.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINESCHEDULE_DRAW_H
#define CLEAVE_PIPELINESCHEDULE_DRAW_H

#include "cleave/PipelineSchedule/Replay.h"

#include <string>

namespace cleave::pipeline {

// Draws a line per rank. If the times of all actions are multiples of the
// shortest one, that shortest time is the unit: each column is one unit of
// time, and a dot is a unit in which the rank is idle. Otherwise, each line
// lists the rank's actions in order.
std::string drawText(const Table &table, const Replay &replay);

// Draws a row per rank and a rectangle per action. A rectangle shows the
// microbatch; its colour depends on the kind of action, and its shade on the
// position of the stage among the rank's stages. The SVG file is
// self-contained.
std::string drawSvg(const Table &table, const Replay &replay);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_DRAW_H
