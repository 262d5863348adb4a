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

/// One step of a reshard. `dim` and `concat` as in the operations. Embed turns
/// tiles along `axes`, which end the split of `dim`, into addends: each lies at
/// its place among zeros.
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
  /// Of an exchange.
  int64_t rounds = 1;
};

struct ReshardOptions {
  /// Allows local tiles larger than the larger of source and target.
  bool largerTiles = false;
  /// Takes the plan without a search wherever its layouts are allowed: one
  /// reduce-scatter, all-reduce or gather for each group, whatever it sends.
  bool plain = false;
};

struct ReshardProblem;

/// Finds the moves that lead from one layout to another: a search over layouts,
/// the next one by the modelled time so far plus a lower bound of the rest.
///
/// Moves are all-gather, slice, all-to-all, permute, reduce-scatter,
/// all-reduce, keep-first, embed and exchange. What the time of two plans does
/// not tell apart, the total of what ranks receive does, then the number of
/// moves. No layout in between has a larger tile than the larger of source and
/// target, nor is the value whole on all ranks unless one of them is.
///
/// Plans are kept: the same question is answered without a search.
class ReshardPlanner {
public:
  ReshardPlanner(const dist::MeshAxes &mesh, cost::LinkModel model,
                 ReshardOptions options = {});

  /// Valid as long as the planner.
  llvm::ArrayRef<Move> plan(llvm::ArrayRef<int64_t> shape, int64_t elementBytes,
                            const dist::Layout &from, const dist::Layout &to);

  /// The modelled time of moves.
  double seconds(llvm::ArrayRef<int64_t> shape, int64_t elementBytes,
                 const dist::Layout &from, llvm::ArrayRef<Move> moves) const;

private:
  llvm::ArrayRef<dist::Layout> fewLayouts(const ReshardProblem &problem);

  const dist::MeshAxes &mesh;
  cost::LinkModel model;
  ReshardOptions options;
  llvm::StringMap<llvm::SmallVector<Move>> known;
  /// By rank of the tensor.
  std::map<size_t, std::vector<dist::Layout>> layouts;
};

/// Bytes of an element of the tensor; a bit takes one.
inline int64_t elementBytes(mlir::RankedTensorType type) {
  return std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
}

/// Bytes that the busiest rank sends for the moves.
int64_t sentBytes(const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape,
                  int64_t elementBytes, const dist::Layout &from,
                  llvm::ArrayRef<Move> moves);

/// Emits the moves on the local value of a tensor of `type`.
mlir::Value emitReshard(mlir::OpBuilder &builder, mlir::Location loc,
                        const dist::MeshAxes &mesh, mlir::RankedTensorType type,
                        mlir::Value local, const dist::Layout &from,
                        llvm::ArrayRef<Move> moves, dist::Purpose purpose);

} // namespace cleave::partition

#endif
