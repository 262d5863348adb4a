// Detects changes of a model's files while the model is compiled. Import,
// digests and the cache key read these files one after another, and must see
// the same bytes.

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
  /// Records the size and the modification time of the model and of its weight
  /// files. Emits an error if the model cannot be read.
  static mlir::FailureOr<ModelFiles> note(const std::string &path,
                                          const Config &config,
                                          mlir::MLIRContext &context);

  /// Returns the size and the modification time of each weight file.
  std::string weights() const;

  /// Emits an error if a file has changed since `note`.
  mlir::LogicalResult check(mlir::MLIRContext *context);

private:
  void note();

  std::string path;
  std::vector<std::string> files, noted;
};

} // namespace cleave::compiler

#endif // CLEAVE_LIB_COMPILER_MODELFILES_H
