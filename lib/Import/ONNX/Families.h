// One function per family of ONNX operators. Each function adds its operators
// to the table of supported operators (OpTable.h).

#ifndef CLEAVE_LIB_IMPORT_ONNX_FAMILIES_H
#define CLEAVE_LIB_IMPORT_ONNX_FAMILIES_H

#include "Node.h"

#include "cleave/Import/ONNX/OpTable.h"

namespace cleave::importer {

/// The oldest and the newest opset version for which the table of operators
/// (OpTable.h) has entries.
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
void addControlOps(std::vector<OnnxOp> &table);
void addRecurrentOps(std::vector<OnnxOp> &table);
void addAttentionOps(std::vector<OnnxOp> &table);
void addExpertOps(std::vector<OnnxOp> &table);

// Shared by families.

/// Sets the node's only result to `result`, or returns the error that `result`
/// holds.
llvm::Error one(Node &node, llvm::Expected<Operand> result);
/// Refuses a node if the elements of an operand are not known during import, or
/// if one of the first `needed` operands is absent.
llvm::Error allKnown(Node &node, size_t needed);
/// Refuses operands that cannot be concatenated along `axis`: they have
/// different types, or different sizes in another dimension (with `axis` -1: in
/// any dimension). The reason begins with `what`.
llvm::Error joinable(llvm::ArrayRef<Operand> operands, int64_t axis,
                     llvm::StringRef what);
/// Returns known indices into a dimension, with negative ones converted.
/// Returns a reason if an index is out of range. `table` is the element type of
/// the indexed tensor.
llvm::Expected<HostTensor> normalised(const HostTensor &indices, int64_t size,
                                      Element table);
void copyElement(HostTensor &to, int64_t toAt, const HostTensor &from,
                 int64_t fromAt);
/// Each of these functions evaluates or emits one elementwise operation, by
/// Build::map. Several families of operators use them.
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
/// Reduces by sum, maximum or minimum along `dims`. With `keep`, these
/// dimensions stay with size 1.
llvm::Expected<Operand> reduce(Node &node, nn::Combiner combiner,
                               const Operand &operand,
                               llvm::ArrayRef<int64_t> dims, bool keep);
/// ONNX MatMul, with NumPy's rules for ranks and batch dimensions.
llvm::Expected<Operand> matmul(Node &node, const Operand &lhs,
                               const Operand &rhs);
llvm::Expected<Operand> softmax(Node &node, const Operand &operand,
                                int64_t axis);

/// Returns whether the indices are those that a TopK along this dimension
/// returns. Such indices are distinct and not negative.
bool areOfTopK(const Operand &indices, int64_t axis);
/// Gathers data[..., indices[...], ...] along the axis, for indices for which
/// areOfTopK is true.
llvm::Expected<Operand> gatherChosen(Node &node, const Operand &data,
                                     const Operand &indices, int64_t axis);

} // namespace cleave::importer

/// Evaluates an expression of type llvm::Expected. Returns its error from the
/// calling function, or declares a variable with its value.
#define CLEAVE_TRY(NAME, EXPRESSION)                                           \
  auto NAME##OrError = (EXPRESSION);                                           \
  if (!NAME##OrError)                                                          \
    return NAME##OrError.takeError();                                          \
  auto &NAME = *NAME##OrError

#endif
