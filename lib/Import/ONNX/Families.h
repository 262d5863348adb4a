// One function per family of operators; each adds its rows to the table.

#ifndef CLEAVE_LIB_IMPORT_ONNX_FAMILIES_H
#define CLEAVE_LIB_IMPORT_ONNX_FAMILIES_H

#include "Node.h"

#include "cleave/Import/ONNX/OpTable.h"

namespace cleave::importer {

/// The oldest and newest opset of the table.
inline constexpr int64_t kOldest = 11, kNewest = 25;

/// The most elements of a tensor.
inline constexpr int64_t kMaxSize = int64_t(1) << 48;

void addConstantOps(std::vector<OnnxOp> &table);
void addElementwiseOps(std::vector<OnnxOp> &table);
void addPowerOps(std::vector<OnnxOp> &table);
void addShapeOps(std::vector<OnnxOp> &table);
void addGatherOps(std::vector<OnnxOp> &table);
void addIndexingOps(std::vector<OnnxOp> &table);
void addSequenceOps(std::vector<OnnxOp> &table);
void addSelectionOps(std::vector<OnnxOp> &table);
void addReductionOps(std::vector<OnnxOp> &table);
void addContractionOps(std::vector<OnnxOp> &table);
void addConvolutionOps(std::vector<OnnxOp> &table);
void addNormalizationOps(std::vector<OnnxOp> &table);
void addAttentionOps(std::vector<OnnxOp> &table);
void addExpertOps(std::vector<OnnxOp> &table);

// Shared by families.

/// Sets the node's first result, or returns the error.
llvm::Error one(Node &node, llvm::Expected<Operand> result);
/// Refuses a node with an operand that depends on data, or whose first `needed`
/// operands are not all there.
llvm::Error allKnown(Node &node, size_t needed);
/// Refuses operands of different types, or of shapes that differ elsewhere than
/// along the axis; -1: anywhere. `what` begins the reason.
llvm::Error joinable(llvm::ArrayRef<Operand> operands, int64_t axis,
                     llvm::StringRef what);
/// Known indices into a dimension, with negative ones counted from its end.
/// Returns a reason if one is outside. `table` is the type of the indexed
/// tensor.
llvm::Expected<HostTensor> normalised(const HostTensor &indices, int64_t size,
                                      Element table);
void copyElement(HostTensor &to, int64_t toAt, const HostTensor &from,
                 int64_t fromAt);
/// Like `map`, for common functions of one or two operands.
llvm::Expected<Operand> add(Node &node, const Operand &a, const Operand &b);
llvm::Expected<Operand> subtract(Node &node, const Operand &a,
                                 const Operand &b);
llvm::Expected<Operand> multiply(Node &node, const Operand &a,
                                 const Operand &b);
llvm::Expected<Operand> divide(Node &node, const Operand &a, const Operand &b);
llvm::Expected<Operand> tanh(Node &node, const Operand &x);
llvm::Expected<Operand> sqrt(Node &node, const Operand &x);
llvm::Expected<Operand> exp(Node &node, const Operand &x);
llvm::Expected<Operand> log(Node &node, const Operand &x);
llvm::Expected<Operand> abs(Node &node, const Operand &x);
llvm::Expected<Operand> equal(Node &node, const Operand &a, const Operand &b);
/// Sum, maximum or minimum along dimensions, which become 1 with `keep`.
llvm::Expected<Operand> reduce(Node &node, nn::Combiner combiner,
                               const Operand &operand,
                               llvm::ArrayRef<int64_t> dims, bool keep);
/// ONNX MatMul, with numpy's rules for ranks and batch dimensions.
llvm::Expected<Operand> matmul(Node &node, const Operand &lhs,
                               const Operand &rhs);
llvm::Expected<Operand> softmax(Node &node, const Operand &operand,
                                int64_t axis);

/// Whether the indices are those of a TopK along this dimension: distinct, and
/// none below zero.
bool areOfTopK(const Operand &indices, int64_t axis);
/// data[..., indices[...], ...] along the axis, for indices of a TopK.
llvm::Expected<Operand> gatherChosen(Node &node, const Operand &data,
                                     const Operand &indices, int64_t axis);

} // namespace cleave::importer

/// Returns the error of an llvm::Expected, else names its value.
#define CLEAVE_TRY(NAME, EXPRESSION)                                           \
  auto NAME##OrError = (EXPRESSION);                                           \
  if (!NAME##OrError)                                                          \
    return NAME##OrError.takeError();                                          \
  auto &NAME = *NAME##OrError

#endif
