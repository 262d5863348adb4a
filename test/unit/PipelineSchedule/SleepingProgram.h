// A table as a program whose stages sleep: what they compute takes a given
// time, what they send is real. So many ranks run honestly on few cores.
#ifndef CLEAVE_UNITTEST_PIPELINE_SLEEPINGPROGRAM_H
#define CLEAVE_UNITTEST_PIPELINE_SLEEPINGPROGRAM_H

#include "cleave/PipelineSchedule/Lower.h"
#include "cleave/program.h"
#include "cleave/runtime.h"

#include <string>
#include <vector>

namespace cleave::test {

// Action "run" walks the lowered table, every rank its own list. Forward passes
// and input gradients check that they are given what the stage before made of
// the same microbatch. Buffers: "times" (seconds of every stage and kind, in
// the order of F, I, W, B), "ids" (0, 1, ... for all microbatches), "errors".
struct SleepingOptions {
  // Above 0: steps have so many microbatches, and between them all ranks add up
  // "norm": nobody goes on before all are there.
  int stepOfNorm = 0;
  // Before every start and every wait of a transfer sleeps for "delay", one
  // number in seconds.
  bool delays = false;
  int64_t messageBytes = 64; // a multiple of 64
};

// Empty and a message if the table cannot be lowered.
program::Program sleepingProgram(const pipeline::LoweredTable &table,
                                 std::string &error,
                                 const SleepingOptions &options = {});

// Kernels of the program.
void addSleepingKernels(cleave_program *program);

// Sleeps so long on average: a thread learns how late it is woken up. Less than
// 0: at random, as long on average.
void sleepFor(double seconds);

} // namespace cleave::test

#endif // CLEAVE_UNITTEST_PIPELINE_SLEEPINGPROGRAM_H
