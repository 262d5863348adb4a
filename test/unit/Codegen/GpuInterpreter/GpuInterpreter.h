// Runs kernels of the gpu dialect on the CPU, thread by thread, and finds
// errors that a device would not report.
//
// Detected errors: an access outside of the given buffers, an access that is
// less aligned than it states, two threads that write the same byte of global
// memory, a race in workgroup memory (between two barriers, two threads access
// the same element and at least one of them writes it), a read of uninitialised
// workgroup memory, a barrier that not all threads of a block reach, and a
// shuffle or vote that not all lanes of a warp reach.

#ifndef CLEAVE_INTERPRETER_GPUINTERPRETER_H
#define CLEAVE_INTERPRETER_GPUINTERPRETER_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

#include <string>

namespace cleave {

/// A buffer whose address is passed to a kernel.
struct GpuBuffer {
  void *data;
  int64_t bytes;
};

enum class ThreadOrder { Ascending, Descending };

/// Runs all blocks of `kernel`, whose arguments are pointers, one for each
/// buffer; two buffers may share memory. The kernel has static grid and block
/// sizes and consists of scf, arith, math, vector and memref operations, LLVM
/// loads and stores, and the gpu dialect's thread operations. Between barriers,
/// the threads of a block run one after the other. Returns an empty string, or
/// an error message.
std::string runGpuKernel(mlir::gpu::GPUFuncOp kernel,
                         llvm::ArrayRef<GpuBuffer> buffers,
                         ThreadOrder order = ThreadOrder::Ascending);

} // namespace cleave

#endif
