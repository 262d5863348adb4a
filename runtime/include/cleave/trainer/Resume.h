//===- Resume.h - checks that a resumed run is the same run ---------------===//
//
// A checkpoint records the configuration of its run. If the resumed run has
// another value for a key that changes what is computed, such as the learning
// rate, the user must accept the change of this key.
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

/// Returns the checkpoint to which `resume` (--resume) refers:
/// - a path: the checkpoint with this path or, if this is the folder of a run,
///   the newest complete checkpoint of the run;
/// - "latest": the newest complete checkpoint below `out`, or below
///   runs/<model>-* if `out` is empty; InputError if there is none;
/// - "auto": the newest checkpoint of `out`, or an empty string if there is
///   none; InputError if `out` is empty;
/// - empty: an empty string.
std::string resolveResume(const std::string &resume, const std::string &out,
                          const std::string &model);

/// The configuration of a checkpoint as TOML, and the file from which it was
/// read: state.json of the checkpoint, or in earlier versions
/// config-<step>.toml or config.toml of the run's folder. Both strings are
/// empty if there is none.
struct RecordedConfig {
  std::string toml, file;
};
RecordedConfig recordedConfig(const std::string &checkpoint);

/// A configuration key whose value differs from the checkpoint's.
struct Difference {
  std::string key, was, is; ///< values as JSON
  bool changesMathematics;  ///< it changes what is computed
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
  /// Which flag error messages recommend for accepting a change: --set
  /// KEY=VALUE if true; --accept KEY if false, because the new values are
  /// already compiled into the program.
  bool isBySet = false;

  bool count(const std::string &key) const { return keys.count(key); }
};

/// Checks the keys that the user gave with --accept. Throws InputError if one
/// of them is neither "model" nor a key of the configuration. `config` is the
/// program's configuration as JSON.
void checkAccepted(const std::vector<std::string> &keys,
                   const std::string &config);

/// Throws InputError if some difference changes the mathematics and is not
/// accepted. The message names all such differences.
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

/// Throws InputError if the contents of `path` differ from the data on which
/// the checkpoint's run was trained, unless the user has accepted other data
/// (`accepted` contains "data.path"). The path itself may have changed. `model`
/// is the name of the resumed model. If the checkpoint records another model
/// name, the message begins with this difference.
void checkSameData(const std::string &checkpoint, const CheckpointState &state,
                   const std::string &path, const Accepted &accepted,
                   const std::string &model);

/// Returns a fingerprint (JSON) of a file or folder of data: its sizes, and
/// digests of the contents or, for large files, of sampled blocks.
std::string identityOfData(const std::string &path);
/// Returns whether the data at `path` has the fingerprint `identity`.
/// Fingerprints of earlier versions have only the first and last bytes.
bool isSameData(const std::string &identity, const std::string &path);

/// What a checkpoint says about AdamW: the number of updates of each tensor
/// that has moments, and the names of all parameters and buffers.
struct UpdateCounts {
  std::map<std::string, int64_t> trained;
  std::set<std::string> all;
};
UpdateCounts readUpdateCounts(const std::string &checkpoint);

/// The lengths of a run and of its learning-rate schedule, which --steps and
/// train.steps determine.
struct Extent {
  int64_t horizon;  ///< the step at which the schedule ends
  int64_t lastStep; ///< the step at which the run ends
};

/// Determines the lengths of a run (Extent). `recorded` is the value of
/// train.steps that the checkpoint recorded; it is empty for a new run. Throws
/// InputError if the run would continue after the end of its learning-rate
/// schedule.
Extent extentOf(const TrainOptions &options, const Settings &settings,
                std::optional<int64_t> recorded);

} // namespace cleave

#endif // CLEAVE_TRAINER_RESUME_H
