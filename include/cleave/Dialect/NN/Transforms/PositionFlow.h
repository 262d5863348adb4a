// Finds the dimensions that count the positions of the sequence, by propagation
// from the inputs through the factors of the operations.

#ifndef CLEAVE_DIALECT_NN_TRANSFORMS_POSITIONFLOW_H
#define CLEAVE_DIALECT_NN_TRANSFORMS_POSITIONFLOW_H

#include "cleave/Interfaces/ShardingRule.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace cleave::nn {

/// On an argument or result: the dimension that counts positions, or -1 if
/// there is none.
inline constexpr llvm::StringLiteral kPositionDimAttr = "nn.position_dim";

/// On a stage's module, a unit: the function that was cut into stages has
/// positions, even if this stage has none.
inline constexpr llvm::StringLiteral kPositionsAttr = "nn.positions";

/// On a gather along one dimension: the indices are a permutation of all
/// indices of that dimension, so that the result's dimension counts the same as
/// the table's.
inline constexpr llvm::StringLiteral kReorderAttr = "nn.reorder";

/// Returns the dimension that a gather only permutes, or nullopt if the gather
/// does something else.
std::optional<int64_t> reorderedDim(mlir::Operation *op);

/// Returns which dimensions of an operation's operands and results are
/// connected: by its sharding rule, or, for a constraint, each dimension of the
/// operand with that of the result.
ShardingRule connectionsOf(mlir::Operation *op);

/// Marks the dimensions that are as long as the sequence and are connected with
/// it by factors of any kind. The positions of queries and of keys of attention
/// are both marked.
class PositionFlow {
public:
  /// The propagation starts at the arguments that have a position dimension as
  /// an attribute, and at dimension 1 of the tokens [batch, sequence]. If there
  /// are no such arguments, it starts at the first input of three or more
  /// dimensions, at the dimension next to the batch.
  explicit PositionFlow(mlir::func::FuncOp func);

  /// Whether the function has positions at all.
  bool any() const { return length > 0; }
  /// The number of positions.
  int64_t size() const { return length; }
  bool isPosition(mlir::Value value, int64_t dim) const;
  /// The first dimension of the value that counts positions.
  std::optional<int64_t> dimOf(mlir::Value value) const;

private:
  bool mark(mlir::Value value, int64_t dim);
  void run(mlir::Block &body);

  int64_t length = 0;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<bool>> marks;
};

/// The arguments and dimensions at which a `PositionFlow` of the function
/// starts.
llvm::SmallVector<std::pair<mlir::BlockArgument, int64_t>>
positionSeeds(mlir::func::FuncOp func);

} // namespace cleave::nn

#endif
