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

/// A stretch of consecutive steps with one batch size. A resume may change the
/// batch size.
struct Stretch {
  int64_t step;   ///< steps done before it
  int64_t sample; ///< number of its first sample
  int64_t batch;  ///< samples of each of its steps
};

struct CheckpointState {
  int64_t step = 0; ///< steps done, those that were left out included
  /// For checkpoints of earlier versions: the optimizer's number of updates,
  /// which was the same for all parameters.
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

/// Writes FOLDER/checkpoint-NNNNNN completely or not at all. Returns its path.
std::string saveCheckpoint(const std::string &folder, const Manifest &manifest,
                           StepExecutor &executor,
                           const CheckpointState &state);

/// Reads state.json and checks that the checkpoint is complete; digests are
/// verified only on request. Throws InputError.
CheckpointState readCheckpointState(const std::string &path,
                                    bool checksDigests = true);

/// Reads and checks state.json like the function above, and checks that the
/// checkpoint belongs to the program's model.
CheckpointState readCheckpointState(const std::string &path,
                                    const Manifest &manifest);

/// Returns the reason why the checkpoint is incomplete or damaged, or an empty
/// string.
std::string whatIsTorn(const std::string &path);

/// Fills parameters and optimizer state from a checkpoint, which was read into
/// `state`. Throws InputError.
void loadCheckpoint(const std::string &path, const CheckpointState &state,
                    const Manifest &manifest, StepExecutor &executor);

/// The shapes of a checkpoint's parameters and buffers, by their names in the
/// file.
std::map<std::string, std::vector<int64_t>>
shapesInCheckpoint(const std::string &path);

/// Returns the file with the tensors that --weights names. The path may be that
/// of a checkpoint, of a run's folder (then its newest checkpoint is used), or
/// of the file itself.
std::string weightsFileOf(const std::string &path);

/// Refuses weights that do not fit the program's model: `path` is a checkpoint
/// or a .safetensors file. The InputError names every tensor that is missing,
/// that the model does not have, or that has another shape or kind of type.
void checkWeights(const std::string &path, const Manifest &manifest);

/// Fills parameters and buffers from a checkpoint or .safetensors file, and the
/// optimizer's state with its initial values.
void loadWeights(const std::string &path, const Manifest &manifest,
                 StepExecutor &executor, uint64_t seed);

/// Fills them with their initial values instead.
void loadInitialValues(const Manifest &manifest, StepExecutor &executor,
                       uint64_t seed);

/// Checks that all weight bytes of the manifest exist, without reading them.
void checkInitialValues(const Manifest &manifest);

/// A checkpoint in a run's folder, ordered by age (older ones compare less).
struct CheckpointEntry {
  /// The age order that the run's file `latest` gives (a larger number is
  /// newer), or 0 if the file does not name the checkpoint. Modification times
  /// would be lost in copies. Step numbers would not do either, as a run may
  /// continue from an earlier checkpoint.
  int named;
  int64_t time; ///< when it was written, in some unit
  int64_t step;
  std::string path;
  auto operator<=>(const CheckpointEntry &) const = default;
};

/// Those of `run`, in no order.
std::vector<CheckpointEntry> checkpointsOf(const std::string &run);

/// Writes two names into the run's file `latest`: the checkpoint that is
/// written next, and the previous one, which stays valid until the next is
/// complete. Prints a warning if the file cannot be written.
void nameLatest(const std::string &run, const std::string &checkpoint,
                const std::string &before = "");

/// Returns the newest complete checkpoint of `entries`, with a warning for each
/// newer one that is damaged. Empty if none is complete.
std::string newestWhole(std::vector<CheckpointEntry> entries);

/// Returns the newest complete checkpoint in the folder `run`; empty if there
/// is none.
std::string latestCheckpoint(const std::string &run);

/// Removes all but the newest `keep`; 0: none.
void removeOldCheckpoints(const std::string &run, int64_t keep);

} // namespace cleave

#endif // CLEAVE_TRAINER_CHECKPOINT_H
