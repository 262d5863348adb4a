// The second half of the compiler, which turns the per-rank program into an
// artifact.

#ifndef CLEAVE_COMPILER_BACKEND_H
#define CLEAVE_COMPILER_BACKEND_H

#include "cleave/Target/Target.h"

#include "mlir/Pass/PassManager.h"

#include <string>

namespace cleave {

struct BackendOptions {
  program::Device device = program::Device::Cpu;
  /// The number of threads of a rank that a command may use; the size of
  /// scratch memory depends on it.
  int64_t threads = 1;
  /// The bytes of memory of a rank; 0 means no limit.
  int64_t memoryLimit = 0;
  int64_t batch = 0; // samples of a step, for messages; 0: not known
  /// True if collectives overlap with compute, by the cost model of the machine
  /// in the file `cluster` (a cluster.toml; "" means the defaults).
  bool overlap = true;
  std::string cluster;
  /// True if CUDA devices may round the operands of f32 matrix products to
  /// TF32.
  bool tf32 = false;
};

/// Returns the options with which to emit a module that was lowered with
/// `options`.
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

/// Registers the three phases as the pass pipelines `nn-kernels-pipeline`,
/// `rt-schedule-pipeline` and `rt-memory-pipeline`, for cleave-opt.
void registerBackendPhases();

enum class BackendPhase { Kernels, Schedule, Memory };

/// Runs the phases Kernels, Schedule and Memory on a per-rank program, up to
/// and including `last`. After Memory, every value has an address.
mlir::LogicalResult lowerToCommands(mlir::ModuleOp local,
                                    const BackendOptions &options,
                                    BackendPhase last = BackendPhase::Memory);

} // namespace cleave

#endif
