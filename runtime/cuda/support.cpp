// CUDA devices, for sessions.

#include "api.h"
#include "backend.h"
#include "backends.h"

using namespace cleave;

const DeviceSupport *cleave::cudaSupport() {
  static const DeviceSupport support = {
      [] { cuda::driver(); }, cuda::makeBackends, cuda::makeTransport};
  return &support;
}
