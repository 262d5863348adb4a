// The simulated cuDNN: descriptors as the caller sets them, and graphs that run
// one operation at a time.

#include "dnn_graph.h"
#include "queue.h"

#include <algorithm>
#include <cstring>
#include <map>

using namespace recorder;

namespace {
struct Value {
  cudnnBackendAttributeType_t type{};
  int64_t count = 0;
  std::vector<char> bytes;
  std::vector<std::shared_ptr<struct Descriptor>> descriptors;
};

struct Descriptor {
  cudnnBackendDescriptorType_t kind{};
  std::map<cudnnBackendAttributeName_t, Value> values;
  bool isFinal = false;
  std::shared_ptr<const DnnProgram> program; // of a graph

  const Value *find(cudnnBackendAttributeName_t name) const {
    auto found = values.find(name);
    return found == values.end() ? nullptr : &found->second;
  }
  template <class T>
  std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const Value *value = find(name);
    std::vector<T> out(value ? value->bytes.size() / sizeof(T) : 0);
    if (!out.empty())
      std::memcpy(out.data(), value->bytes.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T> T one(cudnnBackendAttributeName_t name, T without) const {
    const Value *value = find(name);
    if (value && value->bytes.size() >= sizeof(T))
      std::memcpy(&without, value->bytes.data(), sizeof(T));
    return without;
  }
  std::shared_ptr<Descriptor> of(cudnnBackendAttributeName_t name) const {
    const Value *value = find(name);
    return value && !value->descriptors.empty() ? value->descriptors[0]
                                                : nullptr;
  }
};

struct Handle {
  Device *device = nullptr;
  cudaStream_t stream = nullptr;
};

std::mutex mutex; // of what follows
std::map<void *, std::shared_ptr<Descriptor>> descriptors;
thread_local std::string lastError;

cudnnStatus_t refuse(cudnnStatus_t status, const std::string &why) {
  lastError = why;
  return status;
}

std::shared_ptr<Descriptor> find(void *at) {
  std::lock_guard lock(mutex);
  auto found = descriptors.find(at);
  return found == descriptors.end() ? nullptr : found->second;
}

size_t sizeOf(cudnnBackendAttributeType_t type) {
  switch (type) {
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR:
  case CUDNN_TYPE_INT64:
    return 8;
  case CUDNN_TYPE_BOOLEAN:
    return sizeof(bool);
  default:
    return 4; // enumerations
  }
}

DnnTensor tensorOf(const Descriptor &from) {
  DnnTensor out;
  out.id = from.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, -1);
  out.alignment = from.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
  out.type = from.one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  out.dims = from.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  out.strides = from.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  out.isVirtual = from.one(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
  out.isValue = from.one(CUDNN_ATTR_TENSOR_IS_BY_VALUE, false);
  return out;
}

// The attributes of an operation that name the tensors that it reads and the
// tensor that it writes.
struct Ports {
  DnnOperation::Kind kind{};
  std::vector<cudnnBackendAttributeName_t> from;
  cudnnBackendAttributeName_t to{};
  // Of convolutions.
  cudnnBackendAttributeName_t how{}, alpha{}, beta{};
};
bool portsOf(const Descriptor &operation, Ports &out) {
  switch (operation.kind) {
  case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    out = {
        DnnOperation::Kind::Matmul,
        {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
        CUDNN_ATTR_OPERATION_MATMUL_CDESC};
    return true;
  case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    out = {DnnOperation::Kind::Reduction,
           {CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
           CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
    return true;
  case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
    out = {DnnOperation::Kind::Reshape,
           {CUDNN_ATTR_OPERATION_RESHAPE_XDESC},
           CUDNN_ATTR_OPERATION_RESHAPE_YDESC};
    return true;
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    out = {DnnOperation::Kind::Pointwise,
           {CUDNN_ATTR_OPERATION_POINTWISE_XDESC},
           CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
    for (auto name : {CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                      CUDNN_ATTR_OPERATION_POINTWISE_TDESC})
      if (operation.of(name))
        out.from.push_back(name);
    return true;
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    out = {DnnOperation::Kind::Forward,
           {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    return true;
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    out = {DnnOperation::Kind::InputGrad,
           {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W},
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    return true;
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    out = {DnnOperation::Kind::FilterGrad,
           {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X},
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    return true;
  default:
    return false;
  }
}

std::string addTo(DnnProgram &program, const Descriptor &descriptor) {
  Ports ports;
  if (!portsOf(descriptor, ports))
    return "the recorder has no such operation";
  DnnOperation operation{};
  operation.kind = ports.kind;
  auto idOf = [&](cudnnBackendAttributeName_t name, int64_t &id) {
    std::shared_ptr<Descriptor> tensor = descriptor.of(name);
    if (!tensor || tensor->kind != CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      return std::string("an operation lacks a tensor");
    DnnTensor described = tensorOf(*tensor);
    id = described.id;
    return program.add(described);
  };
  std::string fault = idOf(ports.to, operation.to);
  for (cudnnBackendAttributeName_t name : ports.from) {
    int64_t id = 0;
    if (fault.empty())
      fault = idOf(name, id);
    operation.from.push_back(id);
  }
  if (!fault.empty())
    return fault;
  if (auto how = descriptor.of(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)) {
    operation.mode =
        how->one(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_IDENTITY);
    operation.axis = how->one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1);
  } else if (ports.kind == DnnOperation::Kind::Pointwise) {
    return "an operation on elements does not say which";
  }
  if (auto how = descriptor.of(CUDNN_ATTR_OPERATION_REDUCTION_DESC))
    operation.reduction =
        how->one(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_NORM1);
  if (operation.isConvolution()) {
    std::shared_ptr<Descriptor> how = descriptor.of(ports.how);
    if (!how || how->one(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CONVOLUTION) !=
                    CUDNN_CROSS_CORRELATION)
      return "a convolution does not say how, or turns its filter around";
    if (how->one(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_HALF) !=
        CUDNN_DATA_FLOAT)
      return "a convolution is not summed in f32";
    if (descriptor.one(ports.alpha, 0.0f) != 1 ||
        descriptor.one(ports.beta, 1.0f) != 0)
      return "a convolution is scaled, or added to its result";
    operation.strides =
        how->all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    operation.dilations = how->all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
    operation.low = how->all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    operation.high = how->all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    if (how->one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0) !=
        std::ssize(operation.strides))
      return "a convolution has windows of another rank than it says";
  }
  return program.add(operation);
}

std::string finishGraph(Descriptor &graph) {
  const Value *operations = graph.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (!operations || operations->descriptors.empty())
    return "a graph has no operations";
  auto program = std::make_shared<DnnProgram>();
  for (const std::shared_ptr<Descriptor> &operation : operations->descriptors)
    if (std::string fault = addTo(*program, *operation); !fault.empty())
      return fault;
  graph.program = program;
  return "";
}

// Returns the graph of an engine, an engine configuration or a plan.
std::shared_ptr<Descriptor> graphOf(const Descriptor &from) {
  for (auto name :
       {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_ATTR_ENGINECFG_ENGINE,
        CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
        CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH})
    if (std::shared_ptr<Descriptor> next = from.of(name))
      return next->program ? next : graphOf(*next);
  return nullptr;
}

// Returns the number of the engine in an engine, an engine configuration or a
// plan.
int64_t engineOf(const Descriptor &from) {
  if (from.kind == CUDNN_BACKEND_ENGINE_DESCRIPTOR)
    return from.one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0);
  for (auto name :
       {CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG})
    if (std::shared_ptr<Descriptor> next = from.of(name))
      return engineOf(*next);
  return 0;
}

template <class T>
cudnnStatus_t answer(T value, int64_t most, int64_t *count, void *out) {
  *count = 1;
  if (most > 0)
    std::memcpy(out, &value, sizeof(T));
  return CUDNN_STATUS_SUCCESS;
}

// Returns an attribute whose value is itself a descriptor. As in cuDNN, the
// caller passes an existing descriptor `to`, which is overwritten with the
// attribute's value `made`.
cudnnStatus_t hand(const std::shared_ptr<Descriptor> &made, void *to) {
  std::shared_ptr<Descriptor> place = find(to);
  if (!place)
    return refuse(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
  *place = *made;
  return CUDNN_STATUS_SUCCESS;
}
} // namespace

size_t cudnnGetVersion() { return CUDNN_VERSION; }

const char *cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
  case CUDNN_STATUS_SUCCESS:
    return "CUDNN_STATUS_SUCCESS";
  case CUDNN_STATUS_BAD_PARAM:
    return "CUDNN_STATUS_BAD_PARAM";
  case CUDNN_STATUS_NOT_SUPPORTED:
    return "CUDNN_STATUS_NOT_SUPPORTED";
  default:
    return "another status of cuDNN";
  }
}

void cudnnGetLastErrorString(char *message, size_t size) {
  if (size == 0)
    return;
  std::strncpy(message, lastError.c_str(), size);
  message[size - 1] = 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *out) {
  if (!currentDevice)
    return CUDNN_STATUS_NOT_INITIALIZED;
  *out = reinterpret_cast<cudnnHandle_t>(new Handle{currentDevice, nullptr});
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  reinterpret_cast<Handle *>(handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t kind,
                                           cudnnBackendDescriptor_t *out) {
  auto made = std::make_shared<Descriptor>();
  made->kind = kind;
  std::lock_guard lock(mutex);
  *out = made.get();
  descriptors[made.get()] = made;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t at) {
  std::lock_guard lock(mutex);
  return descriptors.erase(at)
             ? CUDNN_STATUS_SUCCESS
             : refuse(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t at,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       int64_t count, const void *values) {
  std::shared_ptr<Descriptor> descriptor = find(at);
  if (!descriptor || descriptor->isFinal || count < 0)
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "no such descriptor, or one that is finished");
  Value value{type, count, {}, {}};
  const char *bytes = static_cast<const char *>(values);
  value.bytes.assign(bytes, bytes + size_t(count) * sizeOf(type));
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < count; ++i) {
      std::shared_ptr<Descriptor> other =
          find(static_cast<void *const *>(values)[i]);
      if (!other || !other->isFinal)
        return refuse(CUDNN_STATUS_BAD_PARAM,
                      "a descriptor is given that is not finished");
      value.descriptors.push_back(other);
    }
  descriptor->values[name] = std::move(value);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t at) {
  std::shared_ptr<Descriptor> descriptor = find(at);
  if (!descriptor || descriptor->isFinal)
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "no such descriptor, or one that is finished");
  std::string fault;
  if (descriptor->kind == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    fault = finishGraph(*descriptor);
  else if (descriptor->kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
           (!descriptor->find(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) ||
            !graphOf(*descriptor)))
    fault = "a plan lacks its handle or its graph";
  if (!fault.empty())
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, fault);
  descriptor->isFinal = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t at,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t,
                                       int64_t most, int64_t *count,
                                       void *out) {
  std::shared_ptr<Descriptor> descriptor = find(at);
  if (!descriptor || !descriptor->isFinal)
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "no such descriptor, or one that is not finished");
  switch (name) {
  case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
    std::vector<DnnEngine> engines = graphOf(*descriptor)->program->engines();
    *count = std::ssize(engines);
    for (int64_t i = 0; i < std::min(most, *count); ++i) {
      auto engine = std::make_shared<Descriptor>();
      engine->kind = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
      engine->isFinal = true;
      engine->values[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] =
          *descriptor->find(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      const char *number = reinterpret_cast<const char *>(&engines[i].number);
      engine->values[CUDNN_ATTR_ENGINE_GLOBAL_INDEX].bytes.assign(number,
                                                                  number + 8);
      auto config = std::make_shared<Descriptor>();
      config->kind = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
      config->isFinal = true;
      config->values[CUDNN_ATTR_ENGINECFG_ENGINE].descriptors = {engine};
      if (cudnnStatus_t status = hand(config, static_cast<void **>(out)[i]))
        return status;
    }
    return CUDNN_STATUS_SUCCESS;
  }
  case CUDNN_ATTR_ENGINECFG_ENGINE: {
    *count = 1;
    return hand(descriptor->of(name), *static_cast<void **>(out));
  }
  case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
    return answer(descriptor->one<int64_t>(name, 0), most, count, out);
  case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
    *count = 0;
    for (const DnnEngine &engine : graphOf(*descriptor)->program->engines())
      if (engine.number == engineOf(*descriptor))
        for (cudnnBackendNumericalNote_t note : engine.notes)
          if (int64_t i = (*count)++; i < most)
            static_cast<cudnnBackendNumericalNote_t *>(out)[i] = note;
    return CUDNN_STATUS_SUCCESS;
  case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
    return answer(
        graphOf(*descriptor)->program->workspace(engineOf(*descriptor)), most,
        count, out);
  default:
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  "the recorder does not know this attribute");
  }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handleAt,
                                  cudnnBackendDescriptor_t planAt,
                                  cudnnBackendDescriptor_t packAt) {
  std::shared_ptr<Descriptor> plan = find(planAt), pack = find(packAt);
  const auto *handle = reinterpret_cast<Handle *>(handleAt);
  if (!plan || !pack || !plan->isFinal || !pack->isFinal)
    return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor is not finished");
  std::shared_ptr<const DnnProgram> program = graphOf(*plan)->program;
  std::vector<int64_t> ids =
      pack->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  std::vector<char *> pointers =
      pack->all<char *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<int64_t, char *> at;
  for (size_t i = 0; i < ids.size() && i < pointers.size(); ++i)
    at[ids[i]] = pointers[i];
  std::vector<int64_t> wanted = program->ids();
  bool isWhole = ids.size() == wanted.size() && ids.size() == pointers.size();
  for (int64_t id : wanted)
    isWhole = isWhole && at.count(id) && at[id];
  if (!isWhole)
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "what is given is not what the graph has in memory");

  Recorder &all = Recorder::get();
  auto lock = all.lock();
  Stream *stream = all.stream(reinterpret_cast<CUstream>(handle->stream));
  if (!stream)
    return refuse(CUDNN_STATUS_BAD_PARAM, "no such stream");
  Operation operation;
  operation.who = all.name(*stream, "plan of cuDNN");
  if (handle->device->number != stream->device)
    all.report.error(operation.who->text() +
                     ": the handle is of another device than the stream");
  operation.accesses = program->accesses(at);
  for (const Access &access : operation.accesses)
    if (reinterpret_cast<uintptr_t>(access.at) % 16)
      return refuse(CUDNN_STATUS_BAD_PARAM,
                    "an array does not begin at a multiple of 16 bytes");
  auto *workspace =
      pack->one<char *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  int64_t engine = engineOf(*plan), bytes = program->workspace(engine);
  if (!workspace || reinterpret_cast<uintptr_t>(workspace) % 256)
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "the workspace does not begin at a multiple of 256 bytes");
  for (const Access &access : operation.accesses)
    if (access.at < workspace + bytes && workspace < access.at + access.bytes)
      return refuse(CUDNN_STATUS_BAD_PARAM, "an array is in the workspace");
  operation.accesses.push_back({workspace, bytes, true});
  ++all.report.totals.plans;
  operation.run = [run = program->bind(at, engine), workspace, bytes] {
    // A plan may overwrite all of its workspace, so the workspace is filled
    // with NaN, both in bf16 and in f32.
    std::memset(workspace, 0xff, size_t(bytes));
    run();
  };
  all.enqueue(*stream, std::move(operation));
  return CUDNN_STATUS_SUCCESS;
}
