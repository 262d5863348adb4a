// Diagnostics of MLIR as lines for the user.

#include "Diagnostics.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <iostream>
#include <set>

using namespace mlir;

namespace cleave::driver {

// A location is the path of the model, or the name of a node.
static std::string describe(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().str();
  if (auto file = dyn_cast<FileLineColLoc>(loc))
    return file.getFilename().str() +
           // What is said of a file as a whole has no line.
           (file.getLine() ? ":" + std::to_string(file.getLine()) + ":" +
                                 std::to_string(file.getColumn())
                           : "");
  return "";
}

/// "'nn.attention' op has ..." of a node is what the node has: the user knows
/// it by its name, and no operation of ours.
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

std::vector<std::string> FoldedMessages::lines() const {
  constexpr size_t most = 3;
  std::vector<std::string> lines;
  for (const Message &message : messages) {
    std::string line = with(
        message.places.empty() ? "" : message.places.front(), message.text);
    if (message.count > 1)
      line += " (" + std::to_string(message.count) + " times";
    for (size_t i = 0;
         i < std::min(most, message.places.size()) && message.places.size() > 1;
         ++i)
      line += (i ? ", " : ": ") + message.places[i];
    if (message.places.size() > most)
      line += ", ...";
    lines.push_back(line + (message.count > 1 ? ")" : ""));
  }
  return lines;
}

Diagnostics::Diagnostics(MLIRContext &context,
                         std::vector<std::string> *remarks)
    : context(context), remarks(remarks) {
  if (!remarks && RemarkRecord::current)
    this->remarks = &RemarkRecord::current->remarks;
  handler =
      context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
        std::string text =
            withoutOperation(diagnostic.getLocation(), diagnostic.str());
        for (Diagnostic &note : diagnostic.getNotes())
          text += "; " + with(describe(note.getLocation()), note.str());
        FoldedMessages &kind =
            diagnostic.getSeverity() == DiagnosticSeverity::Error     ? errors
            : diagnostic.getSeverity() == DiagnosticSeverity::Warning ? warnings
                                                                      : told;
        kind.add(describe(diagnostic.getLocation()), text);
      });
}

void Diagnostics::flush() {
  for (const std::string &line : warnings.lines())
    warn(line);
  if (remarks)
    for (const std::string &line : told.lines())
      if (!llvm::is_contained(*remarks, line))
        remarks->push_back(line);
  warnings = told = {};
}

Diagnostics::~Diagnostics() {
  context.getDiagEngine().eraseHandler(handler);
  flush();
}

std::string Diagnostics::errorText() const {
  return llvm::join(errors.lines(), "\n");
}

void Diagnostics::fail(ExitCode code, const std::string &about) {
  flush();
  std::vector<std::string> lines = errors.lines();
  if (lines.empty())
    lines.push_back("failed without a reason");
  lines.front() = about + lines.front();
  throw Failure(code, lines);
}

WarningRecord *WarningRecord::current = nullptr;
RemarkRecord *RemarkRecord::current = nullptr;

std::string Failure::linesOf(const std::vector<std::string> &messages) {
  std::string text;
  for (const std::string &message : messages)
    text += (text.empty() ? "" : "\n") + escapedLines(message);
  return text;
}

void warn(const std::string &text) {
  static std::set<std::string> said; // stages and commands say some again
  if (!said.insert(text).second)
    return;
  std::string line = "cleave: warning: " + escaped(text) + "\n";
  std::cerr << line;
  if (WarningRecord::current)
    WarningRecord::current->text += line;
}

} // namespace cleave::driver
