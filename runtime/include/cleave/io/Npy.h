//===- Npy.h - NumPy's .npy and .npz files --------------------------------===//
//
// NumPy has no bf16, so arrays of bf16 are written as f32. Entries of an .npz
// file may be stored or deflated when they are read. They are always written
// without compression (stored).
//
//===----------------------------------------------------------------------===//
#ifndef CLEAVE_IO_NPY_H
#define CLEAVE_IO_NPY_H

#include "cleave/io/Array.h"
#include "cleave/io/File.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cleave {

/// The contents of a .npy header, and the offset at which the elements begin.
struct NpyHeader {
  std::string dtype;
  std::vector<int64_t> shape;
  bool fortranOrder = false;
  size_t dataOffset = 0;
};

/// Parses a header. Throws InputError, with `name` in the message, if the bytes
/// are not a .npy file, are truncated, or have an unsupported element type.
NpyHeader parseNpyHeader(const std::byte *data, size_t size,
                         const std::string &name);

Array readNpy(const std::string &path);
void writeNpy(const std::string &path, const ArrayView &array);

using NamedArrays = std::vector<std::pair<std::string, Array>>;
using NamedViews = std::vector<std::pair<std::string, ArrayView>>;

/// An open .npz file. Arrays are read one at a time.
class NpzReader {
public:
  explicit NpzReader(const std::string &path);
  std::vector<std::string> names() const;
  bool has(const std::string &name) const;
  /// Reads an array. Throws InputError if no array has this name, or if the
  /// array is damaged.
  Array read(const std::string &name) const;

private:
  struct Entry {
    std::string name;
    int method;
    uint32_t crc;
    uint64_t compressed, size, header;
  };
  void checkApart() const;

  MappedFile file;
  std::vector<Entry> entries;
};

NamedArrays readNpz(const std::string &path);
/// Writes the file under a temporary name and renames it.
void writeNpz(const std::string &path, const NamedViews &arrays);

} // namespace cleave

#endif // CLEAVE_IO_NPY_H
