// A schedule: for every rank of a pipeline the list of what it computes, in
// order; the generators that write such tables, and the files that hold them.
// docs/pipeline.md describes the schedules.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINESCHEDULE_TABLE_H
#define CLEAVE_PIPELINESCHEDULE_TABLE_H

#include "cleave/PipelineSchedule/Action.h"

#include <string>
#include <string_view>
#include <vector>

namespace cleave::pipeline {

struct Table {
  std::string schedule;
  int ranks = 0, stages = 0, microbatches = 0;
  // Every backward pass is followed by an update of its stage, and later
  // forward passes read the new weights: not the mathematics of one step.
  bool asynchronous = false;
  // Ascending. A stage lies on one rank, but on two under Chimera, which then
  // divide the microbatches.
  std::vector<std::vector<int>> stagesOfRank;
  std::vector<std::vector<Action>> actions; // by rank; no transfers

  // The ranks that hold a stage, ascending.
  std::vector<int> ranksOfStage(int stage) const;
  // Stages of the rank that holds most.
  int chunks() const;
};

// Which rank computes what, looked up once: rank[stage][microbatch], -1 where
// the table has no F of it.
struct Placement {
  explicit Placement(const Table &table);
  std::vector<std::vector<int>> rank;
};

struct ScheduleSpec {
  std::string name = "1f1b";
  int ranks = 1;
  int chunks = 0; // stages per rank; 0: what the schedule needs
  int microbatches = 1;
};

// The schedules that `generate` knows, in the order of the documentation; and
// "custom", which comes from a file.
std::vector<std::string> scheduleNames();

// Stages per rank: `chunks`, or where it is 0 what the schedule needs. Refuses
// a number that the schedule cannot have.
Result<int> chunksOf(const std::string &schedule, int chunks);

// Refuses what a schedule cannot do; the message names schedule, rule and
// numbers.
Result<Table> generate(const ScheduleSpec &spec);

// Collectives of data parallelism as actions of a table.
struct ShardActions {
  bool reduce = true;               // REDUCE_GRAD after the last W of a stage
  bool reducePerMicrobatch = false; // after every W instead
  // UNSHARD before parameters are read, RESHARD when others need their place
  // and after the last reader. Every pass reads them, W where it says so.
  bool unshard = false;
  int gathered = 0; // stages of a rank gathered at once; 0: all that it holds
  // What a stage has of that, and whether W reads what was gathered, too.
  // Empty: all stages have what is asked for above, and W reads parameters, as
  // the first stage's whole backward pass is in its W.
  struct Stage {
    bool reduce = true, unshard = true, weightsRead = true;
  };
  std::vector<Stage> stages;
};

// The reductions of a stage that lies on two ranks stand at the end of both, in
// the order of stages, as the ranks reduce them together.
Result<Table> withShardActions(const Table &table, const ShardActions &options);

// The table `steps` times, one after the other without a barrier; microbatches
// of later steps are numbered on.
Table repeated(const Table &table, int steps);

// Versions of its weights that a rank keeps: 1 unless the table is
// asynchronous.
std::vector<int> weightVersions(const Table &table);

// One row per rank, cells separated by commas; empty cells are skipped.
// Refuses unknown actions and transfers (by row and cell), a stage on no rank,
// and a microbatch that a stage misses or has twice.
Result<Table> readTable(const std::string &path);
Result<Table> readTableText(std::string_view text, const std::string &name);
std::string writeTable(const Table &table);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_TABLE_H
