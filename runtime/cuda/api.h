// Functions of the CUDA driver and of NVIDIA's libraries.
//
// They are looked up when they are first needed, because a program that runs on
// CPUs needs none of them, and a machine that compiles for GPUs needs no
// driver.
#ifndef CLEAVE_RUNTIME_CUDA_API_H
#define CLEAVE_RUNTIME_CUDA_API_H

#include "recorder.h"

#include <cublasLt.h>
#include <cuda.h>
#include <nccl.h>
#ifdef CLEAVE_HAS_CUDNN
#include <cudnn.h>
#endif

#include <string>

namespace cleave::cuda {

// Headers rename functions to their newest version (cuMemAlloc is
// cuMemAlloc_v2), so names are looked up as the headers spell them.
#define CLEAVE_DRIVER_FUNCTIONS(X)                                             \
  X(cuInit)                                                                    \
  X(cuDriverGetVersion)                                                        \
  X(cuGetErrorName)                                                            \
  X(cuGetErrorString)                                                          \
  X(cuDeviceGetCount)                                                          \
  X(cuDeviceGet)                                                               \
  X(cuDeviceGetName)                                                           \
  X(cuDeviceGetAttribute)                                                      \
  X(cuDeviceGetUuid)                                                           \
  X(cuDeviceCanAccessPeer)                                                     \
  X(cuDevicePrimaryCtxRetain)                                                  \
  X(cuCtxSetCurrent)                                                           \
  X(cuCtxEnablePeerAccess)                                                     \
  X(cuMemGetInfo)                                                              \
  X(cuMemAlloc)                                                                \
  X(cuMemFree)                                                                 \
  X(cuMemHostAlloc)                                                            \
  X(cuMemFreeHost)                                                             \
  X(cuMemcpyHtoDAsync)                                                         \
  X(cuMemcpyDtoHAsync)                                                         \
  X(cuMemcpyDtoDAsync)                                                         \
  X(cuMemsetD8Async)                                                           \
  X(cuMemsetD16Async)                                                          \
  X(cuStreamCreate)                                                            \
  X(cuStreamDestroy)                                                           \
  X(cuStreamSynchronize)                                                       \
  X(cuStreamQuery)                                                             \
  X(cuStreamWaitEvent)                                                         \
  X(cuStreamBeginCapture)                                                      \
  X(cuStreamEndCapture)                                                        \
  X(cuGraphInstantiateWithFlags)                                               \
  X(cuGraphLaunch)                                                             \
  X(cuGraphExecDestroy)                                                        \
  X(cuGraphDestroy)                                                            \
  X(cuEventCreate)                                                             \
  X(cuEventDestroy)                                                            \
  X(cuEventRecord)                                                             \
  X(cuEventSynchronize)                                                        \
  X(cuEventElapsedTime)                                                        \
  X(cuModuleLoadData)                                                          \
  X(cuModuleLoadDataEx)                                                        \
  X(cuModuleUnload)                                                            \
  X(cuModuleGetFunction)                                                       \
  X(cuFuncSetAttribute)                                                        \
  X(cuLaunchKernel)

#define CLEAVE_BLAS_FUNCTIONS(X)                                               \
  X(cublasLtCreate)                                                            \
  X(cublasLtGetStatusName)                                                     \
  X(cublasLtMatmulDescCreate)                                                  \
  X(cublasLtMatmulDescDestroy)                                                 \
  X(cublasLtMatmulDescSetAttribute)                                            \
  X(cublasLtMatrixLayoutCreate)                                                \
  X(cublasLtMatrixLayoutDestroy)                                               \
  X(cublasLtMatrixLayoutSetAttribute)                                          \
  X(cublasLtMatmulPreferenceCreate)                                            \
  X(cublasLtMatmulPreferenceDestroy)                                           \
  X(cublasLtMatmulPreferenceSetAttribute)                                      \
  X(cublasLtMatmulAlgoGetHeuristic)                                            \
  X(cublasLtMatmul)

#define CLEAVE_NCCL_FUNCTIONS(X)                                               \
  X(ncclGetVersion)                                                            \
  X(ncclGetUniqueId)                                                           \
  X(ncclMemAlloc)                                                              \
  X(ncclMemFree)                                                               \
  X(ncclCommInitRankConfig)                                                    \
  X(ncclCommGetAsyncError)                                                     \
  X(ncclCommAbort)                                                             \
  X(ncclCommDestroy)                                                           \
  X(ncclGetErrorString)                                                        \
  X(ncclGetLastError)                                                          \
  X(ncclAllReduce)                                                             \
  X(ncclAllGather)                                                             \
  X(ncclReduceScatter)                                                         \
  X(ncclBroadcast)                                                             \
  X(ncclSend)                                                                  \
  X(ncclRecv)                                                                  \
  X(ncclGroupStart)                                                            \
  X(ncclGroupEnd)

#define CLEAVE_DNN_FUNCTIONS(X)                                                \
  X(cudnnGetVersion)                                                           \
  X(cudnnGetErrorString)                                                       \
  X(cudnnGetLastErrorString)                                                   \
  X(cudnnCreate)                                                               \
  X(cudnnSetStream)                                                            \
  X(cudnnBackendCreateDescriptor)                                              \
  X(cudnnBackendDestroyDescriptor)                                             \
  X(cudnnBackendSetAttribute)                                                  \
  X(cudnnBackendGetAttribute)                                                  \
  X(cudnnBackendFinalize)                                                      \
  X(cudnnBackendExecute)

#define CLEAVE_DECLARE(name) decltype(&::name) name = nullptr;
struct DriverApi {
  CLEAVE_DRIVER_FUNCTIONS(CLEAVE_DECLARE)
  // Present only in the simulated driver, which records all calls; otherwise
  // NULL.
  cleave_recorder_note note = nullptr;
  cleave_recorder_kernels kernels = nullptr;
};
struct BlasApi {
  CLEAVE_BLAS_FUNCTIONS(CLEAVE_DECLARE)
};
struct NcclApi {
  CLEAVE_NCCL_FUNCTIONS(CLEAVE_DECLARE)
};
#ifdef CLEAVE_HAS_CUDNN
struct DnnApi {
  CLEAVE_DNN_FUNCTIONS(CLEAVE_DECLARE)
};
#endif
#undef CLEAVE_DECLARE

// Each function throws Error UNSUPPORTED, naming the library and what to do, if
// the library or one of its functions is missing. driver() returns an
// initialised driver.
const DriverApi &driver();
const BlasApi &blas();
const NcclApi &nccl();

// Throw Error unless the status is success. The message is "WHAT:
// CUDA_ERROR_NAME (text)". The error's code is OUT_OF_MEMORY if memory is
// exhausted, otherwise RANK_FAILED.
void check(CUresult status, const std::string &what);
void check(cublasStatus_t status, const std::string &what);
void check(ncclResult_t status, const std::string &what);

#ifdef CLEAVE_HAS_CUDNN
// Returns NULL if cuDNN or one of its functions is missing, or if
// CLEAVE_CUDA_NO_CUDNN is set. Other kernels then compute attention and
// convolutions.
const DnnApi *dnn();
void check(cudnnStatus_t status, const std::string &what);
#endif

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_API_H
