// The part of a product's epilogue that cuBLASLt does not compute.
#ifndef CLEAVE_RUNTIME_CUDA_EPILOGUE_H
#define CLEAVE_RUNTIME_CUDA_EPILOGUE_H

#include "kernels.h"

namespace cleave::cuda {

// Enqueues a kernel that applies C = activation(C + bias) to the result C of a
// product in place. The bias is added if `addsBias`; the operand of the
// activation is stored if the product has preActivation. With derivativeAt, C =
// C * activation'(derivativeAt). Returns an empty function if there is nothing
// to do.
Enqueue makeEpilogue(Kernels &kernels, const program::Gemm &gemm,
                     const GemmBuffers &buffers, bool addsBias);

// Returns the sums of an operand, or an empty function if the product has none.
Enqueue makeOperandSums(Kernels &kernels, const program::Gemm &gemm,
                        const GemmBuffers &buffers);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_EPILOGUE_H
