//===- Safetensors.h - the format of checkpoints --------------------------===//
//
// 8 bytes length of the header, the header (JSON, padded with spaces so that
// data begins at a multiple of 8), then the tensors without gaps. Tensors are
// laid out by falling element size, so that each is aligned.
//
//===----------------------------------------------------------------------===//
#ifndef CLEAVE_IO_SAFETENSORS_H
#define CLEAVE_IO_SAFETENSORS_H

#include "cleave/io/Array.h"
#include "cleave/io/File.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace cleave {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
};

/// Writes a file. `fill(i, bytes)` provides the bytes of one entry at a time,
/// in order, so that memory never holds a second copy of the checkpoint.
void writeSafetensors(
    const std::string &path, const std::vector<SafetensorsEntry> &entries,
    const std::function<void(size_t, std::vector<std::byte> &)> &fill);

/// A memory-mapped safetensors file. Throws InputError if the file is damaged,
/// truncated or too long.
class SafetensorsReader {
public:
  explicit SafetensorsReader(const std::string &path);
  std::vector<std::string> names() const;
  /// Returns the tensor with this name, or nullptr. The pointer is valid as
  /// long as the reader exists.
  const ArrayView *find(const std::string &name) const;
  /// Throws InputError if the file was truncated while it was read.
  void checkWhole() const { file.checkWhole(); }

private:
  MappedFile file;
  std::map<std::string, ArrayView> tensors;
};

} // namespace cleave

#endif // CLEAVE_IO_SAFETENSORS_H
