// For each value of a function, finds the dimensions that enumerate the
// positions of the sequence, by propagation from the inputs through the
// operations' sharding rules.

#ifndef CLEAVE_DIALECT_NN_TRANSFORMS_POSITIONFLOW_H
#define CLEAVE_DIALECT_NN_TRANSFORMS_POSITIONFLOW_H

#include "cleave/Interfaces/ShardingRule.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace cleave::nn {

/// Attribute of an argument or result: the dimension that enumerates the
/// positions of the sequence, or -1 if there is none.
inline constexpr llvm::StringLiteral kPositionDimAttr = "nn.position_dim";

/// Unit attribute of the module of a pipeline stage. It means that the function
/// that was cut into stages has values with a dimension of sequence positions,
/// even if no value of this stage has one.
inline constexpr llvm::StringLiteral kPositionsAttr = "nn.positions";

/// Unit attribute of a gather along one dimension whose indices are a
/// permutation of all indices of that dimension. The dimension then has the
/// same meaning, such as positions, in the result as in the gathered table.
inline constexpr llvm::StringLiteral kReorderAttr = "nn.reorder";

/// Returns the dimension that a gather only permutes, or nullopt if the gather
/// does something else.
std::optional<int64_t> reorderedDim(mlir::Operation *op);

/// Returns a sharding rule that says which dimensions of the operation's
/// operands and results correspond. It is the operation's own rule or, for a
/// dist.constrain, a rule that connects each dimension of the operand with the
/// same dimension of the result.
ShardingRule connectionsOf(mlir::Operation *op);

/// Marks dimensions that enumerate sequence positions: a dimension is marked if
/// sharding rules connect it with the position dimension of an input and it is
/// as long as the sequence. In attention, the dimensions of query positions and
/// of key positions are both marked.
class PositionFlow {
public:
  /// The propagation starts at the dimensions that `nn.position_dim` gives for
  /// arguments, and at dimension 1 of the tokens [batch, sequence]. If there
  /// are no such arguments, it starts at the first input with at least three
  /// dimensions: its first dimension other than the batch is assumed to
  /// enumerate positions.
  explicit PositionFlow(mlir::func::FuncOp func);

  /// Returns whether any value of the function has a dimension of sequence
  /// positions.
  bool any() const { return length > 0; }
  /// Returns the length of the sequence, or 0 if there are no positions.
  int64_t size() const { return length; }
  bool isPosition(mlir::Value value, int64_t dim) const;
  /// Returns the first dimension of `value` that enumerates the positions of
  /// the sequence, or nullopt if there is none.
  std::optional<int64_t> dimOf(mlir::Value value) const;

private:
  bool mark(mlir::Value value, int64_t dim);
  void run(mlir::Block &body);

  int64_t length = 0;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<bool>> marks;
};

/// Returns the arguments of the function, each with its dimension of sequence
/// positions, from which the constructor of PositionFlow propagates.
llvm::SmallVector<std::pair<mlir::BlockArgument, int64_t>>
positionSeeds(mlir::func::FuncOp func);

} // namespace cleave::nn

#endif
