//===- File.h - mapped input, checked output, atomic folders --------------===//
//
// Input files are mapped. Every write is checked: a full disk is an error that
// names the file, and never leaves a short file that looks complete.
//
//===----------------------------------------------------------------------===//
#ifndef CLEAVE_IO_FILE_H
#define CLEAVE_IO_FILE_H

#include "cleave/io/Temporary.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cleave {

/// A regular file, mapped read-only. Throws InputError that names the file if
/// it cannot be read or is a FIFO or a device. If the file is truncated while
/// it is mapped, the missing bytes read as zeros, and isCut() returns true.
class MappedFile {
public:
  explicit MappedFile(const std::string &path);
  ~MappedFile();
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&) = delete;

  const std::byte *data() const { return bytes; }
  size_t size() const { return length; }
  /// Returns the file's bytes as text.
  std::string_view text() const {
    return {reinterpret_cast<const char *>(bytes), length};
  }
  const std::string &path() const { return name; }
  /// Returns the time of the file's last modification, in nanoseconds since
  /// 1970, as it was when the file was opened.
  int64_t modifiedAt() const { return modified; }

  /// Returns whether bytes beyond the end of a truncated file were read (as
  /// zeros).
  bool isCut() const;
  /// Throws InputError if isCut().
  void checkWhole() const;
  /// Describes how the file's size or modification time differs from when it
  /// was opened; empty if neither differs.
  std::string change() const;

private:
  friend std::unique_ptr<MappedFile> mapInput(const std::string &path,
                                              std::string &reason);
  MappedFile() = default;
  /// Returns false on failure, with the reason (without the path) in `reason`.
  bool map(const std::string &path, std::string &reason);

  std::string name;
  const std::byte *bytes = nullptr;
  size_t length = 0;
  int64_t modified = 0;
  void *range = nullptr; ///< this mapping, for the handler of SIGBUS
};

/// Maps a file for code without exceptions. In the cases in which the
/// constructor of MappedFile throws, returns null, with the reason (without the
/// path) in `reason`.
std::unique_ptr<MappedFile> mapInput(const std::string &path,
                                     std::string &reason);

/// A new file. Every failure throws RunError; a full disk is named as such.
class OutputFile {
public:
  /// `expectedSize` reserves disk space, so that a full disk is detected at
  /// once. `label` is the file's name in messages; it defaults to the path.
  explicit OutputFile(const std::string &path, uint64_t expectedSize = 0,
                      const std::string &label = "");
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  void write(const void *data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Flushes the file to the device and closes it. A file that was not closed
  /// may be incomplete.
  void close();

private:
  std::string name;
  int descriptor = -1;
};

/// A log file, opened for appending. Each line is written by one call of
/// write(2), so lines of several processes do not mix.
class LineFile {
public:
  explicit LineFile(const std::string &path);
  ~LineFile();
  LineFile(const LineFile &) = delete;
  LineFile &operator=(const LineFile &) = delete;
  void append(std::string_view line);

private:
  std::string name;
  int descriptor = -1;
};

/// A folder that is created completely or not at all. Files are written to
/// path(), a hidden temporary folder beside the final one; commit() flushes the
/// folder and renames it. Without commit() the destructor removes the temporary
/// folder.
class AtomicFolder {
public:
  explicit AtomicFolder(const std::string &finalPath);
  AtomicFolder(const AtomicFolder &) = delete;
  AtomicFolder &operator=(const AtomicFolder &) = delete;

  const std::string &path() const { return temporary.path(); }
  /// Flushes the temporary folder to the device and renames it to the final
  /// path. If a folder with this path exists, it is replaced.
  void commit();

private:
  std::string final;
  TemporaryPath temporary;
};

/// Flushes the names in a folder to the device; "" is the current folder.
/// Throws RunError.
void syncFolder(const std::string &path);

/// Throws InputError if no file with this name can be created, because its
/// folder does not exist or because the path is itself a folder.
void checkOutputPath(const std::string &path);

/// Throws InputError if `output` is one of the files `inputs`, possibly under
/// another name.
void refuseToReplace(const std::string &output,
                     const std::vector<std::string> &inputs);

/// Throws InputError if `output` exists, is not empty, and does not begin with
/// `beginning`. This protects weights, data and models from being overwritten
/// by mistake. `kind` names the kind of file in the message, such as "a trace".
void refuseOtherKind(const std::string &output, std::string_view beginning,
                     const std::string &kind);

/// A file that is created completely or not at all. It is written under a
/// hidden temporary name beside the final one; commit() flushes and renames it.
/// Devices and pipes are written directly.
class AtomicFile {
public:
  explicit AtomicFile(const std::string &path);
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;

  OutputFile &file() { return *output; }
  void commit();

private:
  std::string final;
  std::unique_ptr<TemporaryPath> temporary; // null: devices and pipes
  std::unique_ptr<OutputFile> output;
};

/// Writes a file completely or not at all.
void writeFileAtomically(const std::string &path, std::string_view content);

/// Reads a whole text file. Throws InputError.
std::string readTextFile(const std::string &path);

/// For tests: after this many more bytes all output fails as on a full disk. A
/// negative number removes the limit.
void setWriteLimitForTests(int64_t bytes);

} // namespace cleave

#endif // CLEAVE_IO_FILE_H
