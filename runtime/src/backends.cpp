// Which backend and transport a session has.

#include "backends.h"

#include "error.h"

#include <string_view>

using namespace cleave;
using program::Device;

static const DeviceSupport &cuda() {
  const DeviceSupport *support = cudaSupport();
  if (!support)
    fail(CLEAVE_UNSUPPORTED,
         "the program is for CUDA devices, but this cleave was built without "
         "the CUDA toolkit; build it where nvcc and nccl.h are, or compile "
         "with target.kind = \"cpu\"");
  return *support;
}

void cleave::needCuda() { cuda().need(); }

std::vector<std::unique_ptr<Backend>>
cleave::makeBackends(cleave_program &program, const SessionShape &shape,
                     Counters &counters) {
  std::vector<std::unique_ptr<Backend>> backends;
  if (program.data.device == Device::Cuda)
    return cuda().makeBackends(program, shape);
  for (int rank = shape.first; rank < shape.first + shape.here; ++rank)
    backends.push_back(makeCpuBackend(program, rank, shape.threadsPerRank,
                                      counters.attentionFlops(rank)));
  return backends;
}

std::unique_ptr<Transport>
cleave::makeTransport(const cleave_program &program, const char *kind,
                      const TransportOptions &options,
                      const SessionShape &shape, Counters &counters,
                      const Neighbours &neighbours,
                      const std::vector<std::unique_ptr<Backend>> &backends) {
  std::string_view name = kind ? kind : "local";
  if (program.data.device == Device::Cuda && name == "mpi")
    fail(CLEAVE_BAD_ARGUMENT, "transport mpi moves memory of the host; CUDA "
                              "programs have local and nccl");
  if (program.data.device == Device::Cuda)
    return cuda().makeTransport(name, options, shape, counters, neighbours,
                                backends);
  if (name == "nccl")
    fail(CLEAVE_BAD_ARGUMENT, "transport nccl is for CUDA programs; this one "
                              "is for CPUs: use local or mpi");
  if (neighbours.world)
    return makeMpiTransport(options, counters, *neighbours.world);
  return makeLocalTransport(options, counters);
}
