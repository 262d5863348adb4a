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

  /// `kept` has the axes over which source and target are partial and over
  /// which the value stays partial all the time. If `summing` is true, partial
  /// sums over all other axes are reduced on the way, even those over which the
  /// target is partial.
  ReshardSteps(const ReshardProblem &problem, dist::AxisSet kept, bool summing);

  /// Returns the axes over which the layout is partial while the target is not,
  /// or is by another kind of reduction.
  dist::AxisSet unreduced(const dist::Layout &at) const;
  /// Whether the move is valid. Partial maxima or minima can become partial
  /// sums only after they are reduced, in a two-round exchange.
  static bool isLegal(const dist::Layout &at, const Move &move);
  /// Whether an exchange can turn the value into the partial sums of the
  /// target.
  bool makesPartialSums() const;

  /// Returns the move that is an exchange to the layout `target`. With two
  /// rounds, all ranks that may hold the same elements take part.
  Move exchange(const dist::Layout &at, const dist::Layout &target,
                int64_t rounds = 1) const;
  /// Appends the moves, all without communication, that lead from one of the
  /// `goals` to the target.
  void finish(const dist::Layout &goal, llvm::SmallVector<Move> &moves) const;
  /// Calls `step` with each move from a layout that is worth trying, in a fixed
  /// order.
  void expand(const dist::Layout &at, Step step) const;

  /// The partial axes that the value keeps throughout (`kept`), and those that
  /// only the target has (`added`).
  const dist::AxisSet kept, added;
  /// Layouts from which moves without communication lead to the target. These
  /// moves create the target's partial sums: either all ranks but the first set
  /// their copies to zero, or each rank places its tile among zeros.
  llvm::SmallVector<dist::Layout> goals;

private:
  void makeGoals();
  bool isUneven(const dist::Layout &layout) const;
  /// Whether tiles of a dimension that is split by `major` can be split further
  /// by `minor` without moving elements.
  bool nests(int64_t dim, llvm::ArrayRef<dist::Axis> major,
             llvm::ArrayRef<dist::Axis> minor) const;
  /// Returns the axes of a set as a list. Those in `like` come first, in the
  /// order of `like`.
  static dist::Axes inOrder(dist::AxisSet set, llvm::ArrayRef<dist::Axis> like);
  /// Returns the lists of axes from the set `set` that may be appended to the
  /// axes `have` of a dimension.
  llvm::SmallVector<dist::Axes> lists(dist::AxisSet set,
                                      llvm::ArrayRef<dist::Axis> have,
                                      const dist::Axes &want,
                                      llvm::ArrayRef<dist::Axis> like) const;

  /// Tries the moves that reduce over axes over which the target is not
  /// partial.
  void reduce(const dist::Layout &at, dist::AxisSet away, Step step) const;
  /// Tries the moves that gather the minor axes of a dimension, or move them to
  /// another dimension.
  void gather(const dist::Layout &at, Step step) const;
  /// Tries the moves by which tiles of a dimension become partial sums of the
  /// whole dimension. The dimension is then split no more, since
  /// dist-verify-variance could not prove further splits.
  void embed(const dist::Layout &at, Step step) const;
  /// Tries exchanges into layouts from which a single gather leads to a goal.
  void exchanges(const dist::Layout &at, Step step) const;
  /// Tries exchanges to the tiles of the target in which an axis that split the
  /// value before becomes an axis over which it is partial. Most elements then
  /// stay on their rank; the partial sums are reduced later.
  void spread(const dist::Layout &at, Step step) const;
  /// Tries an exchange in one round, and one in two rounds, of which the first
  /// reduces and the second copies.
  void exchangeAll(const dist::Layout &at, const dist::Layout &target,
                   Step step) const;

  const dist::MeshAxes &mesh;
  llvm::ArrayRef<int64_t> shape;
  const dist::Layout &from, &to;
  bool summing;
};

} // namespace cleave::partition

#endif
