// The part of a product's epilogue that cuBLASLt does not compute.
#ifndef CLEAVE_RUNTIME_CUDA_EPILOGUE_H
#define CLEAVE_RUNTIME_CUDA_EPILOGUE_H

#include "kernels.h"

namespace cleave::cuda {

// Returns a call that applies the epilogue in place to the result C of a
// product: C = activation(C + bias), with the bias only if `addsBias`. If the
// product has preActivation, the activation's operand is stored there. If the
// product has derivativeAt, C = C * activation'(derivativeAt) instead. If there
// is nothing to do, the call does nothing.
Enqueue makeEpilogue(Kernels &kernels, const program::Gemm &gemm,
                     const GemmBuffers &buffers, bool addsBias);

// Returns a call that computes Gemm::sums, the row sums of A or the column sums
// of B. If the product has no `sums`, the call does nothing.
Enqueue makeOperandSums(Kernels &kernels, const program::Gemm &gemm,
                        const GemmBuffers &buffers);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_EPILOGUE_H
