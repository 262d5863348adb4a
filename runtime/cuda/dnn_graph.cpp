// Builds cuDNN graphs of operations, and the plans that execute them.

#include "dnn_graph.h"

#include <algorithm>
#include <functional>

using namespace cleave::cuda;

namespace {
[[noreturn]] void refuse(const DnnApi &api, cudnnStatus_t status,
                         const char *what) {
  char last[512] = "";
  api.cudnnGetLastErrorString(last, sizeof(last));
  throw DnnRefusal(std::string(what) + ": " + api.cudnnGetErrorString(status) +
                   (*last ? std::string(" (") + last + ")" : ""));
}

using Made = std::shared_ptr<DnnDescriptor>;
Made make(const DnnTarget &target, cudnnBackendDescriptorType_t kind) {
  return std::make_shared<DnnDescriptor>(target.api, kind);
}

// Sets the target of a descriptor: the handle of a real device, or a device
// description.
void setTarget(DnnDescriptor &to, const DnnTarget &target,
               cudnnBackendAttributeName_t properties) {
  if (target.properties)
    to.set(properties, *target.properties);
}

Made makeGraph(const DnnTarget &target,
               const std::vector<cudnnBackendDescriptor_t> &operations) {
  Made graph = make(target, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph->set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             std::ssize(operations), operations.data());
  if (target.handle)
    graph->set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
               &target.handle);
  graph->finalize();
  return graph;
}

