//===- Error.h - errors of the host part ----------------------------------===//
//
// The host part of the runtime (files, data, training loop) reports an error by
// throwing Error, which carries the documented exit code of the process. The
// error is caught by the outermost caller: the main() of a tool, or a function
// that is documented not to throw.
//
//===----------------------------------------------------------------------===//
#ifndef CLEAVE_IO_ERROR_H
#define CLEAVE_IO_ERROR_H

#include "cleave/io/Escape.h"

#include <stdexcept>
#include <string>

namespace cleave {

enum class ExitCode {
  success = 0,
  no = 1,       ///< a negative answer, such as a failed check
  badInput = 2, ///< wrong usage or bad input, known before running
  failed = 3,   ///< a run failed
};

/// An error with a message of one line. Names and values that come from files
/// are escaped (Escape.h).
class Error : public std::runtime_error {
public:
  Error(ExitCode code, const std::string &message)
      : std::runtime_error(escaped(message)), code(code) {}
  const ExitCode code;
};

/// Input from the user is unusable. The message says what was found, where, and
/// what was expected.
struct InputError : Error {
  explicit InputError(const std::string &message)
      : Error(ExitCode::badInput, message) {}
};

/// The run cannot continue, for example because a rank failed.
struct RunError : Error {
  explicit RunError(const std::string &message)
      : Error(ExitCode::failed, message) {}
};

} // namespace cleave

#endif // CLEAVE_IO_ERROR_H
