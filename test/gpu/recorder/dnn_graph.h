// Runs cuDNN graphs on the host, one operation at a time.
#ifndef CLEAVE_TEST_GPU_RECORDER_DNN_GRAPH_H
#define CLEAVE_TEST_GPU_RECORDER_DNN_GRAPH_H

#include "report.h"

#include <cudnn.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace recorder {

struct DnnTensor {
  int64_t id = 0, alignment = 1;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> dims, strides;
  bool isVirtual = false, isValue = false;

  int64_t count() const;
  int64_t span() const; // elements from the first to past the last one
  int64_t bytes() const;
};

// An operation of a graph. It refers to tensors by id; `from` has the tensors
// that it reads, in the order of the descriptor's attributes.
struct DnnOperation {
  enum class Kind {
    Matmul,
    Pointwise,
    Reduction,
    Reshape,
    Forward, // convolutions: x, w; y, w; y, x
    InputGrad,
    FilterGrad
  } kind;
  std::vector<int64_t> from;
  int64_t to = 0;
  cudnnPointwiseMode_t mode{}; // of the elements x, b, t
  int64_t axis = -1;
  cudnnReduceTensorOp_t reduction{};
  std::vector<int64_t> strides, dilations, low, high;

  bool isConvolution() const { return kind >= Kind::Forward; }
};

// An engine that the heuristics offer; the best engine comes first. For
// convolutions there are three: an engine that the runtime must reject and that
// computes NaN, an engine on tensor cores, which round f32 to TF32, and an
// engine that does neither. Other graphs have only the last one.
struct DnnEngine {
  int64_t number = 0;
  std::vector<cudnnBackendNumericalNote_t> notes;
};

// A graph whose tensor sizes are consistent, and the strides of its arrays in
// memory.
class DnnProgram {
public:
  // Adds a tensor or an operation. Returns an error message, or an empty string
  // if the graph is still valid.
  std::string add(const DnnTensor &tensor);
  std::string add(const DnnOperation &operation);

  std::vector<DnnEngine> engines() const;

  // Returns the workspace that cuDNN 9.19 uses on sm_90. If the last operation
  // is a product whose left operand is computed by the graph, the workspace
  // holds that operand in bf16, in tiles of 64 x 128. It also holds values that
  // are reduced over heads. Convolutions on tensor cores need copies of all
  // arrays, with the channels padded to multiples of 8.
  int64_t workspace(int64_t engine) const;

  // The ids of the tensors for which a run needs addresses.
  std::vector<int64_t> ids() const;
  std::vector<Access> accesses(const std::map<int64_t, char *> &at) const;
  // Returns a function that runs the graph on these addresses. Scalars are read
  // now, not when the function runs.
  std::function<void()> bind(const std::map<int64_t, char *> &at,
                             int64_t engine) const;

private:
  std::string findFault(const DnnOperation &operation) const;
  std::string findConvolutionFault(const DnnOperation &operation) const;
  const DnnOperation *convolution() const; // NULL: the graph is none
  bool makes(int64_t id) const;            // an operation does
  std::map<int64_t, DnnTensor> tensors;
  std::vector<DnnOperation> operations;
};

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_DNN_GRAPH_H
