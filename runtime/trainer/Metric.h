// Reads scalars that the actions of a program compute: the loss, its weight,
// the norm of the gradients.

#ifndef CLEAVE_TRAINER_METRIC_H
#define CLEAVE_TRAINER_METRIC_H

#include "cleave/trainer/Executor.h"

#include <optional>
#include <string>

namespace cleave {

/// Returns the scalar `name` that the action has computed; nullopt if the
/// program does not compute it.
std::optional<double> readMetric(const Manifest &manifest,
                                 StepExecutor &executor,
                                 const std::string &action,
                                 const std::string &name);

} // namespace cleave

#endif // CLEAVE_TRAINER_METRIC_H
