// Finds where a NaN or an infinity comes from.

#ifndef CLEAVE_TRAINER_NONFINITE_H
#define CLEAVE_TRAINER_NONFINITE_H

#include "cleave/manifest.h"
#include "cleave/trainer/Data.h"
#include "cleave/trainer/Executor.h"
#include "cleave/trainer/Settings.h"

#include <string>

namespace cleave {

/// Names the first tensor with a NaN or an infinity, in the order in which a
/// step computes: parameters, then gradients. If `updated`, gradients come
/// first, because a bad gradient has already spread to state and parameters.
std::string firstNonFiniteTensor(const Manifest &manifest,
                                 StepExecutor &executor, bool updated);

/// Whether all parameters and the optimizer's state are finite.
bool isStateFinite(const Manifest &manifest, StepExecutor &executor);

/// Returns the rest of a message that begins with "the loss is not finite; ":
/// whether the data of the step is finite, and the first tensor that is not.
/// The step begins with sample `nextSample`.
std::string describeNonFinite(const Manifest &manifest,
                              const Settings &settings, const Dataset &data,
                              StepExecutor &executor, int64_t nextSample,
                              bool updated);

} // namespace cleave

#endif // CLEAVE_TRAINER_NONFINITE_H
