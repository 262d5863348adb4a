// Writes planned command lists as the files that the runtime reads.

#ifndef CLEAVE_TARGET_TARGET_H
#define CLEAVE_TARGET_TARGET_H

#include "cleave/manifest.h"
#include "cleave/program.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <string>
#include <vector>

namespace cleave::target {

/// The options with which a module was lowered.
struct ProgramOptions {
  program::Device device = program::Device::Cpu;
  /// The number of threads that scratch memory is sized for.
  int64_t threads = 1;
  /// The maximum bytes of memory of a pipeline rank; 0 means no limit. Programs
  /// without a pipeline are checked by `rt-check-fit` instead.
  int64_t memoryLimit = 0;
  bool tf32 = false; ///< see program::Program
};

/// Converts the module's command lists to the runtime's program format. Reads
/// the attributes of `rt-plan-memory`, and reports an error if they are
/// missing. For CUDA devices, kernels get their grid and block sizes.
mlir::FailureOr<program::Program> emitProgram(mlir::ModuleOp module,
                                              const ProgramOptions &options);

/// Options for compiling kernels to machine code.
struct KernelOptions {
  /// The optimization level of CPU kernels, 0 to 3.
  unsigned optLevel = 3;
  /// The architectures of CUDA devices: sm_80, sm_90, sm_100.
  std::vector<std::string> architectures = {"sm_80", "sm_90", "sm_100"};
};

/// Returns whether a program for CUDA devices also gets kernels for the host.
/// The environment variable CLEAVE_HOST_KERNELS=1 requests them, for software
/// that stands in for a device.
bool wantsHostKernels();

/// Writes the kernels of a program that was emitted from `module` into
/// `folder`, and returns the names of the files: kernels.so, or
/// kernels.sm_80.ptx with a kernels.ARCH.cubin for each architecture, and also
/// kernels.so if wantsHostKernels(). Returns no names if the program has no
/// kernels.
mlir::FailureOr<std::vector<std::string>>
writeKernels(mlir::ModuleOp module, const program::Program &program,
             const KernelOptions &options, llvm::StringRef folder);

/// The parts of a manifest that cannot be derived from the module.
struct ManifestInfo {
  std::string model;
  std::string graph; ///< a digest of what the model computes; "": not known
  /// The path of the folder of the weight files, absolute or relative to the
  /// artifact.
  std::string weightsFolder;
  std::string configJson = "{}";
  /// Samples per step; 0: samples per microbatch * microbatches.
  int64_t batch = 0;
  int64_t microbatches = 1;
  /// Name of the labels' array; "": labels are the next tokens.
  std::string labelsSource;
  /// Maps an input to the name of the array that it is read from, if the
  /// array's name differs from the input's.
  std::map<std::string, std::string> sources;
  /// Inputs of the model that no operation reads.
  std::vector<std::string> unread;
  std::map<std::string, std::string> bound; ///< see Manifest::bound
};

/// Creates the manifest of a planned module.
mlir::FailureOr<Manifest> emitManifest(mlir::ModuleOp module,
                                       const ManifestInfo &info);

/// Writes manifest.json, program.bin and the kernels into `folder`, which is
/// created atomically and replaces an artifact of the same name. `program` must
/// be emitted from `module`. Errors are reported on the module.
mlir::LogicalResult writeArtifact(mlir::ModuleOp module,
                                  const program::Program &program,
                                  const ManifestInfo &info,
                                  const KernelOptions &kernels,
                                  llvm::StringRef folder);

/// Annotates integer arguments whose elements are indices into tables:
/// `nn.vocabulary` is the number of rows of the table, and `nn.lookups` lists
/// slices of the argument and the table that each slice indexes. Runs on
/// unpartitioned programs.
void noteVocabulary(mlir::ModuleOp module);

} // namespace cleave::target

#endif
