//===- cleave-lsp-server.cpp - files of all phases in an editor -----------===//
//
// MLIR's language server with the dialects of all phases. docs/editors.md says
// how editors start it.
//
//===----------------------------------------------------------------------===//

#include "cleave/Compiler/Dialects.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Support/LLVM.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

int main(int argc, char **argv) {
  llvm::cl::AddExtraVersionPrinter(
      [](llvm::raw_ostream &out) { out << "cleave " CLEAVE_VERSION "\n"; });
  mlir::DialectRegistry registry;
  cleave::compiler::registerAllDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
