// What the CUDA backend includes, and the recorder that stands in for a device.

#include "runtime.h"

#include <cublasLt.h>
#include <cuda.h>
#include <nccl.h>
#ifdef CLEAVE_HAS_CUDNN
#include <cudnn.h>
#endif
