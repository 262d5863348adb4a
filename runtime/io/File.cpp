//===- File.cpp - mapped input, checked output, atomic folders ------------===//
#include "cleave/io/File.h"
#include "cleave/io/Error.h"
#include "cleave/io/Input.h"
#include "cleave/io/WriteError.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cleave {

static std::atomic<int64_t> writeLimit{-1};

void setWriteLimitForTests(int64_t bytes) { writeLimit = bytes; }

[[noreturn]] static void failedToWrite(const std::string &path, int error) {
  throw RunError(writeError(path, {error, std::generic_category()}));
}

//===----------------------------------------------------------------------===//
// OutputFile, LineFile
//===----------------------------------------------------------------------===//

static void writeAll(const std::string &path, int descriptor, const void *data,
                     size_t size) {
  if (int64_t limit = writeLimit.load(); limit >= 0) {
    if (static_cast<int64_t>(size) > limit)
      failedToWrite(path, ENOSPC);
    writeLimit -= static_cast<int64_t>(size);
  }
  auto *at = static_cast<const char *>(data);
  while (size) {
    // Linux writes at most 2 GiB per call.
    ssize_t count = ::write(descriptor, at, std::min(size, size_t(1) << 30));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      failedToWrite(path, errno);
    at += count;
    size -= static_cast<size_t>(count);
  }
}

/// Opens a file for writing. It does not wait until a FIFO has a reader.
static int openToWrite(const std::string &path, int how) {
  int descriptor = ::open(
      path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | how, 0666);
  if (descriptor >= 0)
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}

OutputFile::OutputFile(const std::string &path, uint64_t expectedSize,
                       const std::string &label)
    : name(label.empty() ? path : label) {
  descriptor = openToWrite(path, O_TRUNC);
  if (descriptor < 0)
    failedToWrite(name, errno);
  // Not all file systems reserve space. On those a write fails later, if the
  // disk is full.
  if (expectedSize &&
      ::fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0,
                  static_cast<off_t>(expectedSize)) != 0 &&
      (errno == ENOSPC || errno == EDQUOT)) {
    int error = errno;
    ::close(descriptor);
    failedToWrite(name, error);
  }
}

OutputFile::~OutputFile() {
  if (descriptor >= 0)
    ::close(descriptor);
}

void OutputFile::write(const void *data, size_t size) {
  writeAll(name, descriptor, data, size);
}

void OutputFile::close() {
  int error = ::fsync(descriptor) != 0 ? errno : 0;
  if (error == EINVAL || error == EROFS) // a device or pipe cannot be synced
    error = 0;
  if (::close(descriptor) != 0 && !error)
    error = errno;
  descriptor = -1;
  if (error)
    failedToWrite(name, error);
}

LineFile::LineFile(const std::string &path) : name(path) {
  descriptor = openToWrite(path, O_APPEND);
  if (descriptor < 0)
    failedToWrite(path, errno);
}

LineFile::~LineFile() {
  if (descriptor >= 0)
    ::close(descriptor);
}

void LineFile::append(std::string_view line) {
  std::string text(line);
  text += '\n';
  writeAll(name, descriptor, text.data(), text.size());
}

//===----------------------------------------------------------------------===//
// Atomic writes
//===----------------------------------------------------------------------===//

