// The version of cleave, for tools whose --version LLVM prints.

#include "cleave/Compiler/Version.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

void cleave::compiler::addVersionPrinter() {
  llvm::cl::AddExtraVersionPrinter(
      [](llvm::raw_ostream &out) { out << "cleave " CLEAVE_VERSION "\n"; });
}
