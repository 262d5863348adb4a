// Convolutions by cuDNN.

#include "dnn_convolution.h"

#include "cleave/workspace.h"
#include "convolution_plan.h"
#include "dnn.h"
#include "dnn_device.h"
#include "error.h"

using namespace cleave;
using namespace cleave::cuda;
using program::Convolution;
using program::ConvolutionKind;
using program::DType;

namespace {
// cuDNN has two spatial dimensions at least.
std::vector<int64_t> atLeastTwo(std::vector<int64_t> spatial, int64_t first) {
  if (spatial.size() == 1)
    spatial.insert(spatial.begin(), first);
  return spatial;
}
std::vector<int64_t> tensorDims(std::vector<int64_t> dims) {
  if (dims.size() == 3)
    dims.insert(dims.begin() + 2, 1);
  return dims;
}

// All that a plan depends on.
std::vector<int64_t> keyOf(const Convolution &x, bool tf32, int64_t workspace) {
  std::vector<int64_t> key{static_cast<int64_t>(x.kind),
                           static_cast<int64_t>(x.dtype),
                           tf32,
                           workspace,
                           x.samples,
                           x.groups,
                           x.channels,
                           x.features,
                           std::ssize(x.input)};
  for (auto *list : {&x.input, &x.kernel, &x.output, &x.strides, &x.dilations,
                     &x.low, &x.high})
    key.insert(key.end(), list->begin(), list->end());
  return key;
}

std::string describe(const Convolution &x) {
  auto text = [](const std::vector<int64_t> &sizes) {
    std::string out;
    for (int64_t size : sizes)
      out += (out.empty() ? "" : " x ") + std::to_string(size);
    return out;
  };
  constexpr const char *kinds[] = {"a convolution",
                                   "the input's gradient of a convolution",
                                   "the filter's gradient of a convolution"};
  return std::string(kinds[static_cast<int>(x.kind)]) + " of " +
         text(inputDims(x)) + " by " + text(filterDims(x));
}
} // namespace

void cuda::buildDnnConvolution(DnnGraph &graph, const Convolution &x) {
  if (x.dtype != DType::F32 && x.dtype != DType::BF16)
    throw DnnRefusal(std::string("it is in ") + nameOf(x.dtype));
  cudnnDataType_t type =
      x.dtype == DType::F32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
  auto tensor = [&](int64_t id, const std::vector<int64_t> &dims) {
    return graph.tensor(id, type, DnnShape::dense(tensorDims(dims)));
  };
  DnnGraph::Tensor input = tensor(dnnX, inputDims(x)),
                   filter = tensor(dnnW, filterDims(x)),
                   output = tensor(dnnY, outputDims(x));
  graph.convolve(static_cast<DnnGraph::Convolution>(x.kind), input, filter,
                 output,
                 {atLeastTwo(x.strides, 1), atLeastTwo(x.dilations, 1),
                  atLeastTwo(x.low, 0), atLeastTwo(x.high, 0)});
}

DnnNotes cuda::refusedOfConvolutions(DType type, bool tf32) {
  DnnNotes notes{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
                 CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
                 CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
                 CUDNN_NUMERICAL_NOTE_FFT,
                 CUDNN_NUMERICAL_NOTE_WINOGRAD,
                 CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
                 CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
                 CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13};
  if (type == DType::F32 && !tf32)
    notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  return notes;
}

Enqueue cuda::makeDnnConvolution(Device &device, const Convolution &x,
                                 const ConvolutionBuffers &at, bool tf32,
                                 std::string &why) {
  tf32 |= x.narrow;
  int64_t bytes = cuda::convolutionWorkspace(x, why);
  if (bytes < 0)
    return nullptr;
  if (bytes == 0) {
    why = std::string("it is in ") + nameOf(x.dtype);
    return nullptr;
  }
  for (const void *array : {at.x, at.w, at.y})
    if (address(array) % 16) {
      why = "an array does not begin at a multiple of 16 bytes";
      return nullptr;
    }
  DnnDevice *dnn = DnnDevice::of(device, why);
  if (!dnn)
    return nullptr;
  int64_t room = dnnConvolutionBytes(x);
  const DnnEntry &entry =
      dnn->planOf(DnnFamily::Convolution, keyOf(x, tf32, room),
                  [&](const DnnTarget &target, DnnEntry &made) {
                    DnnGraph graph(target.api);
                    buildDnnConvolution(graph, x);
                    made.plan.emplace(target, graph, room, std::nullopt,
                                      refusedOfConvolutions(x.dtype, tf32));
                    made.ids = graph.ids();
                  });
  if (!entry.plan) {
    why = entry.why;
    return nullptr;
  }
  std::shared_ptr<DnnDescriptor> pack;
  try {
    pack = std::make_shared<DnnDescriptor>(
        dnn->api, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    void *places[] = {at.x, at.w, at.y};
    pack->set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
              std::vector<int64_t>{dnnX, dnnW, dnnY});
    pack->set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3,
              places);
    // Planned at multiples of 64.
    char *workspace = static_cast<char *>(at.workspace);
    workspace += -address(workspace) & 255;
    void *aligned = workspace;
    pack->set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
              &aligned);
    pack->finalize();
  } catch (const DnnRefusal &refusal) {
    why = refusal.what();
    return nullptr;
  }
  return [dnn, &entry, pack, what = describe(x)](CUstream stream) {
    dnn->execute(*entry.plan, *pack, stream, what);
  };
}
