//===- File.h - mapped input, checked output, atomic folders --------------===//
//
// Reading maps files; writing checks every call, so that a full disk is an
// error with the file's name and never a short file that looks whole.
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

/// A regular file mapped read-only. Throws InputError naming the file, also
/// where it is a FIFO or a device. Bytes of a file that is cut while it is
/// mapped read as zeros, and isCut() says so.
class MappedFile {
public:
  explicit MappedFile(const std::string &path);
  ~MappedFile();
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&) = delete;

  const std::byte *data() const { return bytes; }
  size_t size() const { return length; }
  const std::string &path() const { return name; }
  /// When it was changed last before it was opened: nanoseconds since 1970.
  int64_t modifiedAt() const { return modified; }

  /// Whether bytes were read that are not there any more.
  bool isCut() const;
  /// Throws InputError where they were.
  void checkWhole() const;
  /// Whether the file under this name has another size or time by now, in
  /// words; "": it has not.
  std::string change() const;

private:
  friend std::unique_ptr<MappedFile> mapInput(const std::string &path,
                                              std::string &reason);
  MappedFile() = default;
  /// False, and why in words without the path.
  bool map(const std::string &path, std::string &reason);

  std::string name;
  const std::byte *bytes = nullptr;
  size_t length = 0;
  int64_t modified = 0;
  void *range = nullptr; ///< what guards it
};

/// For code without exceptions: null, and why in words without the path, where
/// the constructor would throw.
std::unique_ptr<MappedFile> mapInput(const std::string &path,
                                     std::string &reason);

/// A new file. Every failure throws RunError; a full disk says so.
class OutputFile {
public:
  /// `expectedSize` reserves the space, so that a full disk shows at once.
  /// `label`: what messages call the file; default: its path.
  explicit OutputFile(const std::string &path, uint64_t expectedSize = 0,
                      const std::string &label = "");
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  void write(const void *data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Syncs to the device and closes. Without it the file may be incomplete.
  void close();

private:
  std::string name;
  int descriptor = -1;
};

/// Opens for appending whole lines (a log); each line is one write.
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

/// A folder that appears whole or not at all: files are written below path(),
/// a hidden temporary name beside the final one; commit() syncs the folder and
/// renames it. Without commit() the destructor removes what was written.
class AtomicFolder {
public:
  explicit AtomicFolder(const std::string &finalPath);
  AtomicFolder(const AtomicFolder &) = delete;
  AtomicFolder &operator=(const AtomicFolder &) = delete;

  const std::string &path() const { return temporary.path(); }
  /// Takes the place of a folder of the same name, if there is one.
  void commit();

private:
  std::string final;
  TemporaryPath temporary;
};

/// Makes the names in a folder last; "": the current one. Throws RunError.
void syncFolder(const std::string &path);

/// Throws InputError unless a file of this name can be made: its folder exists,
/// and it is no folder itself.
void checkOutputPath(const std::string &path);

/// Throws InputError where `output` is one of the files `inputs`, under
/// whatever name.
void refuseToReplace(const std::string &output,
                     const std::vector<std::string> &inputs);

/// Throws InputError where `output` is there already, holds something, and does
/// not begin as a file of its kind does: weights, data or a model were meant to
/// stay. `kind`: "a trace".
void refuseOtherKind(const std::string &output, std::string_view beginning,
                     const std::string &kind);

/// A file that appears whole or not at all: written under a hidden temporary
/// name beside the final one; commit() syncs and renames it. Devices and pipes
/// are written directly.
class AtomicFile {
public:
  explicit AtomicFile(const std::string &path);
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;

  OutputFile &file() { return *output; }
  void commit();

private:
  std::string final;
  std::unique_ptr<TemporaryPath> temporary; // null: written directly
  std::unique_ptr<OutputFile> output;
};

/// A file that appears whole or not at all.
void writeFileAtomically(const std::string &path, std::string_view content);

/// Reads a whole text file. Throws InputError.
std::string readTextFile(const std::string &path);

/// Tests only: all output together fails as on a full disk after so many more
/// bytes. Negative: no limit.
void setWriteLimitForTests(int64_t bytes);

} // namespace cleave

#endif // CLEAVE_IO_FILE_H
