//===- ReshardSteps.h - how a plan may go on --------------------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_RESHARD_RESHARDSTEPS_H
#define CLEAVE_LIB_PARTITION_RESHARD_RESHARDSTEPS_H

#include "ReshardExhaustive.h"

namespace cleave::partition {

/// The moves of a search from layout to layout, and the layouts where it may
/// end.
class ReshardSteps {
public:
  /// Takes a move on which a plan may go on.
  using Step = llvm::function_ref<void(Move)>;

  /// Source and target are partial over `kept` and stay so. `summing`: partial
  /// sums that the target wants, too, are summed on the way.
  ReshardSteps(const ReshardProblem &problem, dist::AxisSet kept, bool summing);

  /// The axes over which the layout has partial sums that the target has not,
  /// or has of another kind.
  dist::AxisSet unreduced(const dist::Layout &at) const;
  /// What makes partial sums of a sum of candidates of a maximum needs all of
  /// these in one place.
  static bool isLegal(const dist::Layout &at, const Move &move);
  /// Whether an exchange can give the target its partial sums.
  bool makesPartialSums() const;

  /// To another layout at once. In two rounds all ranks take part that may hold
  /// the same.
  Move exchange(const dist::Layout &at, const dist::Layout &target,
                int64_t rounds = 1) const;
  /// The free moves from a goal to the target.
  void finish(const dist::Layout &goal, llvm::SmallVector<Move> &moves) const;
  /// Every move from a layout that is worth a try, in a fixed order.
  void expand(const dist::Layout &at, Step step) const;

  /// Partial axes that stay, and those that the target has besides.
  const dist::AxisSet kept, added;
  /// Layouts that are the target but for partial sums that cost nothing to
  /// make: all but the first rank drop theirs, or tiles become partial sums.
  llvm::SmallVector<dist::Layout> goals;

private:
  void makeGoals();
  bool isUneven(const dist::Layout &layout) const;
  /// Whether tiles of a dimension that `major` splits can be split by `minor`.
  bool nests(int64_t dim, llvm::ArrayRef<dist::Axis> major,
             llvm::ArrayRef<dist::Axis> minor) const;
  /// The axes of the set, those that `like` lists first and in its order.
  static dist::Axes inOrder(dist::AxisSet set, llvm::ArrayRef<dist::Axis> like);
  /// Lists of the axes of a set by which a dimension may be split further.
  llvm::SmallVector<dist::Axes> lists(dist::AxisSet set,
                                      llvm::ArrayRef<dist::Axis> have,
                                      const dist::Axes &want,
                                      llvm::ArrayRef<dist::Axis> like) const;

  /// Sums of partial sums that the target does not have.
  void reduce(const dist::Layout &at, dist::AxisSet away, Step step) const;
  /// Trailing axes of a dimension leave it, for another dimension or for none.
  void gather(const dist::Layout &at, Step step) const;
  /// Tiles of a dimension become partial sums of all of it. (Of a dimension
  /// that stays split nothing could prove it.)
  void embed(const dist::Layout &at, Step step) const;
  /// To where nothing remains but a gather, or nothing at all.
  void exchanges(const dist::Layout &at, Step step) const;
  /// What leaves the dimensions becomes partial sums of the target's tiles, to
  /// be added up with those that there are: most elements stay where they are.
  void spread(const dist::Layout &at, Step step) const;
  /// At once, or added first where what is to be copied is best.
  void exchangeAll(const dist::Layout &at, const dist::Layout &target,
                   Step step) const;

  const dist::MeshAxes &mesh;
  llvm::ArrayRef<int64_t> shape;
  const dist::Layout &from, &to;
  bool summing;
};

} // namespace cleave::partition

#endif
