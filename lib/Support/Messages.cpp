// Formats diagnostics of MLIR as lines for users.

#include "cleave/Support/Messages.h"

#include "cleave/Support/Locations.h"

#include "mlir/IR/Location.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace mlir;

namespace cleave {

/// Removes "'nn.attention' op" from the message about a node, since the user
/// knows the node's name and not the operation.
static std::string withoutOperation(Location loc, std::string text) {
  size_t end = text.find("' op ");
  bool isOperation = text.starts_with("'") && end != std::string::npos &&
                     text.find_first_of(" '", 1) == end;
  return isa<NameLoc>(loc) && isOperation ? text.substr(end + 5) : text;
}

static std::string with(const std::string &place, const std::string &text) {
  return place.empty() ? text : place + ": " + text;
}

void FoldedMessages::add(const std::string &place, const std::string &text) {
  for (Message &message : messages) {
    if (message.text != text)
      continue;
    ++message.count;
    if (!place.empty() && !llvm::is_contained(message.places, place))
      message.places.push_back(place);
    return;
  }
  messages.push_back({text, {}, 1});
  if (!place.empty())
    messages.back().places.push_back(place);
}

void FoldedMessages::add(Diagnostic &diagnostic) {
  std::string text =
      withoutOperation(diagnostic.getLocation(), diagnostic.str());
  for (Diagnostic &note : diagnostic.getNotes())
    text += "; " + with(describeLocation(note.getLocation()), note.str());
  add(describeLocation(diagnostic.getLocation()), text);
}

std::vector<std::string> FoldedMessages::lines() const {
  constexpr size_t most = 3;
  std::vector<std::string> lines;
  for (const Message &message : messages) {
    std::vector<FoldedName> places = foldLayers(message.places);
    std::string line =
        with(places.empty() ? "" : places.front().text, message.text);
    if (message.count > 1)
      line += " (" + std::to_string(message.count) + " times";
    for (size_t i = 0; i < std::min(most, places.size()) && places.size() > 1;
         ++i)
      line += (i ? ", " : ": ") + places[i].text;
    if (places.size() > most)
      line += ", ...";
    lines.push_back(line + (message.count > 1 ? ")" : ""));
  }
  return lines;
}

static constexpr StringLiteral kMachineFault = "machine fault";
static constexpr StringLiteral kInputFault = "input fault";

static void mark(Diagnostic &diagnostic, StringRef fault) {
  diagnostic.getMetadata().push_back(DiagnosticArgument(fault));
}

void markAsMachineFault(Diagnostic &diagnostic) {
  mark(diagnostic, kMachineFault);
}

void markAsInputFault(Diagnostic &diagnostic) { mark(diagnostic, kInputFault); }

static bool isMarked(Diagnostic &diagnostic, StringRef fault) {
  return llvm::any_of(
      diagnostic.getMetadata(), [&](DiagnosticArgument &argument) {
        return argument.getKind() ==
                   DiagnosticArgument::DiagnosticArgumentKind::String &&
               argument.getAsString() == fault;
      });
}

Messages::Messages(MLIRContext &context, bool onlyErrors) : context(context) {
  handler = context.getDiagEngine().registerHandler(
      [this, onlyErrors](Diagnostic &diagnostic) {
        DiagnosticSeverity severity = diagnostic.getSeverity();
        bool isError = severity == DiagnosticSeverity::Error;
        if (onlyErrors && !isError)
          return failure();
        isMachineFault |= isError && isMarked(diagnostic, kMachineFault);
        isInputFault |= isError && isMarked(diagnostic, kInputFault);
        FoldedMessages &kind = isError ? errors
                               : severity == DiagnosticSeverity::Warning
                                   ? warnings
                                   : remarks;
        kind.add(diagnostic);
        return success();
      });
}

Messages::~Messages() { context.getDiagEngine().eraseHandler(handler); }

HeldMessages::HeldMessages(MLIRContext &context) : context(context) {
  handler =
      context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
        held.push_back(std::move(diagnostic));
      });
}

void HeldMessages::markErrors() {
  for (Diagnostic &diagnostic : held)
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      markAsMachineFault(diagnostic);
}

HeldMessages::~HeldMessages() {
  context.getDiagEngine().eraseHandler(handler);
  for (Diagnostic &diagnostic : held)
    context.getDiagEngine().emit(std::move(diagnostic));
}

} // namespace cleave
