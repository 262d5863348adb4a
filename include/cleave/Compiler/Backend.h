// The second half of the compiler, which turns the per-rank program into the
// command lists and the memory plan of a compiled program.

#ifndef CLEAVE_COMPILER_BACKEND_H
#define CLEAVE_COMPILER_BACKEND_H

#include "cleave/Target/Target.h"

#include "mlir/Pass/PassManager.h"

#include <string>

namespace cleave {

struct BackendOptions {
  program::Device device = program::Device::Cpu;
  /// The number of threads with which a rank may run a command; the size of
  /// scratch memory depends on this number.
  int64_t threads = 1;
  /// The largest number of bytes of memory that a rank may use; 0 means no
  /// limit.
  int64_t memoryLimit = 0;
  /// The number of samples of a step, for error messages; 0 if unknown.
  int64_t batch = 0;
  /// True if collectives overlap with compute. Where they start and end is
  /// chosen with the cost model of the machine that the file `cluster` (a
  /// cluster.toml) describes; "" means the default machine.
  bool overlap = true;
  std::string cluster;
  /// True if CUDA devices may round the operands of f32 matrix products to
  /// TF32.
  bool tf32 = false;
};

/// Returns the options for target::emitProgram that fit a module that was
/// lowered with `options`.
target::ProgramOptions programOptions(const BackendOptions &options);

/// Adds the passes that select library calls and fuse kernels.
void buildKernelPhase(mlir::OpPassManager &passes,
                      const BackendOptions &options);
/// Adds the passes that turn a program into command lists and bring the
/// commands into their final order.
void buildSchedulePhase(mlir::OpPassManager &passes,
                        const BackendOptions &options);
/// Adds the passes that assign a memory address to every value.
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