void syncFolder(const std::string &path) {
  int descriptor = ::open(path.empty() ? "." : path.c_str(),
                          O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // A folder that can be written to but not read cannot be opened, and so not
  // flushed. Its files are flushed one by one when they are closed.
  if (descriptor < 0 && errno == EACCES)
    return;
  if (descriptor < 0)
    failedToWrite(path, errno);
  int error = ::fsync(descriptor) != 0 ? errno : 0;
  ::close(descriptor);
  if (error && error != EINVAL)
    failedToWrite(path, error);
}

/// Returns the folder and the last component of a path: "runs/x/" -> ("runs",
/// "x").
static std::pair<std::string, std::string> splitPath(const std::string &path) {
  fs::path normal = fs::path(path).lexically_normal();
  if (!normal.has_filename())
    normal = normal.parent_path();
  std::string parent = normal.parent_path().string();
  return {parent.empty() ? "." : parent, normal.filename().string()};
}

/// Removes temporary files of `path` that killed processes left in its folder.
static void removeAbandonedOf(const std::string &path) {
  auto [parent, name] = splitPath(path);
  removeAbandoned(parent, name.substr(0, 120));
}

AtomicFolder::AtomicFolder(const std::string &finalPath)
    : final(finalPath), temporary(temporaryNameOf(finalPath, "tmp")) {
  removeAbandonedOf(final);
  std::error_code ignored;
  fs::remove_all(path(), ignored); // left by a killed process with our id
  std::error_code error;
  fs::create_directories(path(), error);
  if (error)
    failedToWrite(path(), error.value());
  temporary.guard();
}

void AtomicFolder::commit() {
  temporary.unguard();
  syncFolder(path());
  std::error_code ignored;
  // Exchanges the new folder with the old one in one step, so that the final
  // name always exists. The temporary name then belongs to the old folder,
  // which is removed.
  if (::renameat2(AT_FDCWD, path().c_str(), AT_FDCWD, final.c_str(),
                  RENAME_EXCHANGE) == 0) {
    syncFolder(splitPath(final).first);
    fs::remove_all(path(), ignored);
    return;
  }
  // The exchange has failed: there is no old folder, or the file system cannot
  // exchange two names.
  std::string replaced;
  struct stat info;
  if (::lstat(final.c_str(), &info) == 0) {
    replaced = temporaryNameOf(final, "old");
    if (::rename(final.c_str(), replaced.c_str()) != 0)
      failedToWrite(final, errno);
  }
  if (::rename(path().c_str(), final.c_str()) != 0) {
    int error = errno;
    if (!replaced.empty())
      ::rename(replaced.c_str(), final.c_str());
    failedToWrite(final, error);
  }
  temporary.keep();
  syncFolder(splitPath(final).first);
  if (!replaced.empty())
    TemporaryPath old(replaced);
}

void checkOutputPath(const std::string &path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    throw InputError(path + ": is a folder, expected a file to write");
  std::string parent = splitPath(path).first;
  if (!fs::is_directory(parent, ignored))
    throw InputError(path + ": cannot be written: there is no folder '" +
                     parent + "'");
}

void refuseToReplace(const std::string &output,
                     const std::vector<std::string> &inputs) {
  for (const std::string &input : inputs) {
    std::error_code error; // a missing file is no error
    if (!input.empty() && fs::equivalent(output, input, error))
      throw InputError(output + ": is " +
                       (input == output ? "an input of this command"
                                        : "the input '" + input + "'") +
                       ", which would be replaced; give another output");
  }
}

void refuseOtherKind(const std::string &output, std::string_view beginning,
                     const std::string &kind) {
  std::error_code error;
  if (!fs::is_regular_file(output, error) || fs::file_size(output, error) == 0)
    return;
  std::string found(beginning.size(), '\0'), reason;
  int descriptor = openInput(output, reason);
  ssize_t size =
      descriptor < 0 ? -1 : ::read(descriptor, found.data(), found.size());
  if (descriptor >= 0)
    ::close(descriptor);
  if (size != static_cast<ssize_t>(beginning.size()) || found != beginning)
    throw InputError(output + ": exists and is not " + kind +
                     ", and would be replaced; give another file");
}

AtomicFile::AtomicFile(const std::string &path) : final(path) {
  checkOutputPath(path);
  struct stat info;
  bool isDevice = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  if (!isDevice)
    removeAbandonedOf(path);
  if (!isDevice)
    temporary = std::make_unique<TemporaryPath>(temporaryNameOf(path, "tmp"));
  output = std::make_unique<OutputFile>(temporary ? temporary->path() : path, 0,
                                        final);
}

void AtomicFile::commit() {
  output->close();
  if (!temporary)
    return;
  if (::rename(temporary->path().c_str(), final.c_str()) != 0)
    failedToWrite(final, errno);
  temporary->keep();
  syncFolder(splitPath(final).first);
}

void writeFileAtomically(const std::string &path, std::string_view content) {
  AtomicFile atomic(path);
  atomic.file().write(content);
  atomic.commit();
}

std::string readTextFile(const std::string &path) {
  MappedFile file(path);
  std::string text(reinterpret_cast<const char *>(file.data()), file.size());
  file.checkWhole();
  return text;
}

} // namespace cleave
