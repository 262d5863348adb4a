// Executes the moves of a reshard on tiles of numbers, on all ranks at once,
// and counts what each rank sends and receives. It is independent of the
// interpreter: the simulator works on moves, not on operations. For exchanges
// it uses the boxes (rectangular ranges of elements) that the runtime computes.
#ifndef CLEAVE_TEST_UNIT_PARTITION_RESHARDSIMULATOR_H
#define CLEAVE_TEST_UNIT_PARTITION_RESHARDSIMULATOR_H

#include "cleave/Partition/Reshard/Reshard.h"
#include "cleave/exchange.h"

namespace cleave::test {

class ReshardSimulator {
public:
  using Shape = llvm::SmallVector<int64_t>;

  ReshardSimulator(const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape);

  /// Fills the tiles. Element i of the whole tensor is a function of i, partial
  /// sums add up to the element, and padding is NaN.
  void fill(const dist::Layout &layout);
  void run(const partition::Move &move);
  /// Returns whether the tiles hold, in this layout, the tensor with which
  /// fill() began.
  bool holds(const dist::Layout &layout) const;

  /// Elements that each rank sends and receives, including the padding of
  /// collectives.
  std::vector<double> sent, received;
  /// The worst imbalance of an exchange: among ranks that hold the same tile,
  /// the most that a rank sends, relative to an equal share.
  double worstImbalance = 1;

private:
  using Tile = std::vector<double>;
  struct ExchangeGroup;
  struct TileMove;

  std::vector<int64_t> coordinates(int64_t rank) const;
  int64_t position(llvm::ArrayRef<dist::Axis> axes, int64_t rank) const;
  /// The ranks that differ from `rank` only on `axes`, in the order of these
  /// axes.
  std::vector<int64_t> group(llvm::ArrayRef<dist::Axis> axes,
                             int64_t rank) const;
  /// Describes an exchange as the compiler describes it to the runtime.
  program::Exchange describe(const partition::Move &move) const;
  void exchange(const partition::Move &move);
  void book(int64_t from, int64_t to, double elements) {
    if (from == to)
      return;
    sent[from] += elements;
    received[to] += elements;
  }
  /// Calls body(tile position, whole position) for all elements that are not
  /// padding.
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
