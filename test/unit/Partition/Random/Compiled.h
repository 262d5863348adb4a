// Runs a random program compiled: on the CPU, or for CUDA devices on the
// recorder that stands in for them.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_COMPILED_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_COMPILED_H

#include "Runner.h"

#include "cleave/program.h"

namespace cleave::random {

struct CompileStyle {
  bool bf16 = false; // nn-mixed-precision comes before partitioning
  program::Device device = program::Device::Cpu;
  /// How many values are drawn for each program.
  int64_t draws = 6;
  /// Changes the command lists of the ranks' program, where it is given.
  std::function<mlir::LogicalResult(program::Program &)> change = nullptr;
};

/// After all that `Runner` does: the program of the ranks in f64 against the
/// interpreter, then in its real precision against the program of one device,
/// both compiled.
class CompiledRunner : public Runner {
public:
  /// Without `interpret`, the comparison of interpreted programs is left out.
  CompiledRunner(mlir::MLIRContext *context, CompileStyle style,
                 bool interpret = true, bool prove = true);

  /// `global` before nn-mixed-precision, with one function.
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

/// Prepares the environment for programs for CUDA devices, before anything
/// else uses it. What is missing, or an empty string.
std::string prepareRecorder();

} // namespace cleave::random

#endif
