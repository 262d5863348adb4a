// The training loop, after all inputs have been checked.

#ifndef CLEAVE_TRAINER_LOOP_H
#define CLEAVE_TRAINER_LOOP_H

#include "TraceFile.h"
#include "cleave/trainer/Checkpoint.h"
#include "cleave/trainer/Data.h"
#include "cleave/trainer/Executor.h"
#include "cleave/trainer/Settings.h"
#include "cleave/trainer/Train.h"

#include <functional>
#include <string>

namespace cleave {

struct LoopInputs {
  const Manifest &manifest;
  const Settings &settings;
  const TrainOptions &options;
  const Dataset &data;
  std::string resumed; ///< the checkpoint that it goes on from; or empty
  /// Called before a checkpoint is saved; throws if the run's folder is gone.
  std::function<void()> checkFolder;
};

/// Trains from `state` on, and writes to the folder `out`. First checks that
/// the program can be trained, then calls `fill`, which fills parameters and
/// the optimizer's state. Throws Error.
void runLoop(const LoopInputs &in, StepExecutor &executor, TraceFile *trace,
             const std::string &out, CheckpointState &state,
             const std::function<void()> &fill);

} // namespace cleave

#endif // CLEAVE_TRAINER_LOOP_H
