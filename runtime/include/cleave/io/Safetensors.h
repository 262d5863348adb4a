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

/// Writes a file. `fill(i, bytes)` is asked for the bytes of each entry in
/// turn, one at a time, so that a checkpoint never exists twice in memory.
void writeSafetensors(
    const std::string &path, const std::vector<SafetensorsEntry> &entries,
    const std::function<void(size_t, std::vector<std::byte> &)> &fill);

/// A mapped file. A torn, short or overlong one throws InputError.
class SafetensorsReader {
public:
  explicit SafetensorsReader(const std::string &path);
  std::vector<std::string> names() const;
  /// nullptr if there is none of the name. Lives as long as the reader.
  const ArrayView *find(const std::string &name) const;
  /// Throws InputError where the file was cut while it was read.
  void checkWhole() const { file.checkWhole(); }

private:
  MappedFile file;
  std::map<std::string, ArrayView> tensors;
};

} // namespace cleave

#endif // CLEAVE_IO_SAFETENSORS_H
