// Compiles a kernel, runs it on random data, and compares the results with the
// reference interpreter; also interprets it as a GPU kernel and compares.

#ifndef CLEAVE_TEST_UNIT_CODEGEN_HARNESS_H
#define CLEAVE_TEST_UNIT_CODEGEN_HARNESS_H

#include "cleave/Codegen/Codegen.h"
#include "cleave/Interfaces/Tensor.h"
#include "cleave/Interpreter/GpuInterpreter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"

#include <functional>
#include <string>
#include <vector>

namespace cleave::test {

/// A context with all dialects and interface models.
mlir::MLIRContext &context();

struct RunOptions {
  /// Changes the random arguments before the run.
  std::function<void(std::vector<Tensor> &)> prepare;
  /// Random indices are below this bound.
  int64_t indexBound = 5;
  /// Bounds of the relative error: |a - b| <= bound * max(|b|, floor).
  double f32Bound = 2e-6, f64Bound = 1e-14;
  double floor = 1.0;
  codegen::CodegenOptions codegen;
  /// Runs with results in place of arguments where the kernel allows it.
  bool inPlace = false;
  /// Interprets the GPU kernel and compiles nothing.
  bool onlyGpu = false;
  /// Skips f64.
  bool onlyF32 = false;
};

/// `text` has one function `@k` on f32; it is run unchanged and with f64 in
/// place of f32.
void checkKernel(const std::string &text, const RunOptions &options = {});

/// Compiles and runs one function; fails the test on an error.
std::vector<Tensor> runKernel(mlir::func::FuncOp kernel,
                              const std::vector<Tensor> &arguments,
                              const RunOptions &options = {});

/// Generates the GPU kernel and interprets it; fails the test on an error.
std::vector<Tensor> runKernelOnGpu(mlir::func::FuncOp kernel,
                                   const std::vector<Tensor> &arguments,
                                   bool inPlace = false,
                                   ThreadOrder order = ThreadOrder::Ascending);

/// Parses a module; fails the test on an error.
mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text);

/// Text with every `f32` replaced by `f64`.
std::string widened(std::string text);

} // namespace cleave::test

#endif
