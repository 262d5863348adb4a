// The bounds for reshards: the least data that must be received, and the best
// plan of up to three moves.
#ifndef CLEAVE_TEST_RESHARDBOUNDS_H
#define CLEAVE_TEST_RESHARDBOUNDS_H

#include "../../../lib/Partition/ReshardCost.h"

#include <vector>

namespace cleave::test {

inline int64_t product(llvm::ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

/// The number of elements that all ranks together must receive. Without partial
/// sums: target tiles minus what their ranks already hold. With p partial sums
/// and h ranks that need an element: p - 1 to add them and h - 1 copies, plus
/// one if no rank both has a partial sum and needs the element. If the target
/// is partial, an element is held by the ranks of one partial sum: the one with
/// the fewest ranks that lack it. An axis partial on both sides may stay so or
/// be reduced; the cheaper counts.
double receiveFloor(const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape,
                    const dist::Layout &from, const dist::Layout &to);

/// All moves between any two layouts; if a free move exists, only that one.
class Exhaustive {
public:
  Exhaustive(const dist::MeshAxes &mesh, const cost::LinkModel &model,
             llvm::ArrayRef<int64_t> shape,
             const std::vector<dist::Layout> &layouts);

  /// The least time of plans between two layouts, given by index, in which all
  /// ranks together receive at most `mostReceived` elements.
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
