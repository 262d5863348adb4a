//===- Weights.h - initial values of a program's tensors ------------------===//
#ifndef CLEAVE_IO_WEIGHTS_H
#define CLEAVE_IO_WEIGHTS_H

#include "cleave/io/Array.h"
#include "cleave/io/File.h"
#include "cleave/manifest.h"

#include <map>
#include <string>

namespace cleave {

/// The files that weight bytes are in, mapped once each.
class WeightFiles {
public:
  explicit WeightFiles(std::string folder) : folder(std::move(folder)) {}
  explicit WeightFiles(const Manifest &manifest)
      : folder(manifest.weightsFolder), recorded(manifest.weights),
        verifies(manifest.verifiesWeights) {}

  /// The bytes of `tensor` in its file. Throws InputError naming tensor and
  /// file if the file is missing, too short, outside the folder, or not what
  /// the program was compiled from: its size and time are looked at, its digest
  /// where the time differs or the manifest asks for it.
  ArrayView view(const ManifestTensor &tensor);
  /// Throws InputError where a file was cut while it was read.
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

/// Fills in `weights`, from the files as they are now; those that cannot be
/// read are left out.
void recordWeights(Manifest &manifest);

/// The initial value of a tensor in the program's type and the model's shape:
/// its weight bytes converted, or what its initializer draws from `seed` and
/// its name.
Array initialValue(const ManifestTensor &tensor, WeightFiles &files,
                   uint64_t seed);

} // namespace cleave

#endif // CLEAVE_IO_WEIGHTS_H
