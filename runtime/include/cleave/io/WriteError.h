// The message for a file that cannot be written; compiler and runtime share it.
#ifndef CLEAVE_IO_WRITEERROR_H
#define CLEAVE_IO_WRITEERROR_H

#include <cerrno>
#include <string>
#include <system_error>

namespace cleave {

/// "PATH: no space left on the device", or "PATH: cannot be written: ...".
inline std::string writeError(const std::string &path, std::error_code error) {
  // An exhausted quota is reported like a full disk.
  if (error.value() == ENOSPC || error.value() == EDQUOT)
    return path + ": no space left on the device";
  return path + ": cannot be written: " + error.message();
}

} // namespace cleave

#endif // CLEAVE_IO_WRITEERROR_H
