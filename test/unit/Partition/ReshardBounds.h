// What reshards are measured against: the least that must be received, and the
// best of all plans of up to three moves.
#ifndef CLEAVE_TEST_RESHARDBOUNDS_H
#define CLEAVE_TEST_RESHARDBOUNDS_H

#include "../../../lib/Partition/Reshard/ReshardCost.h"

#include <vector>

namespace cleave::test {

inline int64_t product(llvm::ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

/// Elements that all ranks together must receive. Without partial sums: target
/// tiles less what their ranks hold. With p partial sums and h ranks that are
/// to hold an element: p - 1 to add them, h - 1 copies, and one more where
/// nobody has a partial sum and is to hold the element. Where the target has
/// partial sums, an element is held by the ranks of one of them, the one that
/// lacks it on the fewest. What stays partial is several such problems, or one:
/// the cheaper.
double receiveFloor(const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape,
                    const dist::Layout &from, const dist::Layout &to);

/// All moves between any two layouts; a free one alone where there is such a
/// one.
class Exhaustive {
public:
  Exhaustive(const dist::MeshAxes &mesh, const cost::LinkModel &model,
             llvm::ArrayRef<int64_t> shape,
             const std::vector<dist::Layout> &layouts);

  /// The least time of plans from one layout to another, by their numbers, by
  /// which all ranks together receive at most `mostReceived` elements.
  double best(size_t from, size_t to, double mostReceived) const;

private:
  llvm::SmallVector<partition::MoveCost, 1>
  between(const dist::Layout &from, const dist::Layout &to) const;

  const dist::MeshAxes &mesh;
  const cost::LinkModel &model;
  llvm::SmallVector<int64_t> shape;
  const std::vector<dist::Layout> &layouts;
  size_t count;
  std::vector<llvm::SmallVector<partition::MoveCost, 1>> moves;
  std::vector<double> seconds, tile;
};

} // namespace cleave::test

#endif
