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

/// A range of consecutive steps with the same batch size, which may change when
/// a run is resumed.
struct Stretch {
  int64_t step;   ///< steps done before the range
  int64_t sample; ///< number of its first sample
  int64_t batch;  ///< samples per step
};

/// The contents of a checkpoint's state.json. `stretches`, `graph` and the
/// fields below it are empty in checkpoints of earlier versions.
struct CheckpointState {
  int64_t step = 0; ///< steps done, including those left out
  /// For checkpoints of earlier versions: the optimizer's number of updates,
  /// which was the same for all parameters.
  int64_t updates = 0;
  int64_t nextSample = 0; ///< number of the first sample of the next step
  std::vector<Stretch> stretches;
  int64_t leftOut = 0; ///< steps that changed nothing
  uint64_t seed = 0;
  uint64_t dataSeed = 0;
  std::string model;
  std::string graph;                        ///< see Manifest::graph
  std::map<std::string, std::string> bound; ///< see Manifest::bound
  std::string optimizer;                    ///< adamw | sgd
  std::string config;                       ///< as resolved, JSON
  std::string dataIdentity;                 ///< see identityOfData
  std::string evalIdentity;                 ///< of data.eval_path; empty: none
  std::string split;                        ///< how samples were held out, JSON
};

/// Returns a name such as "checkpoint-000200".
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

/// Returns the reason why the checkpoint is incomplete or damaged; empty if it
/// is neither.
std::string whatIsTorn(const std::string &path);

/// Fills parameters and optimizer state from a checkpoint, which was read into
/// `state`. Throws InputError.
void loadCheckpoint(const std::string &path, const CheckpointState &state,
                    const Manifest &manifest, StepExecutor &executor);

/// Returns the shapes of a checkpoint's parameters and buffers, by their names
/// in the file.
std::map<std::string, std::vector<int64_t>>
shapesInCheckpoint(const std::string &path);

/// Returns the path of the file with the tensors to which --weights refers.
/// `path` may be that of a checkpoint, of a run's folder (then its newest
/// checkpoint is used), or of the file itself.
std::string weightsFileOf(const std::string &path);

/// Throws InputError if weights do not fit the program's model. `path` is a
/// checkpoint or a .safetensors file. The message names every tensor that is
/// missing, that the model does not have, that has another shape, or that has
/// an integer type where the model has a floating type (or the reverse).
void checkWeights(const std::string &path, const Manifest &manifest);

/// Fills parameters and buffers from a checkpoint or .safetensors file, and the
/// optimizer's state with its initial values.
void loadWeights(const std::string &path, const Manifest &manifest,
                 StepExecutor &executor, uint64_t seed);

/// Fills parameters, buffers and the optimizer's state with their initial
/// values.
void loadInitialValues(const Manifest &manifest, StepExecutor &executor,
                       uint64_t seed);

/// Checks that all weight bytes of the manifest exist, without reading them.
void checkInitialValues(const Manifest &manifest);

/// A checkpoint in a run's folder, ordered by age (older ones compare less).
struct CheckpointEntry {
  /// 2 if the run's file `latest` names this checkpoint first (as the newest),
  /// 1 if it names it second, otherwise 0. This has precedence over the
  /// modification time, which is lost in copies. Step numbers do not give the
  /// age, because a run may continue from an earlier checkpoint.
  int named;
  int64_t time; ///< modification time
  int64_t step;
  std::string path;
  auto operator<=>(const CheckpointEntry &) const = default;
};

/// Returns the checkpoints in the folder `run`, in no particular order.
std::vector<CheckpointEntry> checkpointsOf(const std::string &run);

/// Writes two names into the run's file `latest`: the checkpoint that is
/// written next, and the previous one, which stays valid until the next is
/// complete. Prints a warning if the file cannot be written.
void nameLatest(const std::string &run, const std::string &checkpoint,
                const std::string &before = "");

/// Returns the newest complete checkpoint of `entries`, with a warning for each
/// newer one that is damaged. Empty if none is complete.
std::string newestWhole(std::vector<CheckpointEntry> entries);

/// Returns the newest complete checkpoint in the folder `run`; empty if it has
/// no checkpoints. Throws InputError if it has some, and none is complete.
std::string newestOfRun(const std::string &run);

/// Removes all checkpoints but the newest `keep`. With 0 it removes none.
void removeOldCheckpoints(const std::string &run, int64_t keep);

} // namespace cleave

#endif // CLEAVE_TRAINER_CHECKPOINT_H
