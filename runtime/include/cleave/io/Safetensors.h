//===- Safetensors.h - the format of checkpoints --------------------------===//
//
// A file consists of the length of the header (8 bytes), the header (JSON,
// padded with spaces so that the data begins at a multiple of 8), and the
// tensors without gaps. Tensors with larger elements come first, so that each
// tensor is aligned.
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

/// Writes a file. fill(i, bytes) stores the bytes of entry i in `bytes`. It is
/// called for one entry at a time, in order, so that memory never holds a
/// second copy of the checkpoint.
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
