// The reference interpreter: executes functions of nn and dist operations with
// plain loops in double precision, for all ranks of a mesh in lockstep inside
// one process. The interpreter is slow and simple; tests compare the compiler's
// results with it.

#ifndef CLEAVE_INTERPRETER_INTERPRETER_H
#define CLEAVE_INTERPRETER_INTERPRETER_H

#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Interfaces/Tensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave {

/// The tiles of one tensor on all ranks. A program without a mesh has one rank.
using RankTensors = std::vector<Tensor>;

/// A callback that receives each argument and each computed value. Values
/// inside loops are reported once per iteration.
using Observer = llvm::function_ref<void(mlir::Value, const Tensor &)>;

/// Runs `func` on one device. The arguments must have the function's types.
/// Errors are reported on the operation that cannot be executed.
mlir::FailureOr<std::vector<Tensor>> interpret(mlir::func::FuncOp func,
                                               llvm::ArrayRef<Tensor> arguments,
                                               Observer observe = nullptr);

/// Returns whether the interpreter can execute the operation itself. Operations
/// in its regions are not checked.
bool hasReferenceSemantics(mlir::Operation *op);

/// Runs the per-rank program `func` on all ranks of `mesh` at once.
/// `arguments[i][rank]` is the tile of argument i on a rank. The results have
/// the same form.
mlir::FailureOr<std::vector<RankTensors>>
interpretRanks(mlir::func::FuncOp func, dist::MeshAttr mesh,
               llvm::ArrayRef<RankTensors> arguments);

/// Returns the tiles of `whole` on every rank. Padding is NaN (for integers, a
/// value far out of range), so that an operation that reads padding changes the
/// result. With a partial sharding, the first rank of each group holds the
/// value, and the other ranks hold the identity of the reduction, such as 0 for
/// a sum.
RankTensors shardTensor(const Tensor &whole, dist::MeshAttr mesh,
                        dist::ShardingAttr sharding);

/// A tensor that is assembled from the tiles of all ranks.
struct Assembled {
  Tensor whole;
  /// The largest difference between two copies of one element. In a correct
  /// program, replicas are bitwise equal.
  double replicaDifference = 0;
};
Assembled assembleTensor(const RankTensors &tiles,
                         mlir::RankedTensorType wholeType, dist::MeshAttr mesh,
                         dist::ShardingAttr sharding);

/// Fills a tensor with NaN, or with integers far out of range, as the content
/// of padding.
void poison(Tensor &tensor);

/// Returns the contents of a constant as a tensor.
Tensor tensorFromAttr(mlir::DenseElementsAttr attr);

} // namespace cleave

#endif
