//===- Feeder.cpp - fills the inputs of a program -------------------------===//
#include "cleave/trainer/Feeder.h"
#include "Slices.h"
#include "cleave/io/Error.h"

#include <cstring>

namespace cleave {

static bool isScalarRole(InputRole role) {
  return role == InputRole::Step || role == InputRole::LearningRate ||
         role == InputRole::Seed || role == InputRole::Microbatch;
}

Feeder::Feeder(const Manifest &manifest, StepExecutor &executor,
               int64_t ignoreIndex)
    : manifest(manifest), executor(executor), ignoreIndex(ignoreIndex) {
  for (const ManifestInput &described : manifest.inputs) {
    const BufferInfo &buffer = executor.need(described.buffer);
    if (isScalarRole(described.role))
      continue;
    // The buffer's shape is used, because the program may pad the batch to a
    // multiple of the ranks that share it.
    inputs.push_back(described);
    ManifestInput &input = inputs.back();
    if (buffer.shape.size() == input.shape.size())
      input.shape = buffer.shape;
    if (isGenerated(input))
      scatter(input, generatedInput(input));
  }
}

void Feeder::scatter(const ManifestInput &input, const ArrayView &array) {
  const BufferInfo &buffer = executor.need(input.buffer);
  Array padded;
  ArrayView view = array;
  const int64_t dim = input.batchDim;
  if (buffer.shape != array.shape && dim >= 0 &&
      buffer.shape.size() == array.shape.size() &&
      buffer.shape[dim] > array.shape[dim]) {
    padded = makeArray(array.dtype, buffer.shape);
    copySlices(array, 0, padded, 0, array.shape[dim], dim,
               "input '" + input.name + "'");
    view = padded;
  }
  if (buffer.shape != view.shape)
    throw InputError("input '" + input.name + "' has shape " +
                     shapeToString(view.shape) + ", but program.bin has " +
                     shapeToString(buffer.shape) + "; compile the model again");
  // Labels of samples that are only padding get the ignored value.
  std::byte ignored[8] = {};
  const void *padding = nullptr;
  if (input.role == InputRole::Labels && !isFloat(buffer.dtype)) {
    convertElements("i64", reinterpret_cast<const std::byte *>(&ignoreIndex),
                    buffer.dtype, ignored, 1, input.name);
    padding = ignored;
  }
  if (view.dtype == buffer.dtype) {
    executor.scatter(input.buffer, view, padding);
  } else { // e.g. booleans, which a manifest spells i1
    Array converted = makeArray(buffer.dtype, view.shape);
    convertElements(view.dtype, view.data, buffer.dtype, converted.bytes.data(),
                    converted.elements(), "input '" + input.name + "'");
    executor.scatter(input.buffer, converted, padding);
  }
}

void Feeder::feed(const Dataset &data, Split split,
                  const std::vector<FeedRow> &ofMicrobatch,
                  const std::vector<FeedRow> &ofStep) {
  for (const ManifestInput &input : inputs) {
    if (isGenerated(input))
      continue;
    auto [found, fresh] = staging.try_emplace(input.name);
    Array &array = found->second;
    if (fresh)
      array = makeArray(input.dtype, input.shape);
    if (input.batchDim != 0) { // the same for all samples
      if (fresh) {
        data.fillWhole(input, array.bytes.data());
        scatter(input, array);
      }
      continue;
    }
    const std::vector<FeedRow> &rows =
        input.stepOf.empty() ? ofMicrobatch : ofStep;
    size_t rowBytes = array.bytes.size() / input.shape[0];
    for (int64_t row = 0; row < input.shape[0]; ++row) {
      std::byte *out = array.bytes.data() + row * rowBytes;
      FeedRow source =
          row < static_cast<int64_t>(rows.size()) ? rows[row] : FeedRow{};
      if (input.role == InputRole::SampleIds) {
        convertElements("i64",
                        reinterpret_cast<const std::byte *>(&source.number),
                        input.dtype, out, 1, input.name);
      } else if (source.sample >= 0) {
        data.fill(input, split, source.sample, out);
      } else if (input.role == InputRole::Labels && !isFloat(input.dtype)) {
        for (size_t at = 0; at < rowBytes; at += elementSize(input.dtype))
          convertElements("i64",
                          reinterpret_cast<const std::byte *>(&ignoreIndex),
                          input.dtype, out + at, 1, input.name);
      } else {
        std::memset(out, 0, rowBytes);
      }
    }
    scatter(input, array);
  }
}

void Feeder::setScalar(InputRole role, double value) {
  for (const ManifestInput &input : manifest.inputs)
    if (input.role == role)
      executor.setScalar(input.buffer, value);
}

void Feeder::setInteger(InputRole role, int64_t value) {
  for (const ManifestInput &input : manifest.inputs)
    if (input.role == role)
      executor.setInteger(input.buffer, value);
}

} // namespace cleave
