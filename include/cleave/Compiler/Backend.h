// The second half of the compiler: from the program of one rank to an artifact.

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
  /// Collectives run while others compute, by the times of a cluster.toml ("":
  /// the defaults).
  bool overlap = true;
  std::string cluster;
  /// CUDA devices may round operands of products of f32 to TF32.
  bool tf32 = false;
};

/// How a module that was lowered so is emitted.
target::ProgramOptions programOptions(const BackendOptions &options);

/// Library calls and kernels.
void buildKernelPhase(mlir::OpPassManager &passes,
                      const BackendOptions &options);
/// Command lists in their final order.
void buildSchedulePhase(mlir::OpPassManager &passes,
                        const BackendOptions &options);
/// Addresses.
void buildMemoryPhase(mlir::OpPassManager &passes,
                      const BackendOptions &options);

/// The three phases as `nn-kernels-pipeline`, `rt-schedule-pipeline` and
/// `rt-memory-pipeline`, for cleave-opt.
void registerBackendPhases();

enum class BackendPhase { Kernels, Schedule, Memory };

/// Runs them on a local program up to and including `last`: after Memory its
/// addresses are known.
mlir::LogicalResult lowerToCommands(mlir::ModuleOp local,
                                    const BackendOptions &options,
                                    BackendPhase last = BackendPhase::Memory);

} // namespace cleave

#endif
