// Compiles a kernel for the CPU, runs it on random data, and compares the
// results with those of the reference interpreter. Also runs the kernel in the
// interpreter of GPU kernels and compares these results.

#ifndef CLEAVE_TEST_UNIT_CODEGEN_HARNESS_H
#define CLEAVE_TEST_UNIT_CODEGEN_HARNESS_H

#include "GpuInterpreter.h"
#include "cleave/Codegen/Codegen.h"
#include "cleave/Interfaces/Tensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"

#include <functional>
#include <string>
#include <vector>

namespace cleave::test {

/// Returns a context with all dialects and interface models.
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
  /// Stores results in the memory of arguments where the kernel allows that.
  bool inPlace = false;
  /// Interprets the GPU kernel only; compiles nothing for the CPU.
  bool onlyGpu = false;
  /// Leaves out f64.
  bool onlyF32 = false;
};

/// Returns options with which a kernel is only interpreted as a GPU kernel, and
/// not compiled for the CPU. The error bounds allow for long sums. The bound of
/// random indices is deliberately so large that some indices are outside of the
/// tables.
RunOptions gpuOptions();

/// Checks a kernel. `text` is a function `@k` on f32; it runs with f32 and with
/// f64 in place of f32.
void checkKernel(const std::string &text, const RunOptions &options = {});

/// Compiles and runs one function; expects success.
std::vector<Tensor> runKernel(mlir::func::FuncOp kernel,
                              const std::vector<Tensor> &arguments,
                              const RunOptions &options = {});

/// Emits the kernel for a GPU and runs it in the interpreter of GPU kernels;
/// expects success.
std::vector<Tensor> runKernelOnGpu(mlir::func::FuncOp kernel,
                                   const std::vector<Tensor> &arguments,
                                   bool inPlace = false,
                                   ThreadOrder order = ThreadOrder::Ascending);

/// Parses a module; expects success.
mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text);

/// Returns the text with every `f32` replaced by `f64`.
std::string widened(std::string text);

/// Returns the text of a tensor type.
std::string tensor(const std::vector<int64_t> &shape,
                   const char *element = "f32");

/// Replaces $0, $1, ... by the given texts.
std::string fill(std::string text, const std::vector<std::string> &with);

} // namespace cleave::test

#endif
