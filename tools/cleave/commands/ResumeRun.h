// Resumes a run from a checkpoint: finds the checkpoint, and takes the
// configuration that is recorded in it as the base of the new configuration.

#ifndef CLEAVE_TOOLS_COMMANDS_RESUMERUN_H
#define CLEAVE_TOOLS_COMMANDS_RESUMERUN_H

#include "Command.h"

#include "cleave/trainer/Resume.h"
#include "cleave/trainer/Train.h"

#include <optional>
#include <string>

namespace cleave::driver {

// The flags --resume, --steps, --data and --weights, resolved against the
// checkpoint.
class RunPlan {
public:
  // Finds the checkpoint that --resume names, and makes its configuration the
  // base of `common`. Must be called before the configuration is loaded. Fails
  // with BadUsage.
  RunPlan(const TrainOptions &asked, const std::string &model,
          CommonOptions &common);

  // Refuses a checkpoint with tensors that `model` lacks: it belongs to another
  // model. Other differences between models are detected after compilation.
  void checkModel(const Config &config, const std::string &model) const;

  // Refuses data that does not exist, or that differs from the data of the run
  // that is resumed. `data` is the path that is trained on.
  void checkData(const LoadedConfig &loaded, const std::string &model,
                 const std::string &data);

  // Compares `config` with the configuration of the run that is resumed.
  // Refuses a difference that changes the results, unless --set, --bind or
  // --accept names its key, and refuses to resume after the end of the
  // learning-rate schedule. Stores in `config` which parameters began to train
  // later than others.
  void settle(Config &config);

  const std::string &checkpoint() const { return path; } // or empty
  // Whether --resume auto was given. Then cleave-run looks for the checkpoint
  // itself, or starts a new run; if all steps are done, that is a success.
  bool isAuto() const { return asked.resume == "auto"; }
  // The end of the learning-rate schedule (train.steps), and the keys whose
  // change the flags --accept, --set and --bind accept.
  int64_t horizon = 0;
  std::vector<std::string> accepted;

private:
  Accepted acceptedKeys() const;
  void setBegan(Config &config) const;

  const TrainOptions &asked;
  std::string path;
  std::optional<Config> recorded;
  std::string configFile;
  bool filesSteps = false; // it gives train.steps
};

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_COMMANDS_RESUMERUN_H
