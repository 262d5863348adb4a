// From planned command lists to the files that the runtime reads.

#ifndef CLEAVE_TARGET_TARGET_H
#define CLEAVE_TARGET_TARGET_H

#include "cleave/manifest.h"
#include "cleave/program.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <string>
#include <vector>

namespace cleave::target {

/// What a module was lowered for.
struct ProgramOptions {
  program::Device device = program::Device::Cpu;
  int64_t threads = 1; ///< what scratch memory was sized for
  /// Bytes that a rank of a pipeline can have; 0: any. Other programs are
  /// checked by `rt-check-fit`.
  int64_t memoryLimit = 0;
  bool tf32 = false; ///< see program::Program
};

/// The module's command lists as plain data. Reads the attributes of
/// `rt-plan-memory`; reports a module without them. For CUDA devices kernels
/// have the grid and the block that they are launched with.
mlir::FailureOr<program::Program> emitProgram(mlir::ModuleOp module,
                                              const ProgramOptions &options);

/// How kernels become machine code.
struct KernelOptions {
  /// For CPU kernels: the level of optimisation, 0 to 3.
  unsigned optLevel = 3;
  /// For CUDA devices: sm_80, sm_90, sm_100.
  std::vector<std::string> architectures = {"sm_80", "sm_90", "sm_100"};
};

/// Whether kernels for CUDA devices are compiled for the host, too: with the
/// environment variable CLEAVE_HOST_KERNELS=1, for software that replaces a
/// device.
bool wantsHostKernels();

/// Writes the kernels of a program that was emitted from `module` into
/// `folder`, and returns the names of the files: kernels.so, or
/// kernels.sm_80.ptx with a kernels.ARCH.cubin for each architecture, and then
/// kernels.so, too, where wantsHostKernels(). None where there are no kernels.
mlir::FailureOr<std::vector<std::string>>
writeKernels(mlir::ModuleOp module, const program::Program &program,
             const KernelOptions &options, llvm::StringRef folder);

/// The contents of a manifest that the module does not have.
struct ManifestInfo {
  std::string model;
  std::string graph; ///< a digest of what the model computes; "": not known
  /// The folder of the weight files; absolute, or relative to the artifact.
  std::string weightsFolder;
  std::string configJson = "{}";
  int64_t batch = 0; ///< 0: the samples of a microbatch times microbatches
  int64_t microbatches = 1;
  std::string labelsSource; ///< the array that is the labels; "": next tokens
  /// The arrays that inputs are read from, if named differently from the input.
  std::map<std::string, std::string> sources;
  std::vector<std::string> unread; ///< inputs of the model that nothing reads
  std::map<std::string, std::string> bound; ///< see Manifest::bound
};

/// The manifest of a planned module.
mlir::FailureOr<Manifest> emitManifest(mlir::ModuleOp module,
                                       const ManifestInfo &info);

/// Writes manifest.json, program.bin and the kernels into `folder`, which
/// appears whole or not at all, and replaces one of the same name. `program` is
/// the one that the module was emitted as. Errors are reported on the module.
mlir::LogicalResult writeArtifact(mlir::ModuleOp module,
                                  const program::Program &program,
                                  const ManifestInfo &info,
                                  const KernelOptions &kernels,
                                  llvm::StringRef folder);

/// Sets attributes on integer arguments: the number of rows of the table that
/// they index (`nn.vocabulary`), and the tables that their parts index
/// (`nn.lookups`). Runs on unpartitioned programs.
void noteVocabulary(mlir::ModuleOp module);

} // namespace cleave::target

#endif
