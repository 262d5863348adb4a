// The files of a model that is read several times: what it was imported from,
// what its digests are of, and what a cache calls it, are the same bytes.

#ifndef CLEAVE_LIB_COMPILER_MODELFILES_H
#define CLEAVE_LIB_COMPILER_MODELFILES_H

#include "cleave/Config/Load.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/LLVM.h"

#include <string>
#include <vector>

namespace cleave::compiler {

class ModelFiles {
public:
  /// Notes size and time of the model and of its files of weights. An error
  /// where the model cannot be read.
  static mlir::FailureOr<ModelFiles> note(const std::string &path,
                                          const Config &config,
                                          mlir::MLIRContext &context);

  /// Size and time of each file of weights.
  std::string weights() const;

  /// An error where a file has changed since.
  mlir::LogicalResult check(mlir::MLIRContext *context);

private:
  void note();

  std::string path;
  std::vector<std::string> files, noted;
};

} // namespace cleave::compiler

#endif // CLEAVE_LIB_COMPILER_MODELFILES_H
