// Compiles the per-rank program to an artifact.

#include "cleave/Compiler/Backend.h"

#include "cleave/Conversion/ToRT/Passes.h"
#include "cleave/Fusion/Passes.h"
#include "cleave/Memory/Passes.h"
#include "cleave/Schedule/Passes.h"
#include "cleave/Support/Passes.h"

#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace cleave;

target::ProgramOptions cleave::programOptions(const BackendOptions &options) {
  return {options.device, options.threads, options.memoryLimit,
          options.tf32 && options.device == program::Device::Cuda};
}

void cleave::buildKernelPhase(OpPassManager &passes,
                              const BackendOptions &options) {
  passes.addPass(createOutlineScansPass());
  if (options.device == program::Device::Cuda) {
    passes.addPass(createPadClassesPass());
    passes.addPass(createRecomputeResidualsPass());
  }
  SelectLibraryPassOptions select;
  select.device = options.device;
  passes.addPass(createSelectLibraryPass(select));
  passes.addPass(createFormKernelsPass());
  passes.addPass(createDedupeKernelsPass());
}

void cleave::buildSchedulePhase(OpPassManager &passes,
                                const BackendOptions &options) {
  passes.addPass(createHostToRTPass());
  // Adds scratch buffers, before the memory of all buffers is planned.
  AddScratchPassOptions scratch;
  scratch.threads = options.threads;
  scratch.device = options.device;
  passes.addPass(createAddScratchPass(scratch));
  if (options.overlap) {
    OverlapPassOptions overlap;
    overlap.cluster = options.cluster;
    overlap.limit = options.memoryLimit;
    passes.addPass(createOverlapPass(overlap));
  }
  passes.addPass(createSplitAsyncPass());
  passes.addPass(createSchedulePass());
  passes.addPass(createVerifyOrderPass());
}

void cleave::buildMemoryPhase(OpPassManager &passes,
                              const BackendOptions &options) {
  passes.addPass(createPlanMemoryPass());
  if (options.device == program::Device::Cuda)
    passes.addPass(createAlignKernelsPass());
  CheckFitPassOptions fit;
  fit.limit = options.memoryLimit;
  fit.batch = options.batch;
  passes.addPass(createCheckFitPass(fit));
}

namespace {
struct PipelineOptions : PassPipelineOptions<PipelineOptions> {
  Option<program::Device> device{
      *this, "device", llvm::cl::desc("What runs the commands"),
      llvm::cl::init(program::Device::Cpu),
      llvm::cl::values(
          clEnumValN(program::Device::Cpu, "cpu", "The host"),
          clEnumValN(program::Device::Cuda, "cuda", "A CUDA device"))};

  BackendOptions backend() const {
    BackendOptions options;
    options.device = device;
    return options;
  }
};
} // namespace

void cleave::registerBackendPhases() {
  PassPipelineRegistration<PipelineOptions>(
      "nn-kernels-pipeline", "Library calls and kernels",
      [](OpPassManager &passes, const PipelineOptions &options) {
        buildKernelPhase(passes, options.backend());
      });
  PassPipelineRegistration<PipelineOptions>(
      "rt-schedule-pipeline", "Command lists in their final order",
      [](OpPassManager &passes, const PipelineOptions &options) {
        buildSchedulePhase(passes, options.backend());
      });
  PassPipelineRegistration<PipelineOptions>(
      "rt-memory-pipeline", "An address for every value",
      [](OpPassManager &passes, const PipelineOptions &options) {
        buildMemoryPhase(passes, options.backend());
      });
}

LogicalResult cleave::lowerToCommands(ModuleOp local,
                                      const BackendOptions &options,
                                      BackendPhase last) {
  struct Phase {
    BackendPhase phase;
    StringRef name;
    void (*build)(OpPassManager &, const BackendOptions &);
  };
  for (const Phase &phase :
       {Phase{BackendPhase::Kernels, "kernels", buildKernelPhase},
        Phase{BackendPhase::Schedule, "schedule", buildSchedulePhase},
        Phase{BackendPhase::Memory, "memory", buildMemoryPhase}})
    if (phase.phase <= last &&
        failed(runPasses(local, phase.name, [&](OpPassManager &passes) {
          phase.build(passes, options);
        })))
      return failure();
  return success();
}
