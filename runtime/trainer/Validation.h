// The loss over held-out samples while a model trains.

#ifndef CLEAVE_TRAINER_VALIDATION_H
#define CLEAVE_TRAINER_VALIDATION_H

#include "Report.h"
#include "cleave/trainer/Data.h"
#include "cleave/trainer/Executor.h"
#include "cleave/trainer/Feeder.h"
#include "cleave/trainer/Settings.h"
#include "cleave/trainer/Train.h"

#include <string>

namespace cleave {

/// All arguments must outlive this object.
class Validation {
public:
  Validation(const Manifest &manifest, const Settings &settings,
             const TrainOptions &options, const Dataset &data,
             StepExecutor &executor, Feeder &feeder);

  /// Returns whether validation is due after this step; `isLast` is true for
  /// the last step.
  bool isDue(int64_t step, bool isLast) const;

  /// Computes the loss of the held-out samples, and writes its mean and their
  /// number to `record`.
  void run(StepRecord &record);

  /// Describes held-out samples that cannot be validated; "" if all can.
  std::string samplesLeftOut() const;

private:
  int64_t usableSamples() const;
  int64_t samplesTogether() const;
  int64_t samplesToRead() const;

  const Manifest &manifest;
  const Settings &settings;
  const TrainOptions &options;
  const Dataset &data;
  StepExecutor &executor;
  Feeder &feeder;
  int64_t every; ///< steps
  bool isPossible;
};

} // namespace cleave

#endif // CLEAVE_TRAINER_VALIDATION_H
