//===- Weights.h - initial values of a program's tensors ------------------===//
#ifndef CLEAVE_IO_WEIGHTS_H
#define CLEAVE_IO_WEIGHTS_H

#include "cleave/io/Array.h"
#include "cleave/io/File.h"
#include "cleave/manifest.h"

#include <map>
#include <string>

namespace cleave {

/// The files with the bytes of weights; each file is mapped once.
class WeightFiles {
public:
  explicit WeightFiles(std::string folder) : folder(std::move(folder)) {}
  explicit WeightFiles(const Manifest &manifest)
      : folder(manifest.weightsFolder), recorded(manifest.weights),
        verifies(manifest.verifiesWeights) {}

  /// Returns the bytes of `tensor`. Throws InputError that names the tensor and
  /// the file if the file is missing, too short, outside the folder, or changed
  /// since compilation. The file's size and modification time are always
  /// compared, its digest only if the time differs or the manifest requests it.
  ArrayView view(const ManifestTensor &tensor);
  /// Throws InputError if a file was truncated while it was read.
  void checkWhole() const {
    for (const auto &[path, file] : files)
      file.checkWhole();
  }

private:
  const MappedFile &fileOf(const std::string &name, const std::string &label);

  std::string folder;
  std::vector<ManifestWeights> recorded;
  bool verifies = false;
  std::map<std::string, MappedFile> files;
};

/// Fills `weights` of the manifest with the sizes, times and digests that the
/// files have now. Files that cannot be read are left out.
void recordWeights(Manifest &manifest);

/// Returns the initial value of a tensor, in the program's element type and the
/// model's shape: the converted weight bytes or, without a weight file, random
/// values that its initializer draws from `seed` and the tensor's name.
Array initialValue(const ManifestTensor &tensor, WeightFiles &files,
                   uint64_t seed);

} // namespace cleave

#endif // CLEAVE_IO_WEIGHTS_H
