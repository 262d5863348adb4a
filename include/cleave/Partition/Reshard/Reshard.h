//===- Reshard.h - moves a value from one layout to another -----*- C++ -*-===//

#ifndef CLEAVE_PARTITION_RESHARD_RESHARD_H
#define CLEAVE_PARTITION_RESHARD_RESHARD_H

#include "cleave/Cost/LinkModel.h"
#include "cleave/Dialect/Dist/IR/Layout.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringMap.h"

#include <map>
#include <vector>

namespace cleave::partition {

/// One step of a reshard. `dim` and `concat` have the same meaning as in the
/// dist operation that performs the step. An Embed turns a value that is
/// sharded along `dim` into a partial sum over `axes`, the most minor of the
/// axes that shard `dim`: each rank places its tile at the tile's offset in a
/// tensor of zeros.
struct Move {
  enum Kind {
    AllReduce,
    ReduceScatter,
    KeepFirst,
    AllToAll,
    AllGather,
    Slice,
    Permute,
    Exchange,
    Embed
  };
  Kind kind;
  int64_t dim = 0, concat = 0;
  dist::Axes axes;
  dist::ReduceKind reduce = dist::ReduceKind::Sum;
  /// The layout after the move.
  dist::Layout after;
  /// For an Exchange, the number of rounds of messages. If it is 2, the first
  /// round adds up partial sums, and the second round copies the sums to all
  /// ranks that need them.
  int64_t rounds = 1;
};

struct ReshardOptions {
  /// Allows intermediate layouts whose tiles are larger than those of both the
  /// source and the target layout.
  bool largerTiles = false;
  /// If true, uses the fixed plan of PlainReshard.cpp without a search whenever
  /// that plan's intermediate layouts are allowed. The fixed plan consists of a
  /// reduce-scatter, an all-reduce or a gather for each group of ranks,
  /// whatever the number of bytes sent.
  bool plain = false;
};

struct ReshardProblem;

/// Finds the moves that lead from one layout to another, by an A* search over
/// layouts. A layout's priority is the modelled time of the moves to it plus a
/// lower bound on the time of the remaining moves.
///
/// Moves are all-gather, slice, all-to-all, permute, reduce-scatter,
/// all-reduce, exchange (dist.exchange), keep-first and embed. The last two
/// need no communication: a keep-first turns a replicated value into a partial
/// sum, in which all copies but the first are zero; an embed turns tiles into a
/// partial sum (see Move). Of plans with equal time, the one with the fewest
/// bytes received in total is taken, then the one with the fewest moves. Unless
/// ReshardOptions::largerTiles is set, no intermediate layout has a larger tile
/// than both the source and the target layout, and none replicates the value on
/// all ranks if neither the source nor the target layout does.
///
/// The planner caches its plans.
class ReshardPlanner {
public:
  ReshardPlanner(const dist::MeshAxes &mesh, cost::LinkModel model,
                 ReshardOptions options = {});

  /// Returns the moves that convert a tensor from layout `from` to layout `to`.
  /// The array is valid during the lifetime of the planner.
  llvm::ArrayRef<Move> plan(llvm::ArrayRef<int64_t> shape, int64_t elementBytes,
                            const dist::Layout &from, const dist::Layout &to);

  /// Returns the modelled time of the moves, in seconds.
  double seconds(llvm::ArrayRef<int64_t> shape, int64_t elementBytes,
                 const dist::Layout &from, llvm::ArrayRef<Move> moves) const;

private:
  llvm::ArrayRef<dist::Layout> fewLayouts(const ReshardProblem &problem);

  const dist::MeshAxes &mesh;
  cost::LinkModel model;
  ReshardOptions options;
  llvm::StringMap<llvm::SmallVector<Move>> known;
  /// The results of fewLayouts, by the rank (number of dimensions) of a tensor.
  std::map<size_t, std::vector<dist::Layout>> layouts;
};

/// Returns the number of bytes of an element of the tensor; an i1 takes one
/// byte.
inline int64_t elementBytes(mlir::RankedTensorType type) {
  return std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
}

/// Returns the number of bytes that the rank that sends the most sends in all
/// of the moves together.
int64_t sentBytes(const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape,
                  int64_t elementBytes, const dist::Layout &from,
                  llvm::ArrayRef<Move> moves);

/// Emits the operations that perform the moves on `local`, the rank's tile of a
/// tensor whose unsharded type is `type`. Returns the tile in the last layout.
mlir::Value emitReshard(mlir::OpBuilder &builder, mlir::Location loc,
                        const dist::MeshAxes &mesh, mlir::RankedTensorType type,
                        mlir::Value local, const dist::Layout &from,
                        llvm::ArrayRef<Move> moves, dist::Purpose purpose);

} // namespace cleave::partition

#endif
