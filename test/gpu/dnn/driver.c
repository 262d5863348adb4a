/* A driver without devices that loads every module: cuDNN builds plans for
 * devices that are described to it, and wants only to hand over the code. What
 * would run something fails. */
#include <stddef.h>

enum { noDevice = 100, stub = 34 };

int cuInit(unsigned flags) {
  (void)flags;
  return noDevice;
}
int cuDeviceGetCount(int *count) {
  *count = 0;
  return noDevice;
}
int cuGetErrorString(int status, const char **text) {
  (void)status;
  *text = "no device";
  return 0;
}

static char anything;
int cuLibraryLoadData(void **library, const void *code) {
  (void)code;
  *library = &anything;
  return 0;
}
int cuLibraryGetKernel(void **kernel) {
  *kernel = &anything;
  return 0;
}
int cuLibraryUnload(void *library) {
  (void)library;
  return 0;
}

/* Looked up with the others. */
#define FAILS(name)                                                            \
  int name(void) { return stub; }
FAILS(cuCtxGetCurrent)
FAILS(cuCtxGetLimit)
FAILS(cuCtxPopCurrent)
FAILS(cuCtxPushCurrent)
FAILS(cuDeviceGet)
FAILS(cuDriverGetVersion)
FAILS(cuGetErrorName)
FAILS(cuKernelGetAttribute)
FAILS(cuKernelGetFunction)
FAILS(cuKernelSetAttribute)
FAILS(cuLaunchCooperativeKernel)
FAILS(cuLaunchKernel)
FAILS(cuLaunchKernelEx)
FAILS(cuLibraryLoadFromFile)
FAILS(cuLinkAddData)
FAILS(cuLinkComplete)
FAILS(cuLinkCreate)
FAILS(cuLinkDestroy)
FAILS(cuOccupancyMaxPotentialClusterSize)
FAILS(cuStreamGetCtx)
