//===- File.cpp - mapped input, checked output, atomic folders
//-------------===//
#include "cleave/io/File.h"
#include "cleave/io/Error.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cleave {

static std::atomic<int64_t> writeLimit{-1};

void setWriteLimitForTests(int64_t bytes) { writeLimit = bytes; }

[[noreturn]] static void failedToWrite(const std::string &path, int error) {
  if (error == ENOSPC || error == EDQUOT)
    throw RunError(path + ": no space left on the device");
  throw RunError(path + ": cannot be written: " + std::strerror(error));
}

[[noreturn]] static void failedToRead(const std::string &path, int error) {
  throw InputError(path + ": cannot be read: " + std::strerror(error));
}

//===----------------------------------------------------------------------===//
// MappedFile
//===----------------------------------------------------------------------===//

MappedFile::MappedFile(const std::string &path) : name(path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    failedToRead(path, errno);
  struct stat info;
  int error = 0;
  if (::fstat(descriptor, &info) != 0)
    error = errno;
  else if (!S_ISREG(info.st_mode))
    error = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
  if (!error && info.st_size > 0) {
    length = static_cast<size_t>(info.st_size);
    void *address =
        ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED)
      error = errno;
    else
      bytes = static_cast<const std::byte *>(address);
  }
  ::close(descriptor);
  if (error)
    failedToRead(path, error);
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : name(std::move(other.name)), bytes(other.bytes), length(other.length) {
  other.bytes = nullptr;
  other.length = 0;
}

MappedFile::~MappedFile() {
  if (bytes)
    ::munmap(const_cast<std::byte *>(bytes), length);
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
    // Linux moves at most 2 GiB per call.
    ssize_t count = ::write(descriptor, at, std::min(size, size_t(1) << 30));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      failedToWrite(path, errno);
    at += count;
    size -= static_cast<size_t>(count);
  }
}

OutputFile::OutputFile(const std::string &path, uint64_t expectedSize,
                       const std::string &label)
    : name(label.empty() ? path : label) {
  descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0)
    failedToWrite(name, errno);
  // Not all file systems reserve space; then the writes find out.
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
  descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
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

static void syncFolder(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    failedToWrite(path, errno);
  int error = ::fsync(descriptor) != 0 ? errno : 0;
  ::close(descriptor);
  if (error && error != EINVAL)
    failedToWrite(path, error);
}

/// The folder and the last component of a path, "runs/x/" -> ("runs", "x").
static std::pair<std::string, std::string> splitPath(const std::string &path) {
  fs::path normal = fs::path(path).lexically_normal();
  if (!normal.has_filename())
    normal = normal.parent_path();
  std::string parent = normal.parent_path().string();
  return {parent.empty() ? "." : parent, normal.filename().string()};
}

static std::string temporaryName(const std::string &path, const char *what) {
  auto [parent, name] = splitPath(path);
  return parent + "/." + name + "." + what + "-" + std::to_string(::getpid());
}

AtomicFolder::AtomicFolder(const std::string &finalPath)
    : final(finalPath), temporary(temporaryName(finalPath, "tmp")) {
  std::error_code ignored;
  fs::remove_all(path(), ignored); // of a killed process with our number
  std::error_code error;
  fs::create_directories(path(), error);
  if (error)
    failedToWrite(path(), error.value());
}

void AtomicFolder::commit() {
  syncFolder(path());
  std::error_code ignored;
  // At every moment one of the two has the name; what is temporary afterwards
  // is the old one.
  if (::renameat2(AT_FDCWD, path().c_str(), AT_FDCWD, final.c_str(),
                  RENAME_EXCHANGE) == 0) {
    syncFolder(splitPath(final).first);
    fs::remove_all(path(), ignored);
    return;
  }
  // There is no old one, or the file system cannot exchange.
  std::string replaced;
  struct stat info;
  if (::lstat(final.c_str(), &info) == 0) {
    replaced = temporaryName(final, "old");
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
    std::error_code error; // of what is not there
    if (!input.empty() && fs::equivalent(output, input, error))
      throw InputError(output + ": is " +
                       (input == output ? "an input of this command"
                                        : "the input '" + input + "'") +
                       ", which would be replaced; give another output");
  }
}

AtomicFile::AtomicFile(const std::string &path) : final(path) {
  checkOutputPath(path);
  struct stat info;
  bool isDevice = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  if (!isDevice)
    temporary = std::make_unique<TemporaryPath>(temporaryName(path, "tmp"));
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
  return std::string(reinterpret_cast<const char *>(file.data()), file.size());
}

} // namespace cleave
