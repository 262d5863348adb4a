// Prints diagnostics of MLIR as lines for the user.

#include "Diagnostics.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <iostream>
#include <set>

using namespace mlir;

namespace cleave::driver {

void Diagnostics::flush() {
  for (const std::string &line : messages.warnings.lines())
    warn(line);
  if (remarks)
    for (const std::string &line : messages.remarks.lines())
      if (!llvm::is_contained(*remarks, line))
        remarks->push_back(line);
  messages.warnings.clear();
  messages.remarks.clear();
}

std::string Diagnostics::errorText() const {
  return llvm::join(messages.errors.lines(), "\n");
}

void Diagnostics::fail(ExitCode code) {
  flush();
  std::vector<std::string> lines = messages.errors.lines();
  if (lines.empty())
    lines.push_back("failed without a reason");
  throw Failure(messages.isMachineFault ? RunFailed
                : messages.isInputFault ? BadUsage
                                        : code,
                lines);
}

std::string Failure::linesOf(const std::vector<std::string> &messages) {
  std::string text;
  for (const std::string &message : messages)
    text += (text.empty() ? "" : "\n") + escapedLines(message);
  return text;
}

void warn(const std::string &text) {
  static std::set<std::string> said; // some come from several phases
  if (!said.insert(text).second)
    return;
  std::cerr << "cleave: warning: " + escaped(text) + "\n";
}

} // namespace cleave::driver
