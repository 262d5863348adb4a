//===- Settings.h - the keys of the configuration that the loop obeys -----===//
#ifndef CLEAVE_TRAINER_SETTINGS_H
#define CLEAVE_TRAINER_SETTINGS_H

#include "cleave/manifest.h"

#include <cstdint>
#include <string>

namespace cleave {

/// The sections [data], [train] and [target] of the resolved configuration. The
/// defaults are those that docs/configuration.md documents.
struct Settings {
  std::string dataPath;
  std::string dataDtype = "uint16"; ///< element type of a .bin file
  int64_t ignoreIndex = -100;
  uint64_t dataSeed = 0;
  double validation = 0.1;
  std::string shuffleSplit = "auto"; ///< auto | true | false
  std::string evalPath;              ///< separate validation data, or empty

  double lr = 3e-4;
  double minLr = 0;
  std::string schedule = "cosine"; ///< constant | linear | cosine
  int64_t warmupSteps = 0;
  int64_t steps = 100;                ///< end of the schedule
  int64_t lastStep = 100;             ///< end of the run
  std::string loss = "cross_entropy"; ///< or mse, output:NAME
  std::string optimizer = "adamw";    ///< or sgd
  double saveMinutes = 10;    ///< between checkpoints, at most; 0: no limit
  int64_t keep = 3;           ///< checkpoints of a run; 0: all
  bool skipNonFinite = false; ///< train.on_nan = "skip"
  uint64_t seed = 0;

  std::string transport = "auto"; ///< auto | local | mpi | nccl
  std::string device = "cpu";     ///< target.kind: cpu | cuda
};

/// Reads the settings from the manifest's configuration. Throws InputError that
/// names the key if a value has the wrong type.
Settings settingsOf(const Manifest &manifest);

/// Returns the learning rate of step `step`, counted from 1: a linear warm-up
/// over `warmupSteps` steps, then a decay by `schedule` to `minLr` at step
/// `steps`.
double learningRate(const Settings &settings, int64_t step);

/// Returns the configuration as JSON, with the values of data.path and
/// train.steps that the command line has set.
std::string configJson(const Manifest &manifest, const Settings &settings);

/// Converts a configuration from JSON to TOML.
std::string configToml(const std::string &json);

} // namespace cleave

#endif // CLEAVE_TRAINER_SETTINGS_H
