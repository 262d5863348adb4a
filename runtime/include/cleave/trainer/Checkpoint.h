//===- Checkpoint.h - saving and resuming
//------------------------------------===//
//
// A checkpoint holds whole tensors under the model's names, so any mesh can
// resume from it (docs/manifest.md, "A run's folder").
//
//===----------------------------------------------------------------------===//
#ifndef CLEAVE_TRAINER_CHECKPOINT_H
#define CLEAVE_TRAINER_CHECKPOINT_H

#include "cleave/manifest.h"
#include "cleave/trainer/Executor.h"

#include <cstdint>
#include <string>

namespace cleave {

struct CheckpointState {
  int64_t step = 0;       ///< steps done
  int64_t updates = 0;    ///< made in them, by which the optimizer counts
  int64_t nextSample = 0; ///< number of the first sample of the next step
  uint64_t seed = 0;
  uint64_t dataSeed = 0;
};

/// "checkpoint-000200".
std::string checkpointName(int64_t step);

/// Writes FOLDER/checkpoint-NNNNNN whole or not at all. Returns its path.
std::string saveCheckpoint(const std::string &folder, const Manifest &manifest,
                           StepExecutor &executor,
                           const CheckpointState &state);

/// Reads state.json and checks that the checkpoint is whole and belongs to the
/// program's model. Throws InputError.
CheckpointState readCheckpointState(const std::string &path,
                                    const Manifest &manifest);

/// Fills parameters and optimizer state from a checkpoint.
void loadCheckpoint(const std::string &path, const Manifest &manifest,
                    StepExecutor &executor);

/// Fills them with their initial values instead.
void loadInitialValues(const Manifest &manifest, StepExecutor &executor,
                       uint64_t seed);

/// Checks that every weight byte is there, without filling anything.
void checkInitialValues(const Manifest &manifest);

/// The newest whole checkpoint of `run` (a run's folder); empty if none.
std::string latestCheckpoint(const std::string &run);

} // namespace cleave

#endif // CLEAVE_TRAINER_CHECKPOINT_H
