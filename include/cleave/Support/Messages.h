// Formats the diagnostics of a context as lines of text that begin with the
// location. Equal diagnostics become one line.

#ifndef CLEAVE_SUPPORT_MESSAGES_H
#define CLEAVE_SUPPORT_MESSAGES_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

/// Messages of one severity, in order of arrival. Messages with equal text
/// become one line, which states how many there are and their first locations.
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
    std::vector<std::string> places; ///< the locations, without repeats
    int64_t count;
  };
  std::vector<Message> messages;
};

/// Collects the diagnostics of a context during the lifetime of this object.
/// Handlers that were registered earlier do not see the diagnostics; with
/// `onlyErrors` they still get all diagnostics except errors.
class Messages {
public:
  explicit Messages(mlir::MLIRContext &context, bool onlyErrors = false);
  ~Messages();
  Messages(const Messages &) = delete;
  Messages &operator=(const Messages &) = delete;

  FoldedMessages errors, warnings, remarks;
  /// True if any error was marked as due to the machine (markAsMachineFault),
  /// such as a full disk or a failing device.
  bool isMachineFault = false;
  /// True if any error was marked as due to the input (markAsInputFault).
  bool isInputFault = false;

private:
  mlir::MLIRContext &context;
  mlir::DiagnosticEngine::HandlerID handler;
};

/// Holds the diagnostics of a context back from handlers that were registered
/// earlier. Diagnostics that were not dropped are passed on when this object is
/// destroyed.
class HeldMessages {
public:
  explicit HeldMessages(mlir::MLIRContext &context);
  ~HeldMessages();
  HeldMessages(const HeldMessages &) = delete;
  HeldMessages &operator=(const HeldMessages &) = delete;

  void drop() { held.clear(); }
  /// Marks the errors that this object has collected so far as caused by the
  /// machine (such as a full disk), not by the input. The caller uses this if
  /// it knows that the input is correct.
  void markErrors();

private:
  mlir::MLIRContext &context;
  mlir::DiagnosticEngine::HandlerID handler;
  std::vector<mlir::Diagnostic> held;
};

/// These functions mark an error as caused by the machine (such as a full
/// disk), or by the input.
void markAsMachineFault(mlir::Diagnostic &diagnostic);
void markAsInputFault(mlir::Diagnostic &diagnostic);

} // namespace cleave

#endif // CLEAVE_SUPPORT_MESSAGES_H
