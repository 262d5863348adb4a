// What the generators of schedules share; one file per family.

#ifndef CLEAVE_LIB_PIPELINE_GENERATORS_H
#define CLEAVE_LIB_PIPELINE_GENERATORS_H

#include "cleave/Pipeline/Table.h"

namespace cleave::pipeline {

// Where the stages lie, with v stages per rank: stage s on rank s % ranks
// (Loop), or down the ranks and up again (V).
enum class StagePlacement { Loop, V };

// A table without actions.
Table emptyTable(const ScheduleSpec &spec, int chunks,
                 StagePlacement placement);

// Each fills the actions of such a table. What they assume about ranks, chunks
// and microbatches has been checked.
void fillGPipe(Table &table);
void fill1F1B(Table &table);

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINE_GENERATORS_H
