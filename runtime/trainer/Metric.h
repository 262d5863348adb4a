// Scalars that actions compute: loss, weight, norm of gradients.

#ifndef CLEAVE_TRAINER_METRIC_H
#define CLEAVE_TRAINER_METRIC_H

#include "cleave/trainer/Executor.h"

#include <optional>
#include <string>

namespace cleave {

/// The scalar of an action; nullopt if the program has none.
std::optional<double> readMetric(const Manifest &manifest,
                                 StepExecutor &executor,
                                 const std::string &action,
                                 const std::string &name);

} // namespace cleave

#endif // CLEAVE_TRAINER_METRIC_H
