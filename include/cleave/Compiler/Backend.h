// The second half of the compiler: from the per-rank program to an artifact.

#ifndef CLEAVE_COMPILER_BACKEND_H
#define CLEAVE_COMPILER_BACKEND_H

#include "cleave/Target/Target.h"

#include "mlir/Pass/PassManager.h"

#include <string>

namespace cleave {

struct BackendOptions {
  program::Device device = program::Device::Cpu;
  /// Threads of a rank that a command may use; scratch memory depends on it.
  int64_t threads = 1;
  /// Bytes of memory of a rank; 0: no limit.
  int64_t memoryLimit = 0;
  int64_t batch = 0; // samples of a step, for messages; 0: not known
  /// Whether collectives overlap with compute, by the times of a cluster.toml
  /// ("": the defaults).
  bool overlap = true;
  std::string cluster;
  /// Whether CUDA devices may round the operands of f32 products to TF32.
  bool tf32 = false;
};

/// The options to emit a module that was lowered with `options`.
target::ProgramOptions programOptions(const BackendOptions &options);

/// Adds the passes that select library calls and fuse kernels.
void buildKernelPhase(mlir::OpPassManager &passes,
                      const BackendOptions &options);
/// Adds the passes that make command lists in their final order.
void buildSchedulePhase(mlir::OpPassManager &passes,
                        const BackendOptions &options);
/// Adds the passes that assign addresses.
void buildMemoryPhase(mlir::OpPassManager &passes,
                      const BackendOptions &options);

/// The three phases as `nn-kernels-pipeline`, `rt-schedule-pipeline` and
/// `rt-memory-pipeline`, for cleave-opt.
void registerBackendPhases();

enum class BackendPhase { Kernels, Schedule, Memory };

/// Runs these phases on a per-rank program, up to and including `last`. After
/// Memory its addresses are known.
mlir::LogicalResult lowerToCommands(mlir::ModuleOp local,
                                    const BackendOptions &options,
                                    BackendPhase last = BackendPhase::Memory);

} // namespace cleave

#endif
