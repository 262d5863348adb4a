//===- Npz.cpp - NumPy's archives -----------------------------------------===//
//
// An .npz file is a zip archive of .npy files. The reader uses the central
// directory, because only there the sizes are always right, and supports zip64.
// The writer stores entries without compression, and uses zip64 only if a
// number needs it.
//===----------------------------------------------------------------------===//
#include "NpyDetail.h"
#include "cleave/io/Error.h"
#include "cleave/io/Escape.h"
#include "cleave/io/Npy.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

namespace cleave {

static constexpr uint32_t localSignature = 0x04034b50;
static constexpr uint32_t centralSignature = 0x02014b50;
static constexpr uint32_t endSignature = 0x06054b50;
static constexpr uint32_t end64Signature = 0x06064b50;
static constexpr uint32_t locator64Signature = 0x07064b50;

template <typename T> static T get(const std::byte *data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

NpzReader::NpzReader(const std::string &path) : file(path) {
  const std::byte *data = file.data();
  const size_t size = file.size();
  auto damaged = [&](const std::string &why) {
    return InputError(path + ": not a whole .npz file: " + why);
  };
  // The end record is at the end of the file, followed only by a comment of at
  // most 64 KiB.
  if (size < 22)
    throw damaged("too short");
  size_t end = size - 22;
  size_t lowest = end > 65535 ? end - 65535 : 0;
  while (get<uint32_t>(data + end) != endSignature) {
    if (end == lowest)
      throw damaged("it has no central directory");
    --end;
  }
  uint64_t count = get<uint16_t>(data + end + 10);
  uint64_t at = get<uint32_t>(data + end + 16);
  if (end >= 20 && get<uint32_t>(data + end - 20) == locator64Signature) {
    uint64_t end64 = get<uint64_t>(data + end - 20 + 8);
    if (end64 > size || size - end64 < 56 ||
        get<uint32_t>(data + end64) != end64Signature)
      throw damaged("its central directory cannot be found");
    count = get<uint64_t>(data + end64 + 32);
    at = get<uint64_t>(data + end64 + 48);
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (at > size || size - at < 46 ||
        get<uint32_t>(data + at) != centralSignature)
      throw damaged("its central directory is cut off");
    const std::byte *record = data + at;
    size_t nameSize = get<uint16_t>(record + 28);
    size_t extraSize = get<uint16_t>(record + 30);
    size_t commentSize = get<uint16_t>(record + 32);
    if (size - at - 46 < nameSize + extraSize + commentSize)
      throw damaged("its central directory is cut off");
    Entry entry{
        std::string(reinterpret_cast<const char *>(record + 46), nameSize),
        get<uint16_t>(record + 10),
        get<uint32_t>(record + 16),
        get<uint32_t>(record + 20),
        get<uint32_t>(record + 24),
        get<uint32_t>(record + 42)};
    // A number that does not fit into the record's 32 bits is 0xffffffff there.
    // The extra field with id 1 (zip64) then has the actual numbers, in the
    // order in which they are read below.
    const std::byte *extra = record + 46 + nameSize, *last = extra + extraSize;
    while (last - extra >= 4) {
      uint16_t id = get<uint16_t>(extra), length = get<uint16_t>(extra + 2);
      const std::byte *value = extra + 4;
      extra = value + std::min<ptrdiff_t>(length, last - value);
      if (id != 1)
        continue;
      for (uint64_t *number : {&entry.size, &entry.compressed, &entry.header})
        if (*number == 0xffffffff && extra - value >= 8) {
          *number = get<uint64_t>(value);
          value += 8;
        }
    }
    if (entry.name.ends_with(".npy"))
      entry.name.resize(entry.name.size() - 4);
    entry.name = escaped(entry.name); // like a model's tensor names
    entries.push_back(std::move(entry));
    at += 46 + nameSize + extraSize + commentSize;
  }
  checkApart();
}

/// Refuses entries whose bytes overlap. NumPy writes no such entries, and with
/// them a small file could claim to contain arrays of any total size.
void NpzReader::checkApart() const {
  std::vector<const Entry *> sorted;
  for (const Entry &entry : entries)
    sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const Entry *a, const Entry *b) {
    return a->header < b->header;
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const Entry &first = *sorted[i - 1], &second = *sorted[i];
    uint64_t end = 0; // a lower bound: headers also have names
    if (__builtin_add_overflow(first.header, first.compressed, &end) ||
        end > second.header || second.header - end < 30)
      throw InputError(file.path() + ": arrays '" + first.name + "' and '" +
                       second.name + "' overlap; write it again");
  }
}

std::vector<std::string> NpzReader::names() const {
  std::vector<std::string> result;
  for (const Entry &entry : entries)
    result.push_back(entry.name);
  return result;
}

bool NpzReader::has(const std::string &name) const {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const Entry &e) { return e.name == name; });
}

