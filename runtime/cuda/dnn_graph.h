// cuDNN graphs of operations, and the plans that execute them.
#ifndef CLEAVE_RUNTIME_CUDA_DNN_GRAPH_H
#define CLEAVE_RUNTIME_CUDA_DNN_GRAPH_H

#include "api.h"

#include <cudnn.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace cleave::cuda {

// Thrown if cuDNN cannot compute an operation, or must not be used for it;
// what() gives the reason.
struct DnnRefusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Owns a descriptor of cuDNN's backend API. All functions throw DnnRefusal.
class DnnDescriptor {
public:
  DnnDescriptor(const DnnApi &api, cudnnBackendDescriptorType_t kind);
  DnnDescriptor(const DnnDescriptor &) = delete;
  ~DnnDescriptor() { (void)api.cudnnBackendDestroyDescriptor(at); }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           int64_t count, const void *values);
  void set(cudnnBackendAttributeName_t name, int64_t value) {
    set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name,
           const std::vector<int64_t> &values) {
    set(name, CUDNN_TYPE_INT64, std::ssize(values), values.data());
  }
  void set(cudnnBackendAttributeName_t name, bool value) {
    set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const DnnDescriptor &value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.at);
  }
  void finalize();

  // Copies the elements of an attribute into `values`, which has room for
  // `most` elements. Returns the number of elements.
  int64_t get(cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, int64_t most,
              void *values) const;

  cudnnBackendDescriptor_t get() const { return at; }

private:
  const DnnApi &api;
  cudnnBackendDescriptor_t at = nullptr;
};

using DnnParts = std::vector<std::shared_ptr<const DnnDescriptor>>;

// The shape and strides of a tensor, in elements.
struct DnnShape {
  std::vector<int64_t> dims, strides;

  static DnnShape dense(std::vector<int64_t> dims);
  // Returns the shape with its last two dimensions exchanged.
  DnnShape turned() const;
};

// The device for which a plan is created: a real device with its handle, or in
// tests without a device the description of one (`properties`).
struct DnnTarget {
  const DnnApi &api;
  int capability; // 90: sm_90
  cudnnHandle_t handle = nullptr;
  const DnnDescriptor *properties = nullptr;
};

// The strides and dilations of a convolution, and its padding before and after
// the input. Each list has one entry for each spatial dimension.
struct DnnWindow {
  std::vector<int64_t> strides, dilations, low, high;
};

class DnnGraph {
public:
  explicit DnnGraph(const DnnApi &api) : api(api) {}

  using Tensor = const DnnDescriptor *;

  // Adds a tensor in memory, at a multiple of 16 bytes. When a plan is
  // executed, `id` identifies the address of the tensor.
  Tensor tensor(int64_t id, cudnnDataType_t type, const DnnShape &shape);
  // Adds a scalar, whose value a plan reads from host memory.
  Tensor scalar(int64_t id, cudnnDataType_t type, size_t rank);
  // Adds an intermediate tensor that is not stored in memory.
  Tensor between(cudnnDataType_t type, const DnnShape &shape);

  // out = a b, summed in f32.
  void matmul(Tensor a, Tensor b, Tensor out);
  void reduce(cudnnReduceTensorOp_t mode, Tensor from, Tensor out);
  // `out` has the elements of `from`, with other dimensions and strides.
  void reshape(Tensor from, Tensor out);
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor out,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor out,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  // out = where ? x : otherwise
  void select(Tensor where, Tensor x, Tensor otherwise, Tensor out);
  // Adds an operation to the graph that computes the cross-correlation y of x
  // and w, or the gradient of x or w from that of y. Products are summed in
  // f32.
  enum class Convolution { Forward, InputGrad, FilterGrad };
  void convolve(Convolution kind, Tensor x, Tensor w, Tensor y,
                const DnnWindow &window);
  // Writes to every element of `out` its index along `axis`. `x` has the shape
  // of `out`.
  void index(int64_t axis, Tensor x, Tensor out);

  // The ids of all tensors in memory and of all scalars.
  const std::vector<int64_t> &ids() const { return given; }

private:
  friend class DnnPlan;
  DnnDescriptor &add(cudnnBackendDescriptorType_t kind);
  DnnDescriptor &describe(int64_t id, cudnnDataType_t type,
                          const DnnShape &shape);
  DnnDescriptor &pointwiseOf(cudnnPointwiseMode_t mode, Tensor x, Tensor out,
                             cudnnDataType_t compute, int64_t axis = -1);
  void finish(DnnDescriptor &operation);

  const DnnApi &api;
  int64_t made = 0;
  std::vector<int64_t> given;
  std::vector<std::shared_ptr<DnnDescriptor>> all;
  std::vector<cudnnBackendDescriptor_t> operations;
};

// The numerical notes by which cuDNN describes how an engine computes.
using DnnNotes = std::vector<cudnnBackendNumericalNote_t>;

// Identifies the chosen engine, for messages and tests.
struct DnnChoice {
  int64_t engine = -1, workspace = 0;
  DnnNotes notes;

  bool has(cudnnBackendNumericalNote_t note) const;
};

// An engine that is requested by its number and settings, without heuristics.
struct DnnEngine {
  int64_t number = 0;
  std::vector<std::pair<cudnnBackendKnobType_t, int64_t>> knobs;
};

// The numerical notes of engines that are never used, because their results
// differ in some bits from run to run.
inline const DnnNotes neverTaken{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};

class DnnPlan {
public:
  // Uses the first engine from cuDNN's heuristics (or only `engine`, if it is
  // given) that needs at most `mostWorkspace` bytes of workspace and has none
  // of the numerical notes `refused`. Throws DnnRefusal if there is no such
  // engine. The graph may be destroyed afterwards.
  DnnPlan(const DnnTarget &target, const DnnGraph &graph, int64_t mostWorkspace,
          const std::optional<DnnEngine> &engine = {},
          const DnnNotes &refused = neverTaken);

  // Returns all engines that the constructor chooses from.
  static std::vector<DnnChoice>
  choices(const DnnTarget &target, const DnnGraph &graph,
          const std::optional<DnnEngine> &engine = {});

  cudnnBackendDescriptor_t get() const { return parts.back()->get(); }
  const DnnChoice &choice() const { return chosen; }

private:
  DnnParts parts; // descriptors; the plan is the last one
  DnnChoice chosen;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_DNN_GRAPH_H
