// Compiles and runs a random program on the CPU, or for CUDA devices on the
// simulated CUDA library that records calls.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_COMPILED_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_COMPILED_H

#include "Runner.h"

#include "cleave/program.h"

namespace cleave::random {

struct CompileStyle {
  bool bf16 = false; // run nn-mixed-precision before partitioning
  program::Device device = program::Device::Cpu;
  /// How many sets of input values are drawn for each program.
  int64_t draws = 6;
  /// If set, changes the command lists of the per-rank program.
  std::function<mlir::LogicalResult(program::Program &)> change = nullptr;
};

/// After all checks of `Runner`, compiles and runs the per-rank program: in f64
/// it is compared with the interpreter, and in its own precision with the
/// compiled single-device program.
class CompiledRunner : public Runner {
public:
  /// If `interpret` is false, one check of `Runner` is left out: it interprets
  /// the per-rank program and compares the result with the unpartitioned
  /// program.
  CompiledRunner(mlir::MLIRContext *context, CompileStyle style,
                 bool interpret = true, bool prove = true);

  /// Runs a case. `global` is a module with one function, before
  /// nn-mixed-precision.
  Outcome run(mlir::ModuleOp global, uint64_t seed,
              Coverage *coverage = nullptr, const Bug *bug = nullptr,
              bool *planted = nullptr) override;

protected:
  Outcome runLocal(mlir::ModuleOp global, mlir::ModuleOp local,
                   uint64_t seed) override;

private:
  struct Case;
  Outcome runHere(mlir::ModuleOp global, mlir::ModuleOp local, uint64_t seed);
  CompileStyle style;
};

/// Sets the environment variables for CUDA programs. Must be called before
/// anything else uses the environment. Returns a message that says what is
/// missing, or an empty string.
std::string prepareRecorder();

} // namespace cleave::random

#endif
