// Draws the simulated execution of a pipeline schedule on a time line, as text
// for a terminal or as SVG for a browser.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINESCHEDULE_DRAW_H
#define CLEAVE_PIPELINESCHEDULE_DRAW_H

#include "cleave/PipelineSchedule/Replay.h"

#include <string>

namespace cleave::pipeline {

// Draws a line per rank. If all actions start and end at multiples of the
// duration of the shortest action, each column stands for this duration, and a
// dot means that the rank is idle. Otherwise, each line lists the rank's
// actions in order.
std::string drawText(const Table &table, const Replay &replay);

// Draws a row per rank and a rectangle per action. A rectangle is labelled with
// the microbatch; its colour depends on the kind of action, and its shade on
// whether the stage is the first of the rank's stages. Returns the contents of
// a self-contained SVG file.
std::string drawSvg(const Table &table, const Replay &replay);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_DRAW_H
