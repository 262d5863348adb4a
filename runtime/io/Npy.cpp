//===- Npy.cpp - NumPy's array files --------------------------------------===//
#include "cleave/io/Npy.h"
#include "NpyDetail.h"
#include "cleave/io/Error.h"

#include <cstring>

namespace cleave {

namespace {
struct TypeName {
  const char *numpy; ///< without the byte order
  const char *ours;
};
} // namespace
static constexpr TypeName typeNames[] = {
    {"f8", "f64"}, {"f4", "f32"}, {"f2", "f16"}, {"i8", "i64"},
    {"i4", "i32"}, {"i2", "i16"}, {"i1", "i8"},  {"u8", "u64"},
    {"u4", "u32"}, {"u2", "u16"}, {"u1", "u8"},  {"b1", "i1"}};

/// Converts NumPy's name of a type, such as "<f4", to ours, such as "f32".
static std::string parseDescr(const std::string &descr,
                              const std::string &name) {
  if (descr.size() >= 2) {
    char order = descr[0];
    for (const TypeName &type : typeNames)
      if (descr.substr(1) == type.numpy &&
          (order == '<' || order == '|' || order == '=' ||
           type.numpy[1] == '1'))
        return type.ours;
  }
  throw InputError(name + ": NumPy type '" + descr +
                   "' cannot be read; expected little-endian floats, "
                   "integers or booleans");
}

NpyHeader parseNpyHeader(const std::byte *data, size_t size,
                         const std::string &name) {
  auto damaged = [&](const std::string &why) -> InputError {
    return InputError(name + ": not a whole .npy file: " + why);
  };
  auto byteAt = [&](size_t i) { return std::to_integer<unsigned>(data[i]); };
  if (size < 10 || std::memcmp(data, "\x93NUMPY", 6) != 0)
    throw damaged("it does not begin with NumPy's magic bytes");
  unsigned major = byteAt(6);
  if (major < 1 || major > 3)
    throw damaged("format version " + std::to_string(major));
  size_t start = major == 1 ? 10 : 12;
  if (size < start)
    throw damaged("the header is cut off");
  size_t length = byteAt(8) | byteAt(9) << 8;
  if (major > 1)
    length |= size_t(byteAt(10)) << 16 | size_t(byteAt(11)) << 24;
  if (length > size - start)
    throw damaged("the header is cut off");
  std::string text(reinterpret_cast<const char *>(data) + start, length);

  // The header is a Python dictionary literal with three known keys.
  auto valueOf = [&](const char *key) {
    for (char quote : {'\'', '"'}) {
      size_t at = text.find(quote + std::string(key) + quote);
      if (at == std::string::npos)
        continue;
      at = text.find(':', at);
      if (at != std::string::npos)
        at = text.find_first_not_of(" \t", at + 1);
      if (at != std::string::npos)
        return text.substr(at);
    }
    throw damaged(std::string("no '") + key + "' in the header");
  };

  NpyHeader header;
  header.dataOffset = start + length;
  std::string descr = valueOf("descr");
  size_t end = descr.find(descr[0], 1);
  if ((descr[0] != '\'' && descr[0] != '"') || end == std::string::npos)
    throw InputError(name + ": a structured NumPy array cannot be read");
  header.dtype = parseDescr(descr.substr(1, end - 1), name);
  header.fortranOrder = valueOf("fortran_order").starts_with("True");

  std::string shape = valueOf("shape");
  size_t close = shape.find(')');
  if (shape[0] != '(' || close == std::string::npos)
    throw damaged("its shape cannot be read");
  int64_t count = 1, dim = -1;
  for (char c : shape.substr(1, close - 1) + ",") {
    if (c >= '0' && c <= '9') {
      dim = (dim < 0 ? 0 : dim) * 10 + (c - '0');
      if (dim > int64_t(1) << 50)
        throw damaged("its shape is too large");
    } else if (c == ',' && dim >= 0) {
      header.shape.push_back(dim);
      if (__builtin_mul_overflow(count, dim, &count) || count > int64_t(1)
                                                                    << 55)
        throw damaged("its shape is too large");
      dim = -1;
    } else if (c != ',' && c != ' ' && c != 'L') {
      throw damaged("its shape cannot be read");
    }
  }
  size_t need = count * elementSize(header.dtype);
  if (size - header.dataOffset < need)
    throw damaged("expected " + std::to_string(need) + " bytes of " +
                  header.dtype + shapeToString(header.shape) + ", found " +
                  std::to_string(size - header.dataOffset));
  return header;
}

Array arrayFromNpy(const std::byte *data, size_t size,
                   const std::string &name) {
  NpyHeader header = parseNpyHeader(data, size, name);
  Array array = makeArray(header.dtype, header.shape);
  const std::byte *source = data + header.dataOffset;
  if (!header.fortranOrder || header.shape.size() < 2) {
    if (!array.bytes.empty())
      std::memcpy(array.bytes.data(), source, array.bytes.size());
    return array;
  }
  // The file is in column-major order. Elements are written in row-major order,
  // and `at` is the position of the next one in the file.
  size_t width = elementSize(header.dtype), rank = header.shape.size();
  std::vector<int64_t> index(rank, 0), strides(rank, 1);
  for (size_t i = 1; i < rank; ++i)
    strides[i] = strides[i - 1] * header.shape[i - 1];
  int64_t at = 0;
  for (int64_t i = 0, n = array.elements(); i < n; ++i) {
    std::memcpy(array.bytes.data() + i * width, source + at * width, width);
    for (size_t d = rank; d-- > 0;) {
      at += strides[d];
      if (++index[d] < header.shape[d])
        break;
      at -= strides[d] * header.shape[d];
      index[d] = 0;
    }
  }
  return array;
}

Array readNpy(const std::string &path) {
  MappedFile file(path);
  Array array = arrayFromNpy(file.data(), file.size(), path);
  file.checkWhole();
  return array;
}

std::string npyHeader(const std::string &dtype,
                      const std::vector<int64_t> &shape) {
  std::string descr;
  for (const TypeName &type : typeNames)
    if (dtype == type.ours)
      descr = (type.numpy[1] == '1' ? "|" : "<") + std::string(type.numpy);
  std::string text =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
  for (int64_t dim : shape)
    text += std::to_string(dim) + ", ";
  // NumPy writes (3,) for one dimension and (2, 3) for two.
  if (shape.size() > 1)
    text.resize(text.size() - 2);
  else if (shape.size() == 1)
    text.pop_back();
  text += "), }";
  size_t start = text.size() + 11 < 65536 ? 10 : 12;
  text.append((64 - (start + text.size() + 1) % 64) % 64, ' ');
  text += '\n';
  std::string header = "\x93NUMPY";
  header += start == 10 ? '\1' : '\2';
  header += '\0';
  for (size_t i = 0; i < start - 8; ++i)
    header += static_cast<char>(text.size() >> (8 * i));
  return header + text;
}

ArrayView numpyView(const ArrayView &array, Array &converted) {
  if (array.dtype != "bf16")
    return array;
  converted = makeArray("f32", array.shape);
  convertElements("bf16", array.data, "f32", converted.bytes.data(),
                  array.elements(), "array");
  return converted;
}

void writeNpy(const std::string &path, const ArrayView &array) {
  Array converted;
  ArrayView view = numpyView(array, converted);
  OutputFile file(path);
  file.write(npyHeader(view.dtype, view.shape));
  file.write(view.data, view.byteSize());
  file.close();
}

} // namespace cleave
