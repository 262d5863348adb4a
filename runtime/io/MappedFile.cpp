//===- MappedFile.cpp - input by mapping, guarded against cut files -------===//
//
// If a file is truncated while it is mapped, reading a page beyond its new end
// raises SIGBUS. The signal handler maps zeros to this page and marks the file
// as cut. Readers of the file check the mark after they have read.
//
//===----------------------------------------------------------------------===//
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/Input.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cleave {

namespace {

/// The address range of a mapped file. The signal handler reads it without a
/// lock, so `end` is set last and cleared first.
struct Range {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> isCut{false};
};

/// The ranges of all mapped files. There are more entries than files are ever
/// open at a time; if there were not, further files would not be guarded.
std::array<Range, 4096> ranges;
std::mutex mutex; // held while looking for a free range

uintptr_t pageSize = 4096;

void onBusError(int, siginfo_t *info, void *) {
  int error = errno;
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Range &range : ranges) {
    const uintptr_t end = range.end.load();
    if (at < range.begin.load() || at >= end)
      continue;
    const uintptr_t page = at & ~(pageSize - 1);
    range.isCut = true;
    if (::mmap(reinterpret_cast<void *>(page), pageSize, PROT_READ,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
      errno = error;
      return;
    }
  }
  // The address is in no file that this process has mapped here. After the
  // handler returns, the access faults again, and the signal then ends the
  // process.
  ::signal(SIGBUS, SIG_DFL);
  errno = error;
}

Range *guard(const std::byte *bytes, size_t length) {
  std::lock_guard lock(mutex);
  static const bool isCaught = [] {
    pageSize = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action{};
    action.sa_sigaction = onBusError;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return ::sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  auto free = std::find_if(ranges.begin(), ranges.end(),
                           [](const Range &range) { return !range.begin; });
  if (!isCaught || free == ranges.end())
    return nullptr;
  free->isCut = false;
  free->begin = reinterpret_cast<uintptr_t>(bytes);
  free->end = reinterpret_cast<uintptr_t>(bytes) + length;
  return &*free;
}

int64_t timeOf(const struct stat &info) {
  return info.st_mtim.tv_sec * int64_t(1'000'000'000) + info.st_mtim.tv_nsec;
}

} // namespace

bool MappedFile::map(const std::string &path, std::string &reason) {
  name = path;
  int descriptor = openInput(path, reason);
  if (descriptor < 0)
    return false;
  struct stat info{};
  void *address = nullptr;
  if (::fstat(descriptor, &info) != 0)
    address = MAP_FAILED;
  else if (info.st_size > 0)
    address = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ,
                     MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED)
    reason = std::strerror(errno);
  ::close(descriptor);
  if (address == MAP_FAILED)
    return false;
  modified = timeOf(info);
  if (address) {
    length = static_cast<size_t>(info.st_size);
    bytes = static_cast<const std::byte *>(address);
    range = guard(bytes, length);
  }
  return true;
}

MappedFile::MappedFile(const std::string &path) {
  std::string reason;
  if (!map(path, reason))
    throw InputError(path + ": cannot be read: " + reason);
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : name(std::move(other.name)), bytes(other.bytes), length(other.length),
      modified(other.modified), range(other.range) {
  other.bytes = nullptr;
  other.range = nullptr;
  other.length = 0;
}

MappedFile::~MappedFile() {
  if (auto *own = static_cast<Range *>(range)) {
    own->end = 0;
    own->begin = 0;
  }
  if (bytes)
    ::munmap(const_cast<std::byte *>(bytes), length);
}

std::unique_ptr<MappedFile> mapInput(const std::string &path,
                                     std::string &reason) {
  std::unique_ptr<MappedFile> file(new MappedFile());
  return file->map(path, reason) ? std::move(file) : nullptr;
}

bool MappedFile::isCut() const {
  auto *own = static_cast<Range *>(range);
  return own && own->isCut;
}

void MappedFile::checkWhole() const {
  if (isCut())
    throw InputError(name + ": was cut while it was read: it had " +
                     std::to_string(length) + " bytes when it was opened");
}

std::string MappedFile::change() const {
  struct stat now{};
  if (::stat(name.c_str(), &now) != 0)
    return name + ": cannot be looked at any more: " + std::strerror(errno);
  if (static_cast<size_t>(now.st_size) != length)
    return name + ": has " + std::to_string(now.st_size) + " bytes, and had " +
           std::to_string(length) + " when it was opened";
  if (isCut() || timeOf(now) != modified)
    return name + ": has changed since it was opened";
  return "";
}

} // namespace cleave
