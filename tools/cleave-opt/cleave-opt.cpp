// cleave-opt: runs any pass on any dialect, for lit tests and for inspecting
// single phases. Pass plugins are loaded by --load-pass-plugin.

#include "cleave/Compiler/Dialects.h"
#include "cleave/Compiler/Version.h"
#include "cleave/Init/AllPasses.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  cleave::compiler::addVersionPrinter();
  cleave::registerAllPasses();
  mlir::DialectRegistry registry;
  cleave::compiler::registerAllDialects(registry);
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "cleave optimizer driver\n", registry));
}
