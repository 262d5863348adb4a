//===- Weights.h - initial values of a program's tensors
//-------------------===//
#ifndef CLEAVE_IO_WEIGHTS_H
#define CLEAVE_IO_WEIGHTS_H

#include "cleave/io/Array.h"
#include "cleave/io/File.h"
#include "cleave/manifest.h"

#include <map>
#include <string>

namespace cleave {

/// The files that weight bytes lie in, mapped once each.
class WeightFiles {
public:
  explicit WeightFiles(std::string folder) : folder(std::move(folder)) {}

  /// The bytes of `tensor` in its file. Throws InputError naming tensor and
  /// file if the file is missing, too short, or outside the folder.
  ArrayView view(const ManifestTensor &tensor);

private:
  std::string folder;
  std::map<std::string, MappedFile> files;
};

/// The initial value of a tensor in the program's type and the model's shape:
/// its weight bytes converted, or what its initializer draws from `seed` and
/// its name.
Array initialValue(const ManifestTensor &tensor, WeightFiles &files,
                   uint64_t seed);

} // namespace cleave

#endif // CLEAVE_IO_WEIGHTS_H
