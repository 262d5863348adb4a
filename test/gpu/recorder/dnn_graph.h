// Graphs of cuDNN's, operation by operation, on the host.
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

// Ids of tensors: those that it reads, in the order in which it names them.
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

// What heuristics offer, best first. Of a convolution: one that must not be
// taken, and gives NaN; one on tensor cores, which round f32 to TF32; and one
// that does neither. Else the last one only.
struct DnnEngine {
  int64_t number = 0;
  std::vector<cudnnBackendNumericalNote_t> notes;
};

// A graph whose sizes fit together, and where arrays in memory are placed.
class DnnProgram {
public:
  // What is wrong with the graph, or nothing.
  std::string add(const DnnTensor &tensor);
  std::string add(const DnnOperation &operation);

  std::vector<DnnEngine> engines() const;

  // What engines for sm_90 take, by cuDNN 9.19: of a product whose left
  // operand the graph makes and which is the last one, all of that in bf16 and
  // in tiles of 64 x 128; and what is reduced over heads. On tensor cores
  // convolutions take all arrays again, with their channels in units of 8.
  int64_t workspace(int64_t engine) const;

  // Ids that a run must be told.
  std::vector<int64_t> ids() const;
  std::vector<Access> accesses(const std::map<int64_t, char *> &at) const;
  // What a run on these addresses does; numbers are read now.
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
