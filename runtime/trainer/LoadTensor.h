// One tensor at a time into the program's buffers.

#ifndef CLEAVE_TRAINER_LOADTENSOR_H
#define CLEAVE_TRAINER_LOADTENSOR_H

#include "cleave/io/Safetensors.h"
#include "cleave/io/Weights.h"
#include "cleave/manifest.h"
#include "cleave/trainer/Executor.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

/// The tensor under its name or one of its aliases, or its piece of state
/// `slot`; null where there is none.
const ArrayView *findTensor(const SafetensorsReader &file,
                            const ManifestTensor &tensor,
                            const std::string &slot);

/// A tensor, or a piece of state of it, from a file that holds the model's
/// tensors. Throws InputError on one that is missing or has another shape.
void loadTensor(const std::string &path, const SafetensorsReader &file,
                const ManifestTensor &tensor, const std::string &slot,
                const std::vector<int64_t> &shape, const std::string &buffer,
                StepExecutor &executor);

/// `view` into a buffer of `shape`; `label` is what messages call it.
void loadBuffer(const std::string &label, const ArrayView *view,
                const std::vector<int64_t> &shape, const std::string &buffer,
                StepExecutor &executor);

/// What the model itself begins with.
void loadInitialValue(const ManifestTensor &tensor, WeightFiles &files,
                      StepExecutor &executor, uint64_t seed);

/// What the optimizer's state begins with.
void initializeState(const Manifest &manifest, WeightFiles &files,
                     StepExecutor &executor, uint64_t seed);

} // namespace cleave

#endif // CLEAVE_TRAINER_LOADTENSOR_H
