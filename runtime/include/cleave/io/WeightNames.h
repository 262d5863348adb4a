// Whether a file of weights fits a model, name by name.

#ifndef CLEAVE_IO_WEIGHTNAMES_H
#define CLEAVE_IO_WEIGHTNAMES_H

#include "cleave/io/Safetensors.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

/// A tensor of a model, under its name or one of its aliases.
struct WantedTensor {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<int64_t> shape;
  bool isFloat = true;
};

/// Throws InputError unless `file` has exactly the tensors that are wanted,
/// each with its shape. Names all that are missing, not of the model, or
/// misshapen.
void requireTensors(const std::string &path, const SafetensorsReader &file,
                    const std::vector<WantedTensor> &wanted,
                    const std::string &model);

} // namespace cleave

#endif // CLEAVE_IO_WEIGHTNAMES_H
