// A small program of two pipeline stages, as a compiler would emit it from a
// pipeline schedule. The stages pass values through memory slots, one for each
// microbatch in flight, and the forward and backward passes only copy values.

#ifndef CLEAVE_TEST_UNIT_PIPELINE_STEPPROGRAM_H
#define CLEAVE_TEST_UNIT_PIPELINE_STEPPROGRAM_H

#include "cleave/PipelineSchedule/VerifyProgram.h"

#include <string>
#include <vector>

namespace cleave::pipeline::test {

class StepProgram {
public:
  explicit StepProgram(const std::string &schedule = "gpipe",
                       int microbatches = 3);

  program::Program p;
  StepOrigin origin;

  std::vector<program::Command> &list(int rank);
  // Returns the index of the `nth` command with this label in the rank's list.
  size_t find(int rank, const std::string &label, int nth = 0);
  // Runs verify(), which checks the transfers and collectives of all ranks, and
  // verifyStep(), which checks their commands against the pipeline schedule.
  // Returns the errors that they find, one per line.
  std::string verdict() const;

private:
  // The slots of one kind of value, by microbatch.
  struct Values {
    int32_t arena = 0;
    std::vector<int> slotOf;
  };

  int32_t addArena(const std::string &name, program::Lifespan lifespan,
                   int64_t bytes, int rank);
  void addAction(const std::string &name, int rank, int32_t from, int32_t to);
  void add(int rank, decltype(program::Command::op) op,
           const std::string &label);
  void addEntry(int rank, const LoweredAction &entry);
  program::BufferRef at(const Values &values, int microbatch) const;

  // For each stage, the slots of values that it receives from the other stage
  // and sends to the other stage.
  Values incoming[2], outgoing[2];
  uint32_t actions[2][2]; // by stage: F, B
  std::vector<uint32_t> steps;
  std::vector<std::pair<Action, int32_t>> tokens;
};

} // namespace cleave::pipeline::test

#endif // CLEAVE_TEST_UNIT_PIPELINE_STEPPROGRAM_H
