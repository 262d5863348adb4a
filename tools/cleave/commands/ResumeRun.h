// A run that goes on: what it was made with is what it goes on with.

#ifndef CLEAVE_TOOLS_COMMANDS_RESUMERUN_H
#define CLEAVE_TOOLS_COMMANDS_RESUMERUN_H

#include "Command.h"

#include "cleave/trainer/Resume.h"
#include "cleave/trainer/Train.h"

#include <optional>
#include <string>

namespace cleave::driver {

// --resume, --steps, --data and --weights, resolved against the checkpoint.
class RunPlan {
public:
  // Finds the checkpoint that --resume means, and makes the configuration that
  // it was made with the base of `common`. To be called before the
  // configuration is loaded. Fails with BadUsage.
  RunPlan(const TrainOptions &asked, const std::string &model,
          CommonOptions &common);

  // Refuses a checkpoint of another model: one that has tensors which `model`
  // lacks. Models that differ in another way are told once they are compiled.
  void checkModel(const Config &config, const std::string &model) const;

  // Refuses data that is gone, or is not that of the recorded run. `data`: the
  // path that is trained on.
  void checkData(const LoadedConfig &loaded, const std::string &model,
                 const std::string &data);

  // Refuses what else differs from the recorded run and was not asked for by
  // --set, and a schedule that has ended. Says in `config` which parameters
  // began to train later than the rest.
  void settle(Config &config);

  const std::string &checkpoint() const { return path; } // or empty
  // cleave-run finds the same checkpoint, or begins, and ends well where all is
  // done.
  bool isAuto() const { return asked.resume == "auto"; }
  // train.steps, and the keys that --accept, --set and --bind were given.
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
