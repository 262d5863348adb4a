// What the compiler says to the user: errors and warnings, one line each. What
// it decided and why are remarks, which `explain` alone tells.

#ifndef CLEAVE_TOOLS_DIAGNOSTICS_H
#define CLEAVE_TOOLS_DIAGNOSTICS_H

#include "Command.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cleave::driver {

// Messages of one kind, in the order in which they came. Those of equal words
// are one line, which counts them and names the first places.
class FoldedMessages {
public:
  void add(const std::string &place, const std::string &text);
  bool empty() const { return messages.empty(); }
  std::vector<std::string> lines() const;

private:
  struct Message {
    std::string text;
    std::vector<std::string> places; // different ones
    int64_t count;
  };
  std::vector<Message> messages;
};

// Collects what a context reports while it lives. Warnings go to stderr when it
// ends; remarks into `remarks`, else where a RemarkRecord keeps them.
class Diagnostics {
public:
  explicit Diagnostics(mlir::MLIRContext &context,
                       std::vector<std::string> *remarks = nullptr);
  ~Diagnostics();
  // The errors so far, a line each.
  std::string errorText() const;
  // Throws with what was reported, behind what it is about.
  [[noreturn]] void fail(ExitCode code, const std::string &about = "");

private:
  void flush();

  mlir::MLIRContext &context;
  std::vector<std::string> *remarks;
  mlir::DiagnosticEngine::HandlerID handler;
  FoldedMessages errors, warnings, told;
};

// Says a warning on stderr, once for a process.
void warn(const std::string &text);

// Keeps the warnings while it lives, for one that lives at a time.
class WarningRecord {
public:
  WarningRecord() { current = this; }
  ~WarningRecord() { current = nullptr; }
  std::string text; // as printed

private:
  friend void warn(const std::string &text);
  static WarningRecord *current;
};

// Keeps the remarks that no list was given for, for one that lives at a time.
class RemarkRecord {
public:
  RemarkRecord() { current = this; }
  ~RemarkRecord() { current = nullptr; }
  std::vector<std::string> remarks;

private:
  friend class Diagnostics;
  static RemarkRecord *current;
};

} // namespace cleave::driver

#endif // CLEAVE_TOOLS_DIAGNOSTICS_H
