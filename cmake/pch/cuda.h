// Precompiled header of the CUDA backend, and of the recorder that stands in
// for a CUDA device.

#include "runtime.h"

#include <cublasLt.h>
#include <cuda.h>
#include <nccl.h>
#ifdef CLEAVE_HAS_CUDNN
#include <cudnn.h>
#endif
