// What a context reports, as lines for people: place first, equal ones folded.

#ifndef CLEAVE_SUPPORT_MESSAGES_H
#define CLEAVE_SUPPORT_MESSAGES_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

/// Messages of one kind, in the order in which they came. Those of equal words
/// are one line, which counts them and names the first places.
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

/// Collects what a context reports while it lives; nothing reaches handlers
/// that were there before, but for what is no error under `onlyErrors`.
class Messages {
public:
  explicit Messages(mlir::MLIRContext &context, bool onlyErrors = false);
  ~Messages();
  Messages(const Messages &) = delete;
  Messages &operator=(const Messages &) = delete;

  FoldedMessages errors, warnings, remarks;
  /// Whether an error is of the machine (a full disk, a device that refuses),
  /// not of what was given.
  bool isMachineFault = false;
  /// Whether an error is of what was given, wherever it was found.
  bool isInputFault = false;

private:
  mlir::MLIRContext &context;
  mlir::DiagnosticEngine::HandlerID handler;
};

/// Keeps what a context reports from handlers that were there before, until it
/// is known whether it counts: what is neither passed on nor dropped is passed
/// on at the end.
class HeldMessages {
public:
  explicit HeldMessages(mlir::MLIRContext &context);
  ~HeldMessages();
  HeldMessages(const HeldMessages &) = delete;
  HeldMessages &operator=(const HeldMessages &) = delete;

  void drop() { held.clear(); }
  /// The errors among them are of the machine.
  void markErrors();

private:
  mlir::MLIRContext &context;
  mlir::DiagnosticEngine::HandlerID handler;
  std::vector<mlir::Diagnostic> held;
};

/// Say whose fault an error is.
void markAsMachineFault(mlir::Diagnostic &diagnostic);
void markAsInputFault(mlir::Diagnostic &diagnostic);

} // namespace cleave

#endif // CLEAVE_SUPPORT_MESSAGES_H