// Returns the engine configurations that cuDNN's heuristics offer in the mode
// `mode`, best first.
std::vector<Made> askHeuristics(const DnnTarget &target,
                                const DnnDescriptor &graph,
                                cudnnBackendHeurMode_t mode) {
  Made heuristics = make(target, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics->set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics->set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  setTarget(*heuristics, target, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  heuristics->finalize();
  auto ask = [&](int64_t most, cudnnBackendDescriptor_t *places) {
    return heuristics->get(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                           CUDNN_TYPE_BACKEND_DESCRIPTOR, most, places);
  };
  std::vector<Made> found;
  std::vector<cudnnBackendDescriptor_t> places;
  for (int64_t count = ask(0, nullptr); std::ssize(found) < count;) {
    found.push_back(make(target, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    places.push_back(found.back()->get());
  }
  if (!found.empty())
    found.resize(
        std::min(ask(std::ssize(places), places.data()), std::ssize(places)));
  return found;
}

// Returns a configuration of the engine `wanted`. Descriptors to which the
// configuration refers are added to `parts`.
Made configure(const DnnTarget &target, const DnnDescriptor &graph,
               const DnnEngine &wanted, DnnParts &parts) {
  Made engine = make(target, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine->set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
  engine->set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, wanted.number);
  setTarget(*engine, target, CUDNN_ATTR_ENGINE_DEVICEPROP);
  engine->finalize();
  parts.push_back(engine);
  Made config = make(target, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config->set(CUDNN_ATTR_ENGINECFG_ENGINE, *engine);
  std::vector<cudnnBackendDescriptor_t> places;
  for (const auto &[knob, value] : wanted.knobs) {
    Made choice = make(target, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    choice->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                &knob);
    choice->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value);
    choice->finalize();
    places.push_back(choice->get());
    parts.push_back(choice);
  }
  if (!places.empty())
    config->set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(places),
                places.data());
  config->finalize();
  return config;
}

// Returns the number and the numerical notes of a configuration's engine.
DnnChoice describe(const DnnTarget &target, const DnnDescriptor &config) {
  Made engine = make(target, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t place = engine->get();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
             &place);
  DnnChoice out;
  engine->get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &out.engine);
  // Room for 64 numerical notes: newer versions of cuDNN have more kinds of
  // notes than this header knows.
  DnnNotes notes(64);
  notes.resize(std::min(engine->get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                    CUDNN_TYPE_NUMERICAL_NOTE,
                                    std::ssize(notes), notes.data()),
                        std::ssize(notes)));
  out.notes = notes;
  return out;
}

Made makePlan(const DnnTarget &target, const DnnDescriptor &config,
              DnnChoice &choice) {
  Made plan = make(target, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (target.handle)
    plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
              &target.handle);
  setTarget(*plan, target, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  plan->finalize();
  plan->get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
            &choice.workspace);
  return plan;
}

// visitPlans() visits engine configurations in order until `take` returns true.
// If `wanted` is given, it visits only this engine, else the engines that
// cuDNN's heuristics offer. It skips engines that `mayTake` refuses, and
// engines for which no plan can be created; `why` receives the reason for the
// last of these.
struct Visit {
  std::function<bool(const DnnChoice &)> mayTake;
  std::function<bool(const DnnChoice &, DnnParts)> take;
};
void visitPlans(const DnnTarget &target, DnnParts parts,
                const std::vector<cudnnBackendDescriptor_t> &operations,
                const std::optional<DnnEngine> &wanted, std::string &why,
                const Visit &visit) {
  Made graph = makeGraph(target, operations);
  parts.push_back(graph);
  auto passOver = [&](auto &&body) {
    try {
      return body();
    } catch (const DnnRefusal &refusal) {
      why = refusal.what();
      return false;
    }
  };
  auto visitOne = [&](const Made &config) {
    return passOver([&] {
      DnnChoice choice = describe(target, *config);
      if (!visit.mayTake(choice)) // refused before cuDNN generates code
        return false;
      DnnParts all = parts;
      all.push_back(config);
      all.push_back(makePlan(target, *config, choice));
      return visit.take(choice, std::move(all));
    });
  };
  if (wanted) {
    passOver(
        [&] { return visitOne(configure(target, *graph, *wanted, parts)); });
    return;
  }
  for (cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    if (passOver([&] {
          std::vector<Made> found = askHeuristics(target, *graph, mode);
          return std::any_of(found.begin(), found.end(), visitOne);
        }))
      return;
}
} // namespace

DnnDescriptor::DnnDescriptor(const DnnApi &api,
                             cudnnBackendDescriptorType_t kind)
    : api(api) {
  cudnnStatus_t status = api.cudnnBackendCreateDescriptor(kind, &at);
  if (status != CUDNN_STATUS_SUCCESS)
    refuse(api, status, "cudnnBackendCreateDescriptor");
}

void DnnDescriptor::set(cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t count,
                        const void *values) {
  cudnnStatus_t status =
      api.cudnnBackendSetAttribute(at, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS)
    refuse(api, status,
           ("cudnnBackendSetAttribute " + std::to_string(name)).c_str());
}

void DnnDescriptor::finalize() {
  cudnnStatus_t status = api.cudnnBackendFinalize(at);
  if (status != CUDNN_STATUS_SUCCESS)
    refuse(api, status, "cudnnBackendFinalize");
}

int64_t DnnDescriptor::get(cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t most,
                           void *values) const {
  int64_t count = 0;
  cudnnStatus_t status =
      api.cudnnBackendGetAttribute(at, name, type, most, &count, values);
  if (status != CUDNN_STATUS_SUCCESS)
    refuse(api, status,
           ("cudnnBackendGetAttribute " + std::to_string(name)).c_str());
  return count;
}

DnnShape DnnShape::dense(std::vector<int64_t> dims) {
  DnnShape out{dims, dims};
  int64_t count = 1;
  for (size_t i = dims.size(); i-- > 0; count *= dims[i])
    out.strides[i] = count;
  return out;
}

DnnShape DnnShape::turned() const {
  DnnShape out = *this;
  size_t last = dims.size() - 1;
  std::swap(out.dims[last], out.dims[last - 1]);
  std::swap(out.strides[last], out.strides[last - 1]);
  return out;
}

DnnDescriptor &DnnGraph::add(cudnnBackendDescriptorType_t kind) {
  all.push_back(std::make_shared<DnnDescriptor>(api, kind));
  return *all.back();
}

DnnDescriptor &DnnGraph::describe(int64_t id, cudnnDataType_t type,
                                  const DnnShape &shape) {
  DnnDescriptor &out = add(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  out.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  out.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  out.set(CUDNN_ATTR_TENSOR_DIMENSIONS, shape.dims);
  out.set(CUDNN_ATTR_TENSOR_STRIDES, shape.strides);
  out.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t(16));
  return out;
}

DnnGraph::Tensor DnnGraph::tensor(int64_t id, cudnnDataType_t type,
                                  const DnnShape &shape) {
  DnnDescriptor &out = describe(id, type, shape);
  out.finalize();
  given.push_back(id);
  return &out;
}

DnnGraph::Tensor DnnGraph::scalar(int64_t id, cudnnDataType_t type,
                                  size_t rank) {
  std::vector<int64_t> ones(rank, 1);
  DnnDescriptor &out = describe(id, type, {ones, ones});
  out.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  out.finalize();
  given.push_back(id);
  return &out;
}

DnnGraph::Tensor DnnGraph::between(cudnnDataType_t type,
                                   const DnnShape &shape) {
  // The ids of tensors in memory are smaller.
  DnnDescriptor &out = describe(1000 + made++, type, shape);
  out.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  out.finalize();
  return &out;
}

void DnnGraph::finish(DnnDescriptor &operation) {
  operation.finalize();
  operations.push_back(operation.get());
}

void DnnGraph::matmul(Tensor a, Tensor b, Tensor out) {
  DnnDescriptor &how = add(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  how.finalize();
  DnnDescriptor &operation = add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *out);
  finish(operation);
}

void DnnGraph::reduce(cudnnReduceTensorOp_t mode, Tensor from, Tensor out) {
  DnnDescriptor &how = add(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
          &mode);
  how.finalize();
  DnnDescriptor &operation = add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *from);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *out);
  finish(operation);
}

