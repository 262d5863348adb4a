// cleave-opt: every dialect and every pass, for lit tests and for looking at
// one phase alone. Plugins of passes are loaded by --load-pass-plugin.

#include "cleave/Compiler/Dialects.h"
#include "cleave/Init/AllPasses.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  cleave::registerAllPasses();
  mlir::DialectRegistry registry;
  cleave::compiler::registerAllDialects(registry);
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "cleave optimizer driver\n", registry));
}
