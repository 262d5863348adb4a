// Bounds with which reshard plans are compared: the least number of elements
// that must be received, and the best of all plans of up to three moves.
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

/// Returns a lower bound of the number of elements that all ranks together must
/// receive. Without partial sums, each rank must receive the part of its target
/// tile that it does not hold. With partial sums, let p be the number of
/// partial sums of an element in the source, and h the number of ranks that
/// need the element. Then p - 1 transfers add the partial sums, and h - 1
/// transfers copy the result. One more transfer is necessary if none of the h
/// ranks holds a partial sum of the element. If the target is partial, only the
/// ranks of one of its partial sums need the element's value; the bound takes
/// the partial sum for which the fewest ranks lack the element. An axis that is
/// partial in both source and target either divides the problem into
/// independent ones or is reduced; the bound takes the cheaper alternative.
double receiveFloor(const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape,
                    const dist::Layout &from, const dist::Layout &to);

/// All moves between any two layouts. If a free move exists between two
/// layouts, only that move is listed.
class Exhaustive {
public:
  Exhaustive(const dist::MeshAxes &mesh, const cost::LinkModel &model,
             llvm::ArrayRef<int64_t> shape,
             const std::vector<dist::Layout> &layouts);

  /// Returns the least time of all plans from layout number `from` to layout
  /// number `to` in which all ranks together receive at most `mostReceived`
  /// elements.
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