void DnnGraph::reshape(Tensor from, Tensor out) {
  DnnDescriptor &operation = add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *from);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *out);
  finish(operation);
}

DnnDescriptor &DnnGraph::pointwiseOf(cudnnPointwiseMode_t mode, Tensor x,
                                     Tensor out, cudnnDataType_t compute,
                                     int64_t axis) {
  DnnDescriptor &how = add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
  if (axis >= 0)
    how.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  how.finalize();
  DnnDescriptor &operation = add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *out);
  return operation;
}

void DnnGraph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor out,
                         cudnnDataType_t compute) {
  finish(pointwiseOf(mode, x, out, compute));
}

void DnnGraph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b,
                         Tensor out, cudnnDataType_t compute) {
  DnnDescriptor &operation = pointwiseOf(mode, x, out, compute);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  finish(operation);
}

void DnnGraph::select(Tensor where, Tensor x, Tensor otherwise, Tensor out) {
  DnnDescriptor &operation =
      pointwiseOf(CUDNN_POINTWISE_BINARY_SELECT, x, out, CUDNN_DATA_FLOAT);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *otherwise);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *where);
  finish(operation);
}

void DnnGraph::index(int64_t axis, Tensor x, Tensor out) {
  finish(
      pointwiseOf(CUDNN_POINTWISE_GEN_INDEX, x, out, CUDNN_DATA_INT32, axis));
}

void DnnGraph::convolve(Convolution kind, Tensor x, Tensor w, Tensor y,
                        const DnnWindow &window) {
  DnnDescriptor &how = add(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  how.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
          &mode);
  how.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  how.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::ssize(window.strides));
  how.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, window.strides);
  how.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, window.dilations);
  how.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, window.low);
  how.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, window.high);
  how.finalize();
  struct Names {
    cudnnBackendDescriptorType_t kind;
    cudnnBackendAttributeName_t how, alpha, beta, x, w, y;
  };
  static constexpr Names all[] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
  const Names &names = all[static_cast<int>(kind)];
  DnnDescriptor &operation = add(names.kind);
  float alpha = 1, beta = 0;
  operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
  operation.set(names.beta, CUDNN_TYPE_FLOAT, 1, &beta);
  operation.set(names.how, how);
  operation.set(names.x, *x);
  operation.set(names.w, *w);
  operation.set(names.y, *y);
  finish(operation);
}

bool DnnChoice::has(cudnnBackendNumericalNote_t note) const {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

DnnPlan::DnnPlan(const DnnTarget &target, const DnnGraph &graph,
                 int64_t mostWorkspace, const std::optional<DnnEngine> &engine,
                 const DnnNotes &refused) {
  std::string why = "cuDNN has no engine for it";
  auto nameOf = [](const DnnChoice &choice) {
    return "engine " + std::to_string(choice.engine);
  };
  auto mayTake = [&](const DnnChoice &choice) {
    for (cudnnBackendNumericalNote_t note : refused)
      if (choice.has(note)) {
        why = nameOf(choice) +
              (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                   ? " gives other bits in each run"
                   : " has numerical note " + std::to_string(note));
        return false;
      }
    return true;
  };
  auto take = [&](const DnnChoice &choice, DnnParts made) {
    if (choice.workspace > mostWorkspace) {
      why = nameOf(choice) + " needs " + std::to_string(choice.workspace) +
            " bytes of workspace, planned are " + std::to_string(mostWorkspace);
      return false;
    }
    chosen = choice;
    parts = std::move(made);
    return true;
  };
  visitPlans(target, {graph.all.begin(), graph.all.end()}, graph.operations,
             engine, why, {mayTake, take});
  if (parts.empty())
    throw DnnRefusal(why);
}

std::vector<DnnChoice>
DnnPlan::choices(const DnnTarget &target, const DnnGraph &graph,
                 const std::optional<DnnEngine> &engine) {
  std::vector<DnnChoice> out;
  std::string why = "cuDNN has no engine for it";
  visitPlans(target, {}, graph.operations, engine, why,
             {[](const DnnChoice &) { return true; },
              [&](const DnnChoice &choice, DnnParts) {
                out.push_back(choice);
                return false;
              }});
  if (out.empty())
    throw DnnRefusal(why);
  return out;
}
