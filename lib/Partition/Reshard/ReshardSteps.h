//===- ReshardSteps.h - the possible moves of a plan ------------*- C++ -*-===//

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
  /// which the value stays partial all the time. If `summing` is true, the
  /// moves reduce the value over all other axes over which it is partial, even
  /// if the target is partial over them too.
  ReshardSteps(const ReshardProblem &problem, dist::AxisSet kept, bool summing);

  /// Returns the axes over which a value in the layout `at` must still be
  /// reduced: the layout is partial over them, but the target is not, or it is
  /// partial by another kind of reduction (a maximum instead of a sum, for
  /// example). If `summing` is true, also the axes over which both the layout
  /// and the source are partial.
  dist::AxisSet unreduced(const dist::Layout &at) const;
  /// Returns whether the move is valid from the layout `at`. An exchange cannot
  /// turn partial maxima or minima into partial sums, unless it has two rounds,
  /// of which the first reduces them.
  static bool isLegal(const dist::Layout &at, const Move &move);
  /// Returns whether an exchange can turn the value into the partial sums of
  /// the target.
  bool makesPartialSums() const;

  /// Returns an exchange from the layout `at` to the layout `target`. With two
  /// rounds, the first reduces each element on one rank, and the second copies
  /// it to all ranks that need it. Then the exchange runs over all axes along
  /// which ranks may hold the same elements.
  Move exchange(const dist::Layout &at, const dist::Layout &target,
                int64_t rounds = 1) const;
  /// Appends the moves that lead from `goal`, which is one of the layouts in
  /// `goals`, to the target. They need no communication.
  void finish(const dist::Layout &goal, llvm::SmallVector<Move> &moves) const;
  /// Calls `step` with each move that is worth trying from the layout `at`. The
  /// order of the moves is fixed.
  void expand(const dist::Layout &at, Step step) const;

  /// The partial axes that the value keeps throughout (`kept`), and those that
  /// only the target has (`added`).
  const dist::AxisSet kept, added;
  /// Layouts from which moves without communication lead to the target. These
  /// moves create the target's partial sums: either all ranks but the first set
  /// their copies to zero, or each rank places its tile in a tensor of zeros.
  llvm::SmallVector<dist::Layout> goals;

private:
  void makeGoals();
  bool isUneven(const dist::Layout &layout) const;
  /// Returns whether tiles of a dimension that is split by `major` can be split
  /// further by `minor` without moving elements.
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
  /// For each dimension that is split: tries the move by which each rank places
  /// its tile in a tensor of zeros of the whole dimension, which is then a
  /// partial sum. The move removes all axes from the dimension, since
  /// dist-verify-variance could not prove a dimension that stays split by some
  /// of them.
  void embed(const dist::Layout &at, Step step) const;
  /// Tries exchanges to the layouts in `goals`, and to layouts from which a
  /// single all-gather leads to one of them.
  void exchanges(const dist::Layout &at, Step step) const;
  /// Tries exchanges to layouts that have the tiles of the target, but are
  /// partial over some axes by which the layout `at` is split. Most elements
  /// then stay on their rank, in its partial sum. Later moves reduce the
  /// partial sums.
  void spread(const dist::Layout &at, Step step) const;
  /// Tries an exchange in one round and, if the value must be reduced, one in
  /// two rounds, of which the first reduces and the second copies.
  void exchangeAll(const dist::Layout &at, const dist::Layout &target,
                   Step step) const;

  const dist::MeshAxes &mesh;
  llvm::ArrayRef<int64_t> shape;
  const dist::Layout &from, &to;
  bool summing;
};

} // namespace cleave::partition

#endif
