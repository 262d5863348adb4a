// Shared declarations of the schedule generators. There is one source file for
// each group of similar schedules.

#ifndef CLEAVE_LIB_PIPELINESCHEDULE_GENERATORS_H
#define CLEAVE_LIB_PIPELINESCHEDULE_GENERATORS_H

#include "cleave/PipelineSchedule/Table.h"

namespace cleave::pipeline {

// The placement of stages on ranks. With Loop, stage s is on rank s % ranks.
// With V, stages are on ascending ranks and then on descending ranks. With
// Both, each rank has one stage, and a second copy of the stages is in the
// opposite order.
enum class StagePlacement { Loop, V, Both };

// A table without actions.
Table emptyTable(const ScheduleSpec &spec, int chunks,
                 StagePlacement placement);

// Drops the microbatches with numbers beyond `table.microbatches`. A valid
// table stays valid, because microbatches do not wait for each other.
void dropMicrobatches(Table &table);

// Each function fills an empty table with actions. The caller has checked the
// schedule's requirements on ranks, chunks and microbatches.
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
