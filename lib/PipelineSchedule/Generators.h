// What the generators of schedules share; one file per family.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_GENERATORS_H
#define CLEAVE_LIB_PIPELINESCHEDULE_GENERATORS_H

#include "cleave/PipelineSchedule/Table.h"

namespace cleave::pipeline {

// Where the stages lie, with v stages per rank: stage s on rank s % ranks
// (Loop); down the ranks and up again (V); one per rank, and once more in the
// opposite order (Both).
enum class StagePlacement { Loop, V, Both };

// A table without actions.
Table emptyTable(const ScheduleSpec &spec, int chunks,
                 StagePlacement placement);

// Takes out the microbatches that the table does not have. What is left of a
// sound table is sound, as microbatches do not wait for each other.
void dropMicrobatches(Table &table);

// Each fills the actions of such a table. What they assume about ranks, chunks
// and microbatches has been checked.
void fillGPipe(Table &table);
void fill1F1B(Table &table);
void fillInterleaved(Table &table);
void fillLoopedBfs(Table &table);
void fillChimera(Table &table);
void fillZeroBubble1(Table &table);
void fillZeroBubble2(Table &table);
void fillZeroBubbleV(Table &table);
void fillVHalf(Table &table);
void fillDualPipeV(Table &table);

} // namespace cleave::pipeline

#endif // CLEAVE_LIB_PIPELINESCHEDULE_GENERATORS_H
