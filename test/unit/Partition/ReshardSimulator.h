// Executes the moves of a reshard on tiles of numbers, all ranks at once, and
// counts what each rank sends and receives. Independent of the interpreter: it
// knows moves, not operations. Exchanges move the runtime's own boxes.
#ifndef CLEAVE_TEST_UNIT_PARTITION_RESHARDSIMULATOR_H
#define CLEAVE_TEST_UNIT_PARTITION_RESHARDSIMULATOR_H

#include "cleave/Partition/Reshard.h"
#include "cleave/exchange.h"

namespace cleave::test {

class ReshardSimulator {
public:
  using Shape = llvm::SmallVector<int64_t>;

  ReshardSimulator(const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape);

  /// Fills the tiles: element i of the whole has a value determined by i,
  /// partial sums add up to it, and padding is NaN.
  void fill(const dist::Layout &layout);
  void run(const partition::Move &move);
  /// Whether the tiles hold fill()'s values in the given layout.
  bool holds(const dist::Layout &layout) const;

  /// Elements by rank, padding of collectives included.
  std::vector<double> sent, received;
  /// For exchanges: the load of the busiest of the ranks that hold the same
  /// tile, relative to an equal share; the worst case.
  double worstImbalance = 1;

private:
  using Tile = std::vector<double>;

  std::vector<int64_t> coordinates(int64_t rank) const;
  int64_t position(llvm::ArrayRef<dist::Axis> axes, int64_t rank) const;
  /// The ranks that differ from `rank` on the axes only, in their order.
  std::vector<int64_t> group(llvm::ArrayRef<dist::Axis> axes,
                             int64_t rank) const;
  void exchange(const partition::Move &move);
  void book(int64_t from, int64_t to, double elements) {
    if (from == to)
      return;
    sent[from] += elements;
    received[to] += elements;
  }
  /// Calls body(tile position, whole position) for all elements except padding.
  template <typename Body>
  void forValid(const dist::Layout &layout, int64_t rank, Body body) const;

  static double combine(dist::ReduceKind kind, double a, double b);

  const dist::MeshAxes &mesh;
  Shape shape;
  int64_t ranks = 1;
  std::vector<std::vector<int64_t>> at; // coordinates of each rank
  std::vector<Tile> tiles;
  dist::Layout layout;
  dist::ReduceKind kind = dist::ReduceKind::Sum;
};

} // namespace cleave::test

#endif
