// Loads one tensor at a time into the program's buffers.

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

/// Finds a tensor by its name or an alias. If `slot` is not empty, finds this
/// part of the tensor's optimizer state instead. Returns null if the file has
/// none.
const ArrayView *findTensor(const SafetensorsReader &file,
                            const ManifestTensor &tensor,
                            const std::string &slot);

/// Loads a tensor, or the part `slot` of its optimizer state, from a file.
/// Throws InputError if it is missing or has another shape.
void loadTensor(const std::string &path, const SafetensorsReader &file,
                const ManifestTensor &tensor, const std::string &slot,
                const std::vector<int64_t> &shape, const std::string &buffer,
                StepExecutor &executor);

/// Loads `view` into a buffer of `shape`. Messages call the tensor `label`.
void loadBuffer(const std::string &label, const ArrayView *view,
                const std::vector<int64_t> &shape, const std::string &buffer,
                StepExecutor &executor);

/// Sets a tensor to the initial value that the model gives it.
void loadInitialValue(const ManifestTensor &tensor, WeightFiles &files,
                      StepExecutor &executor, uint64_t seed);

/// Sets the optimizer state to its initial values.
void initializeState(const Manifest &manifest, WeightFiles &files,
                     StepExecutor &executor, uint64_t seed);

} // namespace cleave

#endif // CLEAVE_TRAINER_LOADTENSOR_H
