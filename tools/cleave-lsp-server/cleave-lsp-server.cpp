//===- cleave-lsp-server.cpp - files of all phases in an editor -----------===//
//
// MLIR's language server with the dialects of all phases. docs/editors.md says
// how editors start it.
//
//===----------------------------------------------------------------------===//

#include "cleave/Compiler/Dialects.h"
#include "cleave/Compiler/Version.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Support/LLVM.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  cleave::compiler::addVersionPrinter();
  mlir::DialectRegistry registry;
  cleave::compiler::registerAllDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
