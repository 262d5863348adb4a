//===- Resume.h - that a resumed run is the same run ----------------------===//
//
// A checkpoint has the configuration that it was made with. What a resume would
// change of the mathematics has to be asked for, key by key.
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

/// The checkpoint that `resume` (--resume) means: a path, or "latest", the
/// newest whole one below `out` or, where that is empty, below runs/<model>-*,
/// or "auto", that of `out` if there is one. Empty if `resume` is, or "auto"
/// finds none. Throws InputError if "latest" finds none, and for "auto" without
/// `out`.
std::string resolveResume(const std::string &resume, const std::string &out,
                          const std::string &model);

/// The configuration up to the step of a checkpoint, as TOML, and the file that
/// it is from: its state.json; of earlier versions, config-<step>.toml or
/// config.toml of the run's folder. Both are empty where there is none.
struct RecordedConfig {
  std::string toml, file;
};
RecordedConfig recordedConfig(const std::string &checkpoint);

/// A key that has another value now.
struct Difference {
  std::string key, was, is; ///< values as JSON
  bool changesMathematics;  ///< what is computed, not only how and where
};

/// The keys that both configurations (JSON) have, with different values; but
/// for data.path and train.steps, which are looked at by themselves.
std::vector<Difference> differences(const std::string &was,
                                    const std::string &is);

/// What may differ from the checkpoint though it changes what is computed.
struct Accepted {
  /// Keys of the configuration, "data.path" for other data, "model" for a
  /// model that computes something else.
  std::set<std::string> keys;
  /// How a user says so: --set KEY=VALUE, or --accept KEY where the program has
  /// its values already.
  bool isBySet = false;

  bool count(const std::string &key) const { return keys.count(key); }
};

/// Throws InputError where a key is none that a resume may accept. `config`: of
/// the program, JSON.
void checkAccepted(const std::vector<std::string> &keys,
                   const std::string &config);

/// Throws InputError naming every difference that changes the mathematics and
/// that is not accepted.
void refuseChanges(const std::string &checkpoint,
                   const std::vector<Difference> &found,
                   const Accepted &accepted);

/// Throws InputError where the model computes something else than the one that
/// was trained, or an input is bound to an array of other contents, unless
/// "model" is accepted.
void checkSameGraph(const std::string &checkpoint, const CheckpointState &state,
                    const Manifest &manifest, const Accepted &accepted);

/// What checkSameGraph looks at and has accepted.
std::vector<Difference> graphDifferences(const CheckpointState &state,
                                         const Manifest &manifest);

/// Throws InputError where the checkpoint has the state of another optimizer
/// than `wanted` (adamw or sgd), which cannot go on with it.
void checkSameOptimizer(const std::string &checkpoint,
                        const CheckpointState &state,
                        const std::string &wanted);

/// Throws InputError unless `path` is the data that the checkpoint's run was
/// trained on, wherever it is now, or "data.path" is accepted. `model`: the
/// name of the model that goes on, said first where the checkpoint's differs.
void checkSameData(const std::string &checkpoint, const CheckpointState &state,
                   const std::string &path, const Accepted &accepted,
                   const std::string &model);

/// Of a file or folder of data, by which it is known again: sizes, and digests
/// of the contents, or, of large files, of blocks spread over them. JSON.
std::string identityOfData(const std::string &path);
/// Whether data has that identity; earlier versions recorded the ends alone.
bool isSameData(const std::string &identity, const std::string &path);

/// AdamW's count of updates of each tensor that the checkpoint has moments of,
/// and the names of all its parameters and buffers.
struct UpdateCounts {
  std::map<std::string, int64_t> trained;
  std::set<std::string> all;
};
UpdateCounts readUpdateCounts(const std::string &checkpoint);

/// What train.steps and --steps say.
struct Extent {
  int64_t horizon;  ///< where the schedule ends
  int64_t lastStep; ///< where the run does
};

/// `recorded`: of the checkpoint; empty: a run that begins. Throws InputError
/// for a run that goes on where its learning rate has ended.
Extent extentOf(const TrainOptions &options, const Settings &settings,
                std::optional<int64_t> recorded);

} // namespace cleave

#endif // CLEAVE_TRAINER_RESUME_H
