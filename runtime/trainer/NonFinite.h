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
/// first, because a bad gradient has already spread to the optimizer state and
/// the parameters.
std::string firstNonFiniteTensor(const Manifest &manifest,
                                 StepExecutor &executor, bool updated);

/// Returns whether all parameters and the optimizer state are finite.
bool isStateFinite(const Manifest &manifest, StepExecutor &executor);

/// Names the first NaN or infinity in the data of a step; "" if there is none.
/// `nextSample` is the number of the first sample of the step.
std::string nonFiniteData(const Manifest &manifest, const Settings &settings,
                          const Dataset &data, int64_t nextSample);

/// Returns text for a message that begins with "the loss is not finite; ". The
/// text has the result `given` of nonFiniteData(), and names the first tensor
/// with a NaN or an infinity (firstNonFiniteTensor()).
std::string describeNonFinite(const Manifest &manifest, StepExecutor &executor,
                              const std::string &given, bool updated);

} // namespace cleave

#endif // CLEAVE_TRAINER_NONFINITE_H
