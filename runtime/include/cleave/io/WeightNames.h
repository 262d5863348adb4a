// Checks that a file of weights fits a model, name by name.

#ifndef CLEAVE_IO_WEIGHTNAMES_H
#define CLEAVE_IO_WEIGHTNAMES_H

#include "cleave/io/Safetensors.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

/// A tensor that a model expects, with its name and aliases.
struct WantedTensor {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<int64_t> shape;
  bool isFloat = true;
};

/// Throws InputError unless `file` has exactly the expected tensors, with their
/// shapes and with floating types where the model has floating types. The
/// message lists all tensors that are missing, that the model does not have, or
/// that have another shape or type.
void requireTensors(const std::string &path, const SafetensorsReader &file,
                    const std::vector<WantedTensor> &wanted,
                    const std::string &model);

} // namespace cleave

#endif // CLEAVE_IO_WEIGHTNAMES_H
