// Looking up functions of cuDNN.

#include "api.h"
#include "library.h"

#include <cstdlib>
#include <string_view>

using namespace cleave;
using namespace cleave::cuda;

namespace {
struct OptionalDnn {
  DnnApi api;
  bool isThere = false;
};

OptionalDnn loadDnn() {
  OptionalDnn out;
  const char *off = std::getenv("CLEAVE_CUDA_NO_CUDNN");
  if (off && *off && std::string_view(off) != "0")
    return out;
  try {
    std::string file = "libcudnn.so." + std::to_string(CUDNN_MAJOR);
    Library library(file.c_str(), "cuDNN");
    DnnApi &api = out.api;
    CLEAVE_DNN_FUNCTIONS(CLEAVE_LOOK_UP)
    out.isThere = true;
  } catch (const RuntimeError &) {
    // Others do what it would do.
  }
  return out;
}
} // namespace

const DnnApi *cuda::dnn() {
  static const OptionalDnn found = loadDnn();
  return found.isThere ? &found.api : nullptr;
}

void cuda::check(cudnnStatus_t status, const std::string &what) {
  if (status == CUDNN_STATUS_SUCCESS)
    return;
  char last[512] = "";
  dnn()->cudnnGetLastErrorString(last, sizeof(last));
  fail(status == CUDNN_STATUS_ALLOC_FAILED ? CLEAVE_OUT_OF_MEMORY
                                           : CLEAVE_RANK_FAILED,
       what + ": " + dnn()->cudnnGetErrorString(status) +
           (*last ? std::string(" (") + last + ")" : ""));
}
