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

// Action "run" executes the lowered table; each rank executes its own list.
// Forward passes and input gradients check that their input is the previous
// stage's output of the same microbatch. Buffers: "times" (seconds of every
// stage and kind, in the order F, I, W, B), "ids" (0, 1, ... for all
// microbatches), and "errors".
struct SleepingOptions {
  // If above 0, the number of microbatches in a step. Between steps all ranks
  // all-reduce "norm", so no rank continues before all ranks have arrived.
  int stepOfNorm = 0;
  // Sleeps for "delay", a number of seconds, before every Start and Wait of a
  // transfer.
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
