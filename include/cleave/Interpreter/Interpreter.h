// The reference interpreter: executes functions of nn and dist operations with
// plain loops in double, all ranks of a mesh in lockstep inside one process. It
// is slow and simple, and the oracle of every test.

#ifndef CLEAVE_INTERPRETER_INTERPRETER_H
#define CLEAVE_INTERPRETER_INTERPRETER_H

#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Interfaces/Tensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave {

/// One tensor per rank; a program without a mesh has one rank.
using RankTensors = std::vector<Tensor>;

/// Called with every value as it is computed, arguments included; with values
/// of loops once per iteration.
using Observer = llvm::function_ref<void(mlir::Value, const Tensor &)>;

/// Runs `func` on one device. Argument types must be the function's. Errors are
/// reported on the operation that cannot be executed.
mlir::FailureOr<std::vector<Tensor>> interpret(mlir::func::FuncOp func,
                                               llvm::ArrayRef<Tensor> arguments,
                                               Observer observe = nullptr);

/// Whether the interpreter can execute the operation, apart from the operations
/// in its regions.
bool hasReferenceSemantics(mlir::Operation *op);

/// Runs the per-rank program `func` on all ranks of `mesh` at once:
/// `arguments[i][rank]`, and the results alike.
mlir::FailureOr<std::vector<RankTensors>>
interpretRanks(mlir::func::FuncOp func, dist::MeshAttr mesh,
               llvm::ArrayRef<RankTensors> arguments);

/// The tiles of `whole` on every rank. Padding is NaN (integers: a value far
/// out of range), so that reading it shows in the result. With a partial
/// sharding the first rank of each group holds the value, the others the
/// identity.
RankTensors shardTensor(const Tensor &whole, dist::MeshAttr mesh,
                        dist::ShardingAttr sharding);

/// A tensor assembled from the tiles of all ranks.
struct Assembled {
  Tensor whole;
  /// The largest difference between two copies of one element; replicas of a
  /// correct program are equal to the bit.
  double replicaDifference = 0;
};
Assembled assembleTensor(const RankTensors &tiles,
                         mlir::RankedTensorType wholeType, dist::MeshAttr mesh,
                         dist::ShardingAttr sharding);

/// Fills padding of every kind with NaN, or an integer far out of range.
void poison(Tensor &tensor);

/// The contents of a constant.
Tensor tensorFromAttr(mlir::DenseElementsAttr attr);

} // namespace cleave

#endif
