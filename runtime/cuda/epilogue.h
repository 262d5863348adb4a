// The part of a product's epilogue that cuBLASLt does not compute.
#ifndef CLEAVE_RUNTIME_CUDA_EPILOGUE_H
#define CLEAVE_RUNTIME_CUDA_EPILOGUE_H

#include "kernels.h"

namespace cleave::cuda {

// C = activation(C + bias), over C as the product has it; the bias is added
// where `addsBias`, and the activation's operand is kept where the product
// keeps it. With derivativeAt C = C * activation'(derivativeAt). Nothing to be
// done: an empty function.
Enqueue makeEpilogue(Kernels &kernels, const program::Gemm &gemm,
                     const GemmBuffers &buffers, bool addsBias);

// The sums of an operand, if the product has them.
Enqueue makeOperandSums(Kernels &kernels, const program::Gemm &gemm,
                        const GemmBuffers &buffers);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_EPILOGUE_H
