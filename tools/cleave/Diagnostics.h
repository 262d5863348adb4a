// What the compiler says to the user: errors and warnings, one line each. What
// it decided and why are remarks, which `explain` alone tells.

#ifndef CLEAVE_TOOLS_DIAGNOSTICS_H
#define CLEAVE_TOOLS_DIAGNOSTICS_H

#include "Command.h"

#include "cleave/Support/Messages.h"

#include "mlir/IR/MLIRContext.h"

#include <string>
#include <vector>

namespace cleave::driver {

// Collects what a context reports while it lives. Warnings go to stderr when a
// phase or it ends; remarks into `remarks`, if it is given.
class Diagnostics {
public:
  explicit Diagnostics(mlir::MLIRContext &context,
                       std::vector<std::string> *remarks = nullptr)
      : messages(context), remarks(remarks) {}
  ~Diagnostics() { flush(); }
  // The errors so far, a line each.
  std::string errorText() const;
  // Throws what was reported. `code`: where that does not say whose fault it
  // is.
  [[noreturn]] void fail(ExitCode code = BadUsage);
  // The value of what has succeeded.
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

// Says a warning on stderr, once for a process.
void warn(const std::string &text);

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_DIAGNOSTICS_H
