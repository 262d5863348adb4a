// A pipeline schedule is stored as a table: for every rank, it has the ordered
// list of the rank's actions, such as the forward pass of a stage for one
// microbatch. This file declares the table, its generators, and the functions
// that read and write it as a CSV file. docs/pipeline.md describes the
// schedules.
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
  // True if every backward pass is followed by an update of its stage. Later
  // forward passes read the new weights, so the result differs from that of
  // synchronous training.
  bool asynchronous = false;
  // The stages of each rank, ascending. A stage is on one rank; under Chimera
  // it is on two ranks, which divide the microbatches between them.
  std::vector<std::vector<int>> stagesOfRank;
  std::vector<std::vector<Action>> actions; // by rank; without transfers

  // Returns the ranks that hold a stage, ascending.
  std::vector<int> ranksOfStage(int stage) const;
  // Returns the maximum number of stages that a rank has.
  int chunks() const;
};

// `rank[stage][microbatch]` is the rank that runs the stage for the microbatch,
// or -1 if the schedule has no forward pass (F) of this stage and microbatch.
struct Placement {
  explicit Placement(const Table &table);
  std::vector<std::vector<int>> rank;
};

struct ScheduleSpec {
  std::string name = "1f1b";
  int ranks = 1;
  int chunks = 0; // stages per rank; 0: the number that the schedule needs
  int microbatches = 1;
};

// Returns the names of the schedules that `generate` supports, in the order of
// docs/pipeline.md, and "custom", which stands for a schedule from a file.
std::vector<std::string> scheduleNames();

// Returns the number of stages per rank, which is `chunks` or, if `chunks` is
// 0, the number that the schedule requires. Fails if the schedule does not
// support this number.
Result<int> chunksOf(const std::string &schedule, int chunks);

// Generates a schedule. Fails if the schedule does not support the numbers of
// ranks, stages and microbatches in `spec`; the message states the schedule,
// the rule and the numbers.
Result<Table> generate(const ScheduleSpec &spec);

// Selects the collectives of data parallelism that `withShardActions` adds to a
// pipeline schedule. They are actions of their own: UNSHARD all-gathers the
// parameters of a stage (ZeRO 3), RESHARD frees the gathered parameters, and
// REDUCE_GRAD reduces the gradients of a stage.
struct ShardActions {
  bool reduce = true;               // REDUCE_GRAD after the last W of a stage
  bool reducePerMicrobatch = false; // REDUCE_GRAD after every W instead
  // Inserts UNSHARD before the parameters of a stage are read, and RESHARD
  // after their last reader or when another stage needs the memory. F, I and B
  // read parameters; W reads them if Stage::weightsRead is true.
  bool unshard = false;
  // How many stages of a rank may have gathered parameters at the same time; 0:
  // all stages.
  int gathered = 0;
  // For each stage: whether it has gradients for REDUCE_GRAD, whether it has
  // parameters for UNSHARD and RESHARD, and whether its W (gradients of
  // weights) reads the gathered parameters. If `stages` is empty, all of this
  // is assumed to be true for every stage. (The W of the first stage does read
  // the parameters, because W is the whole backward pass of this stage.)
  struct Stage {
    bool reduce = true, unshard = true, weightsRead = true;
  };
  std::vector<Stage> stages;
};

// Returns the schedule with the collectives that `options` selects. If a stage
// is on two ranks, both ranks take part in the reductions of its gradients. So
// the action lists of both ranks end with these reductions, in the order of
// stages.
Result<Table> withShardActions(const Table &table, const ShardActions &options);

// Repeats the schedule `steps` times without barriers between the steps.
// Microbatches are numbered consecutively over all steps.
Table repeated(const Table &table, int steps);

// Returns the number of weight versions that each rank stores, which is 1
// unless the schedule is asynchronous.
std::vector<int> weightVersions(const Table &table);

// Reads a schedule from a CSV file: each line has the actions of one rank,
// separated by commas; empty cells are skipped. It is an error if a cell has a
// transfer or an unknown action (the message names the row and the cell), if a
// stage is on no rank, or if a stage has a microbatch twice or not at all.
// `name` is the name of the file in error messages.
Result<Table> readTable(const std::string &path);
Result<Table> readTableText(std::string_view text, const std::string &name);
std::string writeTable(const Table &table);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_TABLE_H
