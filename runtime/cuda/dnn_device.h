// The cuDNN handle of a device, with the plans that were created for it.
#ifndef CLEAVE_RUNTIME_CUDA_DNN_DEVICE_H
#define CLEAVE_RUNTIME_CUDA_DNN_DEVICE_H

#include "device.h"
#include "dnn_graph.h"

#include <functional>
#include <map>
#include <mutex>

namespace cleave::cuda {

// A plan, or the reason (`why`) for which there is none.
struct DnnEntry {
  std::optional<DnnPlan> plan;
  std::vector<int64_t> ids; // of the arrays and scalars it is given
  std::string why;
};

enum class DnnFamily { Attention, Convolution };

class DnnDevice {
public:
  // Returns NULL if the device has no cuDNN; `why` says what is missing.
  static DnnDevice *of(Device &device, std::string &why);

  // Returns the entry for a key. At the first call with this key, `make`
  // creates the plan; if it throws DnnRefusal, the entry has the reason.
  using Make = std::function<void(const DnnTarget &, DnnEntry &)>;
  const DnnEntry &planOf(DnnFamily family, std::vector<int64_t> key,
                         const Make &make);

  // Enqueues a plan with the addresses in `pack`. Ranks that share a device
  // take turns, because the handle is bound to one stream at a time.
  void execute(const DnnPlan &plan, const DnnDescriptor &pack, CUstream stream,
               const std::string &what);

  const DnnApi &api;

private:
  DnnDevice(const DnnApi &api, Device &device);

  const int capability;
  cudnnHandle_t handle = nullptr;
  std::string missing;
  std::mutex mutex;
  std::map<std::pair<DnnFamily, std::vector<int64_t>>, DnnEntry> plans;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_DNN_DEVICE_H
