// How a file that cannot be written is said, by compiler and runtime alike.
#ifndef CLEAVE_IO_WRITEERROR_H
#define CLEAVE_IO_WRITEERROR_H

#include <cerrno>
#include <string>
#include <system_error>

namespace cleave {

/// "PATH: no space left on the device", or "PATH: cannot be written: ...".
inline std::string writeError(const std::string &path, std::error_code error) {
  // A quota that is used up is no other matter to the user.
  if (error.value() == ENOSPC || error.value() == EDQUOT)
    return path + ": no space left on the device";
  return path + ": cannot be written: " + error.message();
}

} // namespace cleave

#endif // CLEAVE_IO_WRITEERROR_H
