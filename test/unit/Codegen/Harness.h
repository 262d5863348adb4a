// Compiles a kernel, runs it on random data, and compares with the reference
// interpreter; interprets it as a GPU kernel and compares, too.

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

/// A context with all dialects and interface models.
mlir::MLIRContext &context();

struct RunOptions {
  /// Changes the random arguments before the run.
  std::function<void(std::vector<Tensor> &)> prepare;
  /// Indices are drawn below this.
  int64_t indexBound = 5;
  /// Bounds of the relative error: |a - b| <= bound * max(|b|, floor).
  double f32Bound = 2e-6, f64Bound = 1e-14;
  double floor = 1.0;
  codegen::CodegenOptions codegen;
  /// Runs with results in place of arguments where the kernel allows it.
  bool inPlace = false;
  /// Interprets the GPU kernel and compiles nothing.
  bool onlyGpu = false;
  /// Leaves out f64.
  bool onlyF32 = false;
};

/// Only GPU kernels, with bounds of long sums; some indices are outside.
RunOptions gpuOptions();

/// `body` is the text of one function `@k` on f32; it is run as it is and with
/// f64 in place of f32.
void checkKernel(const std::string &text, const RunOptions &options = {});

/// Compiles and runs one function; expects success.
std::vector<Tensor> runKernel(mlir::func::FuncOp kernel,
                              const std::vector<Tensor> &arguments,
                              const RunOptions &options = {});

/// Writes the kernel for a GPU and interprets that; expects success.
std::vector<Tensor> runKernelOnGpu(mlir::func::FuncOp kernel,
                                   const std::vector<Tensor> &arguments,
                                   bool inPlace = false,
                                   ThreadOrder order = ThreadOrder::Ascending);

/// Parses a module; expects success.
mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text);

/// Text with every `f32` replaced by `f64`.
std::string widened(std::string text);

/// The text of a tensor type.
std::string tensor(const std::vector<int64_t> &shape,
                   const char *element = "f32");

/// Replaces $0, $1, ... by the given texts.
std::string fill(std::string text, const std::vector<std::string> &with);

} // namespace cleave::test

#endif
