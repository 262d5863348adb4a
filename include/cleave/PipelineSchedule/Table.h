// A schedule: for every rank of a pipeline the ordered list of its actions; the
// generators of such tables, and the files that hold them. docs/pipeline.md
// describes the schedules.
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
  // forward passes read the new weights, so the result differs from that of
  // synchronous steps.
  bool asynchronous = false;
  // Ascending. A stage is on one rank; under Chimera it is on two, which divide
  // the microbatches.
  std::vector<std::vector<int>> stagesOfRank;
  std::vector<std::vector<Action>> actions; // by rank; no transfers

  // The ranks that hold a stage, ascending.
  std::vector<int> ranksOfStage(int stage) const;
  // Stages of the rank that holds most.
  int chunks() const;
};

// Which rank computes each pass, as a lookup table: rank[stage][microbatch], -1
// where the table has no F of it.
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

// Generates the table of a schedule. Refuses numbers that the schedule cannot
// have; the message names schedule, rule and numbers.
Result<Table> generate(const ScheduleSpec &spec);

// Collectives of data parallelism as actions of a table.
struct ShardActions {
  bool reduce = true;               // REDUCE_GRAD after the last W of a stage
  bool reducePerMicrobatch = false; // after every W instead
  // UNSHARD before parameters are read, RESHARD when other stages need the
  // memory and after the last reader. F, I and B read parameters; W does if
  // `weightsRead`.
  bool unshard = false;
  int gathered = 0; // stages of a rank gathered at once; 0: all that it holds
  // Which of these actions a stage has, and whether its W also reads gathered
  // parameters. Empty: all stages have the actions requested above, and W reads
  // parameters, as the first stage's whole backward pass is in its W.
  struct Stage {
    bool reduce = true, unshard = true, weightsRead = true;
  };
  std::vector<Stage> stages;
};

// The reductions of a stage on two ranks are at the end of both lists, in the
// order of stages, as both ranks take part in them.
Result<Table> withShardActions(const Table &table, const ShardActions &options);

// The table `steps` times, one after the other without a barrier; later steps
// continue the numbering of microbatches.
Table repeated(const Table &table, int steps);

// The number of weight versions that each rank stores: 1 unless the table is
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
