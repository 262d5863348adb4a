// Errors inside the runtime are exceptions. guarded() converts them to the
// statuses of the C ABI, because no exception may leave the C ABI.
#ifndef CLEAVE_RUNTIME_ERROR_H
#define CLEAVE_RUNTIME_ERROR_H

#include "cleave/io/Escape.h"
#include "cleave/runtime.h"

#include <new>
#include <stdexcept>
#include <string>

namespace cleave {

// An error with a message of one line, in which names from programs are
// escaped.
struct RuntimeError : std::runtime_error {
  RuntimeError(cleave_status status, const std::string &message, int rank = -1)
      : std::runtime_error(escaped(message)), status(status), rank(rank) {}
  cleave_status status;
  int rank; // the rank to blame, if not the throwing one
};

// Thrown in a waiting rank when another rank has failed.
struct Aborted : std::exception {
  explicit Aborted(int waitedFor = -1) : waitedFor(waitedFor) {}
  int waitedFor; // first rank that had not arrived; -1: none
  const char *what() const noexcept override { return "another rank failed"; }
};

[[noreturn]] inline void fail(cleave_status status,
                              const std::string &message) {
  throw RuntimeError(status, message);
}

// Stores the message for cleave_last_error() and returns the status.
cleave_status report(cleave_status status, const char *message) noexcept;

template <class Body> cleave_status guarded(Body body) noexcept {
  try {
    body();
    return CLEAVE_OK;
  } catch (const RuntimeError &error) {
    return report(error.status, error.what());
  } catch (const std::bad_alloc &) {
    return report(CLEAVE_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception &error) {
    return report(CLEAVE_INTERNAL, error.what());
  } catch (...) {
    return report(CLEAVE_INTERNAL, "unknown exception");
  }
}

} // namespace cleave

#endif // CLEAVE_RUNTIME_ERROR_H