Array NpzReader::read(const std::string &name) const {
  auto entry = std::find_if(entries.begin(), entries.end(),
                            [&](const Entry &e) { return e.name == name; });
  const std::string label = file.path() + ", array '" + name + "'";
  if (entry == entries.end())
    throw InputError(file.path() + ": has no array '" + name + "'");
  const std::byte *data = file.data();
  const size_t size = file.size();
  if (entry->header > size || size - entry->header < 30 ||
      get<uint32_t>(data + entry->header) != localSignature)
    throw InputError(label + ": is cut off");
  uint64_t start = entry->header + 30 +
                   get<uint16_t>(data + entry->header + 26) +
                   get<uint16_t>(data + entry->header + 28);
  if (start > size || size - start < entry->compressed)
    throw InputError(label + ": is cut off");
  const std::byte *content = data + start;

  std::vector<std::byte> inflated;
  if (entry->method == 8) {
    // Refuses a size that data of this compressed length cannot have: deflate
    // compresses at most by a factor of 1032.
    if (entry->size / 1100 > entry->compressed)
      throw InputError(label + ": is damaged (impossible size)");
    inflated.resize(entry->size);
    z_stream stream{};
    if (inflateInit2(&stream, -15) != Z_OK)
      throw InputError(label + ": cannot be decompressed");
    size_t read = 0, written = 0;
    int status = Z_OK;
    while (status == Z_OK) {
      // zlib counts bytes in 32 bits.
      size_t in = std::min<size_t>(entry->compressed - read, 1u << 30);
      size_t out = std::min<size_t>(entry->size - written, 1u << 30);
      stream.next_in =
          reinterpret_cast<Bytef *>(const_cast<std::byte *>(content + read));
      stream.avail_in = in;
      stream.next_out = reinterpret_cast<Bytef *>(inflated.data() + written);
      stream.avail_out = out;
      status = inflate(&stream, Z_NO_FLUSH);
      read += in - stream.avail_in;
      written += out - stream.avail_out;
      if (in == stream.avail_in && out == stream.avail_out)
        break; // no progress
    }
    inflateEnd(&stream);
    if (status != Z_STREAM_END || written != entry->size)
      throw InputError(label + ": is damaged (cannot be decompressed)");
    content = inflated.data();
  } else if (entry->method != 0) {
    throw InputError(label + ": uses compression method " +
                     std::to_string(entry->method) +
                     "; expected stored or deflated");
  } else if (entry->compressed != entry->size) {
    throw InputError(label + ": is damaged (sizes differ)");
  }
  if (crc32_z(0, reinterpret_cast<const Bytef *>(content), entry->size) !=
      entry->crc)
    throw InputError(label + ": is damaged (checksum)");
  return arrayFromNpy(content, entry->size, label);
}

NamedArrays readNpz(const std::string &path) {
  NpzReader reader(path);
  NamedArrays arrays;
  for (const std::string &name : reader.names())
    arrays.emplace_back(name, reader.read(name));
  return arrays;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

template <typename T> static void put(std::string &out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
}

static uint32_t clip(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, 0xffffffff));
}

namespace {
struct Written {
  std::string name;
  uint32_t crc;
  uint64_t size, offset;
};
} // namespace

