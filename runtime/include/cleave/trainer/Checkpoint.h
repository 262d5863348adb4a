//===- Checkpoint.h - saving and resuming ---------------------------------===//
//
// A checkpoint holds whole tensors under the model's names, so any mesh can
// resume from it (docs/manifest.md, "A run's folder").
//
//===----------------------------------------------------------------------===//
#ifndef CLEAVE_TRAINER_CHECKPOINT_H
#define CLEAVE_TRAINER_CHECKPOINT_H

#include "cleave/manifest.h"
#include "cleave/trainer/Executor.h"

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cleave {

/// Steps of one batch, in a row: a resume may change it.
struct Stretch {
  int64_t step;   ///< steps done before it
  int64_t sample; ///< number of its first sample
  int64_t batch;  ///< samples of each of its steps
};

struct CheckpointState {
  int64_t step = 0; ///< steps done, those that were left out included
  /// Of the optimizer: read from checkpoints of earlier versions, which have
  /// one count for all parameters.
  int64_t updates = 0;
  int64_t nextSample = 0; ///< number of the first sample of the next step
  std::vector<Stretch> stretches; ///< empty in earlier versions
  int64_t leftOut = 0;            ///< steps that changed nothing
  uint64_t seed = 0;
  uint64_t dataSeed = 0;
  std::string model;
  std::string graph; ///< see Manifest::graph; empty in earlier versions
  std::map<std::string, std::string> bound; ///< see Manifest::bound; likewise
  std::string optimizer;    ///< adamw | sgd; empty in earlier versions
  std::string config;       ///< as resolved, JSON; empty in earlier versions
  std::string dataIdentity; ///< see identityOfData; likewise
  std::string evalIdentity; ///< of data.eval_path; empty: none, or likewise
  std::string split;        ///< how samples were held out, JSON; likewise
};

/// "checkpoint-000200".
std::string checkpointName(int64_t step);

/// Writes FOLDER/checkpoint-NNNNNN whole or not at all. Returns its path.
std::string saveCheckpoint(const std::string &folder, const Manifest &manifest,
                           StepExecutor &executor,
                           const CheckpointState &state);

/// Reads state.json and checks that the checkpoint is whole, its digests only
/// if asked to. Throws InputError.
CheckpointState readCheckpointState(const std::string &path,
                                    bool checksDigests = true);

/// And that it belongs to the program's model.
CheckpointState readCheckpointState(const std::string &path,
                                    const Manifest &manifest);

/// Why the checkpoint cannot be read; empty: it is whole.
std::string whatIsTorn(const std::string &path);

/// Fills parameters and optimizer state from a checkpoint, which was read into
/// `state`. Throws InputError.
void loadCheckpoint(const std::string &path, const CheckpointState &state,
                    const Manifest &manifest, StepExecutor &executor);

/// The shapes of its parameters and buffers, by the names in the file.
std::map<std::string, std::vector<int64_t>>
shapesInCheckpoint(const std::string &path);

/// The file of tensors that --weights means: that of a whole checkpoint, of the
/// newest one of a run's folder, or the file itself.
std::string weightsFileOf(const std::string &path);

/// Refuses weights that do not fit the program's model: `path` is a checkpoint
/// or a .safetensors file. The InputError names every tensor that is missing,
/// that the model does not have, or that has another shape or kind of type.
void checkWeights(const std::string &path, const Manifest &manifest);

/// Fills parameters and buffers from them, and the optimizer's state with what
/// a run begins with.
void loadWeights(const std::string &path, const Manifest &manifest,
                 StepExecutor &executor, uint64_t seed);

/// Fills them with their initial values instead.
void loadInitialValues(const Manifest &manifest, StepExecutor &executor,
                       uint64_t seed);

/// Checks that every weight byte is there, without filling anything.
void checkInitialValues(const Manifest &manifest);

/// A checkpoint in a run's folder; the older ones are less.
struct CheckpointEntry {
  /// How new the run says that it is, which compares those of one run; 0: it
  /// does not. Times do not outlast a copy, nor do steps tell, as a run may
  /// have gone on from an earlier one.
  int named;
  int64_t time; ///< when it was written, in some unit
  int64_t step;
  std::string path;
  auto operator<=>(const CheckpointEntry &) const = default;
};

/// Those of `run`, in no order.
std::vector<CheckpointEntry> checkpointsOf(const std::string &run);

/// Writes into the run's file `latest` the name of the checkpoint that is
/// written next, and that of the one before, which counts until then. Warns
/// where that cannot be.
void nameLatest(const std::string &run, const std::string &checkpoint,
                const std::string &before = "");

/// The newest of them that is whole, with a warning for each newer one; empty
/// if none is.
std::string newestWhole(std::vector<CheckpointEntry> entries);

/// The newest checkpoint of `run`; empty if none.
std::string latestCheckpoint(const std::string &run);

/// Removes all but the newest `keep`; 0: none.
void removeOldCheckpoints(const std::string &run, int64_t keep);

} // namespace cleave

#endif // CLEAVE_TRAINER_CHECKPOINT_H
