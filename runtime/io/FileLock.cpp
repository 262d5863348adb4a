//===- FileLock.cpp - advisory locks between processes --------------------===//
#include "cleave/io/FileLock.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace cleave {

FileLock::FileLock(FileLock &&other) noexcept
    : descriptor(std::exchange(other.descriptor, -1)) {}

FileLock &FileLock::operator=(FileLock &&other) noexcept {
  std::swap(descriptor, other.descriptor);
  return *this;
}

FileLock::Outcome FileLock::tryLock(const std::string &path, Kind kind,
                                    bool create) {
  release();
  // Only plain files are opened, no links or devices. NFS requires that a file
  // is open for writing if it is locked exclusively. If the file cannot be
  // opened for writing, for example because it belongs to another user, it is
  // opened for reading, which suffices on other file systems.
  const int flags =
      O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (create ? O_CREAT : 0);
  int file = -1;
  if (kind == Exclusive)
    file = ::open(path.c_str(), O_RDWR | flags, 0666);
  if (file < 0)
    file = ::open(path.c_str(), O_RDONLY | flags, 0666);
  if (file < 0)
    return Outcome::Missing;
  struct stat opened{}, named{};
  if (::fstat(file, &opened) != 0 || !S_ISREG(opened.st_mode)) {
    ::close(file);
    return Outcome::Missing;
  }
  int result;
  do
    result = ::flock(file, (kind == Shared ? LOCK_SH : LOCK_EX) | LOCK_NB);
  while (result != 0 && errno == EINTR);
  if (result != 0) {
    bool isBusy = errno == EWOULDBLOCK;
    ::close(file);
    return isBusy ? Outcome::Busy : Outcome::Unknown;
  }
  if (::lstat(path.c_str(), &named) != 0 || named.st_ino != opened.st_ino ||
      named.st_dev != opened.st_dev) {
    ::close(file);
    return Outcome::Missing;
  }
  descriptor = file;
  return Outcome::Held;
}

FileLock::Outcome FileLock::lockSoon(const std::string &path, Kind kind,
                                     bool create) {
  constexpr int most = 100;
  Outcome outcome = tryLock(path, kind, create);
  for (int i = 0; i < most && outcome == Outcome::Busy; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    outcome = tryLock(path, kind, create);
  }
  return outcome;
}

bool FileLock::isNamed(const std::string &path) const {
  struct stat opened{}, named{};
  return descriptor >= 0 && ::fstat(descriptor, &opened) == 0 &&
         ::lstat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino &&
         named.st_dev == opened.st_dev;
}

void FileLock::keep() {
  if (descriptor >= 0)
    ::fcntl(descriptor, F_SETFD, 0);
  descriptor = -1;
}

void FileLock::release() {
  if (descriptor >= 0)
    ::close(descriptor);
  descriptor = -1;
}

void FileLock::touch() const {
  if (descriptor >= 0)
    ::futimens(descriptor, nullptr);
}

} // namespace cleave
