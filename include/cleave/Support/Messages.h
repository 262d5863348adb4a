// The diagnostics of a context as lines of text: location first, equal ones
// folded.

#ifndef CLEAVE_SUPPORT_MESSAGES_H
#define CLEAVE_SUPPORT_MESSAGES_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

/// Messages of one severity, in order of arrival. Messages of equal text become
/// one line, which counts them and names the first locations.
class FoldedMessages {
public:
  void add(mlir::Diagnostic &diagnostic);
  void clear() { messages.clear(); }
  bool empty() const { return messages.empty(); }
  std::vector<std::string> lines() const;

private:
  void add(const std::string &place, const std::string &text);

  struct Message {
    std::string text;
    std::vector<std::string> places; ///< different ones
    int64_t count;
  };
  std::vector<Message> messages;
};

/// Collects the diagnostics of a context while this object lives. Earlier
/// handlers do not see them; with `onlyErrors` they still get all but errors.
class Messages {
public:
  explicit Messages(mlir::MLIRContext &context, bool onlyErrors = false);
  ~Messages();
  Messages(const Messages &) = delete;
  Messages &operator=(const Messages &) = delete;

  FoldedMessages errors, warnings, remarks;
  /// Whether an error is due to the machine (a full disk, a device that
  /// refuses), not to the input.
  bool isMachineFault = false;
  /// Whether an error is due to the input, wherever it was found.
  bool isInputFault = false;

private:
  mlir::MLIRContext &context;
  mlir::DiagnosticEngine::HandlerID handler;
};

/// Holds the diagnostics of a context back from earlier handlers until it is
/// known whether they count: those that were not dropped are passed on when
/// this object is destroyed.
class HeldMessages {
public:
  explicit HeldMessages(mlir::MLIRContext &context);
  ~HeldMessages();
  HeldMessages(const HeldMessages &) = delete;
  HeldMessages &operator=(const HeldMessages &) = delete;

  void drop() { held.clear(); }
  /// Marks the held errors as due to the machine.
  void markErrors();

private:
  mlir::MLIRContext &context;
  mlir::DiagnosticEngine::HandlerID handler;
  std::vector<mlir::Diagnostic> held;
};

/// Mark an error as due to the machine, or to the input.
void markAsMachineFault(mlir::Diagnostic &diagnostic);
void markAsInputFault(mlir::Diagnostic &diagnostic);

} // namespace cleave

#endif // CLEAVE_SUPPORT_MESSAGES_H
