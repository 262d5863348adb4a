// Which dimensions count the positions of the sequence: followed from the
// inputs through the factors of the operations.

#ifndef CLEAVE_DIALECT_NN_TRANSFORMS_POSITIONFLOW_H
#define CLEAVE_DIALECT_NN_TRANSFORMS_POSITIONFLOW_H

#include "cleave/Interfaces/ShardingRule.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace cleave::nn {

/// Of an argument or result: the dimension that counts positions; -1: there is
/// none.
inline constexpr llvm::StringLiteral kPositionDimAttr = "nn.position_dim";

/// Of a stage's module, a unit: the function that was cut has positions, though
/// this stage may have none.
inline constexpr llvm::StringLiteral kPositionsAttr = "nn.positions";

/// On a gather along one dimension: its indices are all of that dimension in
/// another order, so that its result counts what its table counts.
inline constexpr llvm::StringLiteral kReorderAttr = "nn.reorder";

/// The dimension that a gather only puts into another order; none where it does
/// something else.
std::optional<int64_t> reorderedDim(mlir::Operation *op);

/// Which dimensions of an operation are the same thing: what its sharding rule
/// says, and in a constraint those of operand and result.
ShardingRule connectionsOf(mlir::Operation *op);

/// Marks the dimensions that are as long as the sequence and are connected with
/// it by factors, whatever their kind: queries and keys of attention alike.
class PositionFlow {
public:
  /// Begins at the arguments that say it of themselves and at the tokens
  /// [batch, sequence]; where there are none, at the first input of three or
  /// more dimensions, at the one beside the batch.
  explicit PositionFlow(mlir::func::FuncOp func);

  /// Whether the function has positions at all.
  bool any() const { return length > 0; }
  /// How many positions there are.
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

/// Where a `PositionFlow` of the function begins.
llvm::SmallVector<std::pair<mlir::BlockArgument, int64_t>>
positionSeeds(mlir::func::FuncOp func);

} // namespace cleave::nn

#endif
