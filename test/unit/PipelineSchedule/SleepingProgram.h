// Makes a program from a schedule table. Its stages simulate computation by
// sleeping, but its transfers are real, so that many ranks run with realistic
// timing on few cores.
#ifndef CLEAVE_UNITTEST_PIPELINE_SLEEPINGPROGRAM_H
#define CLEAVE_UNITTEST_PIPELINE_SLEEPINGPROGRAM_H

#include "cleave/PipelineSchedule/Lower.h"
#include "cleave/program.h"
#include "cleave/runtime.h"

#include <string>
#include <vector>

namespace cleave::test {

// The action "run" executes the table: each rank executes its own list of
// actions. Forward passes and input gradients check that their input is the
// previous stage's output of the same microbatch. The program has the buffers
// "times" (seconds of every stage and kind, in the order F, I, W, B), "ids" (0,
// 1, ... for all microbatches), and "errors".
struct SleepingOptions {
  // If above 0, the number of microbatches in a step. Then all ranks all-reduce
  // one number between steps, like the gradient norm of a training step, so
  // that no rank begins the next step before all ranks have arrived. If 0,
  // there is no such all-reduce.
  int stepOfNorm = 0;
  // Whether each rank sleeps before every Start and Wait of a transfer. The
  // buffer "delay" has the number of seconds.
  bool delays = false;
  int64_t messageBytes = 64; // a multiple of 64
};

// Returns an empty program and sets `error` if the table cannot be lowered.
program::Program sleepingProgram(const pipeline::LoweredTable &table,
                                 std::string &error,
                                 const SleepingOptions &options = {});

// Adds the kernels of a sleeping program.
void addSleepingKernels(cleave_program *program);

// Sleeps for the given time on average, and corrects for the usual wake-up
// delay of the thread. A negative time requests a random time with that
// average.
void sleepFor(double seconds);

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_PIPELINE_SLEEPINGPROGRAM_H
