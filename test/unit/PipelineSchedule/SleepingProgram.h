// A table as a program whose stages sleep: computation is simulated by
// sleeping, transfers are real. Many ranks thus run with realistic timing on
// few cores.
#ifndef CLEAVE_UNITTEST_PIPELINE_SLEEPINGPROGRAM_H
#define CLEAVE_UNITTEST_PIPELINE_SLEEPINGPROGRAM_H

#include "cleave/PipelineSchedule/Lower.h"
#include "cleave/program.h"
#include "cleave/runtime.h"

#include <string>
#include <vector>

namespace cleave::test {

// Action "run" executes the lowered table, each rank its own list. Forward
// passes and input gradients check that their input is the previous stage's
// output of the same microbatch. Buffers: "times" (seconds of every stage and
// kind, in the order of F, I, W, B), "ids" (0, 1, ... for all microbatches),
// "errors".
struct SleepingOptions {
  // If above 0: the number of microbatches of a step. Between steps all ranks
  // all-reduce "norm", so no rank goes on before all have arrived.
  int stepOfNorm = 0;
  // Sleeps for "delay", a number of seconds, before every start and wait of a
  // transfer.
  bool delays = false;
  int64_t messageBytes = 64; // a multiple of 64
};

// Returns an empty program and sets `error` if the table cannot be lowered.
program::Program sleepingProgram(const pipeline::LoweredTable &table,
                                 std::string &error,
                                 const SleepingOptions &options = {});

// Kernels of the program.
void addSleepingKernels(cleave_program *program);

// Sleeps for the given time on average, correcting for the thread's usual
// wake-up delay. A negative time: a random time with that average.
void sleepFor(double seconds);

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_PIPELINE_SLEEPINGPROGRAM_H