/// Writes the fields that local and central records of a zip archive have in
/// common, up to the size of zip64's extra field.
static void putCommon(std::string &out, const Written &entry,
                      uint16_t extraSize) {
  put<uint16_t>(out, extraSize ? 45 : 20);
  put<uint16_t>(out, 0x800);      // names are UTF-8
  put<uint16_t>(out, 0);          // stored
  put<uint32_t>(out, 0x00210000); // 1980-01-01: the same bytes every time
  put<uint32_t>(out, entry.crc);
  put<uint32_t>(out, extraSize ? 0xffffffff : clip(entry.size));
  put<uint32_t>(out, extraSize ? 0xffffffff : clip(entry.size));
  put<uint16_t>(out, entry.name.size());
  put<uint16_t>(out, extraSize);
}

static std::string centralRecord(const Written &entry) {
  bool large = entry.size >= 0xffffffff || entry.offset >= 0xffffffff;
  std::string out;
  put(out, centralSignature);
  put<uint16_t>(out, large ? 45 : 20);
  putCommon(out, entry, large ? 28 : 0);
  put<uint16_t>(out, 0); // comment
  put<uint16_t>(out, 0); // disk
  put<uint16_t>(out, 0);
  put<uint32_t>(out, 0);
  put<uint32_t>(out, large ? 0xffffffff : clip(entry.offset));
  out += entry.name;
  if (large) {
    put<uint16_t>(out, 1);
    put<uint16_t>(out, 24);
    put(out, entry.size);
    put(out, entry.size);
    put(out, entry.offset);
  }
  return out;
}

static void writeArchive(OutputFile &file, const NamedViews &arrays) {
  std::vector<Written> written;
  uint64_t offset = 0;
  for (const auto &[name, original] : arrays) {
    Array converted;
    ArrayView array = numpyView(original, converted);
    std::string header = npyHeader(array.dtype, array.shape);
    uint64_t size = header.size() + array.byteSize();
    uLong crc = crc32_z(0, reinterpret_cast<const Bytef *>(header.data()),
                        header.size());
    if (array.byteSize()) // a null pointer would restart zlib's CRC
      crc = crc32_z(crc, reinterpret_cast<const Bytef *>(array.data),
                    array.byteSize());
    Written entry{name + ".npy", static_cast<uint32_t>(crc), size, offset};
    bool large = size >= 0xffffffff;
    std::string record;
    put(record, localSignature);
    putCommon(record, entry, large ? 20 : 0);
    record += entry.name;
    if (large) {
      put<uint16_t>(record, 1);
      put<uint16_t>(record, 16);
      put(record, size);
      put(record, size);
    }
    file.write(record);
    file.write(header);
    file.write(array.data, array.byteSize());
    offset += record.size() + size;
    written.push_back(std::move(entry));
  }
  std::string tail;
  for (const Written &entry : written)
    tail += centralRecord(entry);
  uint64_t directory = tail.size(), count = written.size();
  if (offset >= 0xffffffff || count >= 0xffff) {
    put(tail, end64Signature);
    put<uint64_t>(tail, 44);
    put<uint16_t>(tail, 45);
    put<uint16_t>(tail, 45);
    put<uint32_t>(tail, 0);
    put<uint32_t>(tail, 0);
    put(tail, count);
    put(tail, count);
    put(tail, directory);
    put(tail, offset);
    put(tail, locator64Signature);
    put<uint32_t>(tail, 0);
    put(tail, offset + directory);
    put<uint32_t>(tail, 1);
  }
  put(tail, endSignature);
  put<uint32_t>(tail, 0);
  put<uint16_t>(tail, std::min<uint64_t>(count, 0xffff));
  put<uint16_t>(tail, std::min<uint64_t>(count, 0xffff));
  put(tail, clip(directory));
  put(tail, clip(offset));
  put<uint16_t>(tail, 0);
  file.write(tail);
}

void writeNpz(const std::string &path, const NamedViews &arrays) {
  AtomicFile atomic(path);
  writeArchive(atomic.file(), arrays);
  atomic.commit();
}

} // namespace cleave
