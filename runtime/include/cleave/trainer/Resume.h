//===- Resume.h - checks that a resumed run is the same run ---------------===//
//
// A checkpoint records the configuration that it was made with. If the resumed
// run has another value for a key that changes what is computed, such as the
// learning rate, the user must accept the change of this key.
//
//===----------------------------------------------------------------------===//
#ifndef CLEAVE_TRAINER_RESUME_H
#define CLEAVE_TRAINER_RESUME_H

#include "cleave/manifest.h"
#include "cleave/trainer/Checkpoint.h"
#include "cleave/trainer/Settings.h"
#include "cleave/trainer/Train.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cleave {

/// Returns the checkpoint that `resume` (--resume) names:
/// - a path: this checkpoint;
/// - "latest": the newest complete checkpoint below `out`, or below
///   runs/<model>-* if `out` is empty; InputError if there is none;
/// - "auto": the newest checkpoint of `out`, or an empty string if there is
///   none; InputError if `out` is empty;
/// - empty: an empty string.
std::string resolveResume(const std::string &resume, const std::string &out,
                          const std::string &model);

/// The configuration of a checkpoint as TOML, and the file that it was read
/// from: state.json of the checkpoint, or config-<step>.toml or config.toml of
/// the run's folder in earlier versions. Both strings are empty if there is
/// none.
struct RecordedConfig {
  std::string toml, file;
};
RecordedConfig recordedConfig(const std::string &checkpoint);

/// A key that has another value now.
struct Difference {
  std::string key, was, is; ///< values as JSON
  bool changesMathematics;  ///< what is computed, not only how and where
};

/// Compares two configurations (JSON) and returns the keys whose values differ.
/// data.path and train.steps are left out; other functions compare them.
std::vector<Difference> differences(const std::string &was,
                                    const std::string &is);

/// The changed keys that the user accepts for this resume, although they change
/// what the run computes.
struct Accepted {
  /// The keys whose change is accepted. Besides keys of the configuration,
  /// "data.path" stands for other data and "model" for a model with another
  /// graph.
  std::set<std::string> keys;
  /// Which flag error messages recommend to the user who wants to accept a
  /// change. True: --set KEY=VALUE. False: --accept KEY, because the new values
  /// are already compiled into the program.
  bool isBySet = false;

  bool count(const std::string &key) const { return keys.count(key); }
};

/// Checks the keys that the user gave with --accept. Throws InputError if one
/// of them is neither "model" nor a key of the configuration. `config` is the
/// program's configuration as JSON.
void checkAccepted(const std::vector<std::string> &keys,
                   const std::string &config);

/// Throws InputError that names every difference which changes the mathematics
/// and is not accepted.
void refuseChanges(const std::string &checkpoint,
                   const std::vector<Difference> &found,
                   const Accepted &accepted);

/// Throws InputError if the model's graph differs from the one that was
/// trained, or if an input is bound to an array with other contents, unless the
/// user has accepted another model (`accepted` contains "model").
void checkSameGraph(const std::string &checkpoint, const CheckpointState &state,
                    const Manifest &manifest, const Accepted &accepted);

/// Returns the differences that checkSameGraph() looks for, to report those
/// that were accepted.
std::vector<Difference> graphDifferences(const CheckpointState &state,
                                         const Manifest &manifest);

/// Throws InputError if the checkpoint has the state of an optimizer other than
/// `wanted` (adamw or sgd).
void checkSameOptimizer(const std::string &checkpoint,
                        const CheckpointState &state,
                        const std::string &wanted);

/// Throws InputError if the contents of `path` differ from the data that the
/// checkpoint's run was trained on, unless the user has accepted other data
/// (`accepted` contains "data.path"). The path may be another one than before.
/// `model` is the name of the resumed model. If the checkpoint records another
/// model name, the message begins by saying so.
void checkSameData(const std::string &checkpoint, const CheckpointState &state,
                   const std::string &path, const Accepted &accepted,
                   const std::string &model);

/// A fingerprint (JSON) of a file or folder of data: its sizes, and digests of
/// the contents, or of sampled blocks for large files.
std::string identityOfData(const std::string &path);
/// Returns whether the data at `path` has this fingerprint. Earlier versions
/// recorded only the first and last bytes.
bool isSameData(const std::string &identity, const std::string &path);

/// What a checkpoint says of AdamW: how often each tensor that has moments was
/// updated, and the names of all parameters and buffers.
struct UpdateCounts {
  std::map<std::string, int64_t> trained;
  std::set<std::string> all;
};
UpdateCounts readUpdateCounts(const std::string &checkpoint);

/// How long a run and its learning-rate schedule last, as train.steps and
/// --steps say.
struct Extent {
  int64_t horizon;  ///< the step at which the schedule ends
  int64_t lastStep; ///< the step at which the run ends
};

/// Returns the step at which the learning-rate schedule ends and the last step
/// of the run. `recorded` is train.steps as the checkpoint recorded it, and is
/// empty for a new run. Throws InputError if the run would go on after its
/// learning-rate schedule has ended.
Extent extentOf(const TrainOptions &options, const Settings &settings,
                std::optional<int64_t> recorded);

} // namespace cleave

#endif // CLEAVE_TRAINER_RESUME_H
