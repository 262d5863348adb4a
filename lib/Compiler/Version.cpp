// The version that LLVM's command-line library prints for --version.

#include "cleave/Compiler/Version.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

void cleave::compiler::addVersionPrinter() {
  llvm::cl::AddExtraVersionPrinter(
      [](llvm::raw_ostream &out) { out << "cleave " CLEAVE_VERSION "\n"; });
}
