//===- Weights.cpp - initial values of a program's tensors ----------------===//
#include "cleave/io/Weights.h"
#include "cleave/io/Digest.h"
#include "cleave/io/Error.h"
#include "cleave/io/SplitMix.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <set>

namespace fs = std::filesystem;

namespace cleave {

void recordWeights(Manifest &manifest) {
  std::set<std::string> files;
  for (const ManifestTensor &tensor : manifest.tensors) {
    if (tensor.weight)
      files.insert(tensor.weight->file);
    for (const ManifestPart &part : tensor.parts)
      if (part.weight)
        files.insert(part.weight->file);
  }
  manifest.weights.clear();
  for (const std::string &name : files) {
    std::string path = (fs::path(manifest.weightsFolder) / name).string();
    try {
      MappedFile file(path);
      manifest.weights.push_back({name, static_cast<int64_t>(file.size()),
                                  file.modifiedAt(),
                                  digestOfPieces(file.text())});
    } catch (const Error &) {
      // The manifest leaves out a file that cannot be read now. The compiler
      // has warned about it, and it is an error only when the program runs.
      continue;
    }
  }
}

/// Returns how a file of weights differs from the file that the program was
/// compiled with; "" if it does not.
static std::string changeOf(const ManifestWeights &was, const MappedFile &file,
                            bool verifies) {
  if (static_cast<int64_t>(file.size()) != was.bytes)
    return "has " + std::to_string(file.size()) + " bytes, and had " +
           std::to_string(was.bytes) + " when the program was compiled";
  if (!verifies && file.modifiedAt() == was.modified)
    return "";
  std::string digest = digestOfPieces(file.text());
  return digest == was.hash
             ? ""
             : "has changed since the program was compiled (its digest is " +
                   digest + ", and was " + was.hash + ")";
}

const MappedFile &WeightFiles::fileOf(const std::string &name,
                                      const std::string &label) {
  std::string path = (fs::path(folder) / name).string();
  if (auto known = files.find(path); known != files.end())
    return known->second;
  try {
    MappedFile file(path);
    for (const ManifestWeights &was : recorded)
      if (fs::path(was.file).lexically_normal() == name)
        if (std::string change = changeOf(was, file, verifies); !change.empty())
          throw InputError(path + " " + change + "; compile the model again");
    return files.emplace(path, std::move(file)).first->second;
  } catch (const Error &error) {
    throw InputError(label + ": " + error.what());
  }
}

ArrayView WeightFiles::view(const ManifestTensor &tensor) {
  const WeightRef &ref = *tensor.weight;
  const std::string label = "weights of '" + tensor.name + "'";
  // The model file names its weight files, which must be inside its folder.
  fs::path relative = fs::path(ref.file).lexically_normal();
  if (relative.empty() || relative.is_absolute() || *relative.begin() == "..")
    throw InputError(label + ": file '" + ref.file +
                     "' is outside the model's folder");
  const MappedFile &mapped = fileOf(relative.string(), label);
  ArrayView view;
  view.dtype = ref.dtype;
  view.shape = tensor.shape;
  uint64_t need = view.byteSize();
  if (ref.offset > mapped.size() || mapped.size() - ref.offset < need)
    throw InputError(label + ": " + mapped.path() + " is too short: expected " +
                     std::to_string(need) + " bytes at offset " +
                     std::to_string(ref.offset) + ", found a file of " +
                     std::to_string(mapped.size()));
  view.data = mapped.data() + ref.offset;
  return view;
}

/// Returns a uniformly distributed number in (0, 1].
static double uniform(uint64_t key, uint64_t counter) {
  return ((splitMix(key ^ splitMix(counter)) >> 11) + 1) * 0x1p-53;
}

Array initialValue(const ManifestTensor &tensor, WeightFiles &files,
                   uint64_t seed) {
  Array result = makeArray(tensor.dtype, tensor.shape);
  int64_t count = result.elements();
  if (!tensor.parts.empty()) {
    auto at = result.bytes.begin();
    for (size_t i = 0; i < tensor.parts.size(); ++i) {
      Array part = initialValue(partOf(tensor, i), files, seed);
      at = std::copy(part.bytes.begin(), part.bytes.end(), at);
    }
    return result;
  }
  if (tensor.weight) {
    ArrayView view = files.view(tensor);
    convertElements(view.dtype, view.data, result.dtype, result.bytes.data(),
                    count, "weights of '" + tensor.name + "'");
    return result;
  }
  const Initializer &init = tensor.init;
  if (init.kind == "zeros")
    return result;
  uint64_t key = splitMix(seed);
  for (unsigned char c : tensor.name)
    key = splitMix(key ^ c);
  Array drawn = makeArray("f64", tensor.shape);
  for (int64_t i = 0; i < count; ++i) {
    double value = init.a;
    if (init.kind == "uniform")
      value = init.a + (init.b - init.a) * uniform(key, i);
    else if (init.kind == "normal") // Box-Muller
      value =
          init.a + init.b * std::sqrt(-2 * std::log(uniform(key, 2 * i))) *
                       std::cos(2 * std::numbers::pi * uniform(key, 2 * i + 1));
    drawn.as<double>()[i] = value;
  }
  convertElements("f64", drawn.bytes.data(), result.dtype, result.bytes.data(),
                  count, "initial value of '" + tensor.name + "'");
  return result;
}

} // namespace cleave
