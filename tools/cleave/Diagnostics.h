// The compiler's messages to the user: errors and warnings, one line each.
// Decisions and their reasons are remarks, which only `explain` shows.

#ifndef CLEAVE_TOOLS_DIAGNOSTICS_H
#define CLEAVE_TOOLS_DIAGNOSTICS_H

#include "Command.h"

#include "cleave/Support/Messages.h"

#include "mlir/IR/MLIRContext.h"

#include <string>
#include <vector>

namespace cleave::driver {

// Collects the diagnostics of a context during its lifetime. Warnings are
// printed to stderr at the end of each phase and by the destructor; remarks are
// stored in `remarks` if it is given.
class Diagnostics {
public:
  explicit Diagnostics(mlir::MLIRContext &context,
                       std::vector<std::string> *remarks = nullptr)
      : messages(context), remarks(remarks) {}
  ~Diagnostics() { flush(); }
  // The errors so far, a line each.
  std::string errorText() const;
  // Throws the reported errors. `code` is the exit code if the errors do not
  // determine one.
  [[noreturn]] void fail(ExitCode code = BadUsage);
  // Returns the value of `result`. If it failed, throws the reported errors.
  template <typename T>
  T need(mlir::FailureOr<T> result, ExitCode code = BadUsage) {
    if (mlir::failed(result))
      fail(code);
    flush();
    return std::move(*result);
  }
  void need(mlir::LogicalResult result, ExitCode code = BadUsage) {
    if (mlir::failed(result))
      fail(code);
    flush();
  }

private:
  void flush();

  Messages messages;
  std::vector<std::string> *remarks;
};

// Prints a warning on stderr. If the process has already printed the same text,
// nothing is printed.
void warn(const std::string &text);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_DIAGNOSTICS_H
