// Shared declarations of the schedule generators; there is one file per family.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_GENERATORS_H
#define CLEAVE_LIB_PIPELINESCHEDULE_GENERATORS_H

#include "cleave/PipelineSchedule/Table.h"

namespace cleave::pipeline {

// The placement of stages, with v stages per rank. Loop: stage s is on rank s %
// ranks. V: stages go down the ranks and up again. Both: one stage per rank,
// and a second copy in the opposite order.
enum class StagePlacement { Loop, V, Both };

// A table without actions.
Table emptyTable(const ScheduleSpec &spec, int chunks,
                 StagePlacement placement);

// Drops the microbatches beyond the table's. A valid table stays valid, because
// microbatches do not wait for each other.
void dropMicrobatches(Table &table);

// Each function fills an empty table with actions. Its requirements on ranks,
// chunks and microbatches have been checked.
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
