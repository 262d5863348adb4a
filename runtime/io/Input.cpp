#include "cleave/io/Input.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cleave {

int openInput(const std::string &path, std::string &reason) {
  // Without O_NONBLOCK, opening a FIFO would wait for its writer.
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info{};
  if (descriptor < 0 || ::fstat(descriptor, &info) != 0)
    reason = std::strerror(errno);
  else if (S_ISDIR(info.st_mode))
    reason = std::strerror(EISDIR);
  else if (!S_ISREG(info.st_mode))
    reason = "it is no regular file";
  else
    return descriptor;
  if (descriptor >= 0)
    ::close(descriptor);
  return -1;
}

bool readInput(const std::string &path, std::string &bytes,
               std::string &reason) {
  int descriptor = openInput(path, reason);
  if (descriptor < 0)
    return false;
  bytes.clear();
  char part[65536];
  ssize_t size = 0;
  while ((size = ::read(descriptor, part, sizeof part)) > 0 ||
         (size < 0 && errno == EINTR))
    bytes.append(part, size > 0 ? static_cast<size_t>(size) : 0);
  if (size < 0)
    reason = std::strerror(errno);
  ::close(descriptor);
  return size == 0;
}

std::string faultOfFile(const std::string &path, const std::string &wanted) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
    return path + ": is a folder, expected " + wanted;
  std::string reason;
  int descriptor = openInput(path, reason);
  if (descriptor < 0)
    return path + ": cannot be read: " + reason;
  ::close(descriptor);
  return "";
}

} // namespace cleave
