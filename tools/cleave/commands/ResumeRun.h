// The plan of a resumed run: it continues with the configuration that it was
// started with.

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

  // Refuses a checkpoint of another model, that is, one with tensors that
  // `model` lacks. Other differences between models are detected after
  // compilation.
  void checkModel(const Config &config, const std::string &model) const;

  // Refuses data that does not exist, or that differs from the recorded run's.
  // `data` is the path that is trained on.
  void checkData(const LoadedConfig &loaded, const std::string &model,
                 const std::string &data);

  // Refuses other differences from the recorded run that --set did not ask for,
  // and a learning-rate schedule that has ended. Records in `config` which
  // parameters began to train later than others.
  void settle(Config &config);

  const std::string &checkpoint() const { return path; } // or empty
  // With "auto" cleave-run finds the same checkpoint, or starts a new run; it
  // succeeds if all steps are done.
  bool isAuto() const { return asked.resume == "auto"; }
  // train.steps, and the keys that --accept, --set and --bind name.
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
