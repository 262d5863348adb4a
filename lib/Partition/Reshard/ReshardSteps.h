//===- ReshardSteps.h - how a plan may go on --------------------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_RESHARD_RESHARDSTEPS_H
#define CLEAVE_LIB_PARTITION_RESHARD_RESHARDSTEPS_H

#include "ReshardExhaustive.h"

namespace cleave::partition {

/// The moves of a search from layout to layout, and the layouts where it may
/// end.
class ReshardSteps {
public:
  /// Receives a move by which a plan may continue.
  using Step = llvm::function_ref<void(Move)>;

  /// The axes over which source and target are partial and stay so. `summing`
  /// is true if partial sums that the target also has are reduced on the way.
  ReshardSteps(const ReshardProblem &problem, dist::AxisSet kept, bool summing);

  /// The axes over which the layout is partial but the target is not, or is
  /// partial with another reduction.
  dist::AxisSet unreduced(const dist::Layout &at) const;
  /// Whether the move is valid. Partial maxima or minima can become partial
  /// sums only after they are reduced, in a two-round exchange.
  static bool isLegal(const dist::Layout &at, const Move &move);
  /// Whether an exchange can produce the partial sums of the target.
  bool makesPartialSums() const;

  /// An exchange to another layout. In a two-round exchange, all ranks that may
  /// hold the same elements take part.
  Move exchange(const dist::Layout &at, const dist::Layout &target,
                int64_t rounds = 1) const;
  /// Appends the free moves that lead from a goal layout to the target.
  void finish(const dist::Layout &goal, llvm::SmallVector<Move> &moves) const;
  /// All moves from a layout that are worth trying, in a fixed order.
  void expand(const dist::Layout &at, Step step) const;

  /// Partial axes that stay, and partial axes that only the target has.
  const dist::AxisSet kept, added;
  /// Layouts from which the target is reached for free, by making partial sums:
  /// all ranks but the first drop their copies, or tiles become partial sums.
  llvm::SmallVector<dist::Layout> goals;

private:
  void makeGoals();
  bool isUneven(const dist::Layout &layout) const;
  /// Whether tiles of a dimension that `major` splits can be split by `minor`.
  bool nests(int64_t dim, llvm::ArrayRef<dist::Axis> major,
             llvm::ArrayRef<dist::Axis> minor) const;
  /// The axes of the set; those in `like` come first, in the order of `like`.
  static dist::Axes inOrder(dist::AxisSet set, llvm::ArrayRef<dist::Axis> like);
  /// Lists of axes from the set by which a dimension may be split further.
  llvm::SmallVector<dist::Axes> lists(dist::AxisSet set,
                                      llvm::ArrayRef<dist::Axis> have,
                                      const dist::Axes &want,
                                      llvm::ArrayRef<dist::Axis> like) const;

  /// Reduces axes that the target is not partial over.
  void reduce(const dist::Layout &at, dist::AxisSet away, Step step) const;
  /// Gathers trailing axes of a dimension, or moves them to another dimension.
  void gather(const dist::Layout &at, Step step) const;
  /// Tiles of a dimension become partial sums of the whole dimension. (If the
  /// dimension remained split, dist-verify-variance could not prove it.)
  void embed(const dist::Layout &at, Step step) const;
  /// Exchanges into layouts from which a single gather reaches a goal.
  void exchanges(const dist::Layout &at, Step step) const;
  /// Exchanges in which axes that leave the dimensions become partial axes of
  /// the target's tiles, which are reduced later. Most elements stay in place.
  void spread(const dist::Layout &at, Step step) const;
  /// An exchange in one round, and one in two rounds, which reduces first and
  /// then copies.
  void exchangeAll(const dist::Layout &at, const dist::Layout &target,
                   Step step) const;

  const dist::MeshAxes &mesh;
  llvm::ArrayRef<int64_t> shape;
  const dist::Layout &from, &to;
  bool summing;
};

} // namespace cleave::partition

#endif
