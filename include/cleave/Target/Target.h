// From planned command lists to the files that the runtime reads.

#ifndef CLEAVE_TARGET_TARGET_H
#define CLEAVE_TARGET_TARGET_H

#include "cleave/manifest.h"
#include "cleave/program.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <string>

namespace cleave::target {

/// The module's command lists as plain data. Reads what `rt-plan-memory` has
/// written; reports a module without it. `threads` is what scratch memory was
/// sized for; `memoryLimit` the bytes that a rank of a pipeline can have, 0:
/// any (of other programs `rt-check-fit` has said whether they fit).
mlir::FailureOr<program::Program>
emitProgram(mlir::ModuleOp module, int64_t threads, int64_t memoryLimit = 0);

/// What the manifest says that the module does not.
struct ManifestInfo {
  std::string model;
  /// Where the files of weights lie; absolute, or relative to the artifact.
  std::string weightsFolder;
  std::string configJson = "{}";
  int64_t batch = 0; ///< 0: the samples of a microbatch times microbatches
  int64_t microbatches = 1;
  std::string labelsSource; ///< the array that is the labels; "": next tokens
  /// The arrays that inputs are read from, where not called like the input.
  std::map<std::string, std::string> sources;
};

/// The manifest of a planned module.
mlir::FailureOr<Manifest> emitManifest(mlir::ModuleOp module,
                                       const ManifestInfo &info);

/// Writes manifest.json, program.bin and kernels.so into `folder`, which
/// appears whole or not at all, and takes the place of one of the same name.
/// `program` is what the module was emitted as. Reports what cannot be written
/// on the module.
mlir::LogicalResult writeArtifact(mlir::ModuleOp module,
                                  const program::Program &program,
                                  const ManifestInfo &info,
                                  llvm::StringRef folder);

/// Notes on arguments of role tokens and labels how many rows the table has
/// that they index (`nn.vocabulary`). For whole programs, before partitioning.
void noteVocabulary(mlir::ModuleOp module);

} // namespace cleave::target

#endif
