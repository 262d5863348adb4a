// Scalars that the actions of a program leave: loss, weight, norm of gradients.

#ifndef CLEAVE_TRAINER_METRIC_H
#define CLEAVE_TRAINER_METRIC_H

#include "cleave/trainer/Executor.h"

#include <optional>
#include <string>

namespace cleave {

/// The scalar that an action left, nothing if the program has none.
std::optional<double> readMetric(const Manifest &manifest,
                                 StepExecutor &executor,
                                 const std::string &action,
                                 const std::string &name);

} // namespace cleave

#endif // CLEAVE_TRAINER_METRIC_H
