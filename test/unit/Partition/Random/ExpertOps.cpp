// Generates grouped products, in which each row chooses a matrix, and the
// position of each row among the rows that chose the same expert.

#include "Generator.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

int64_t elements(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

/// Returns for each row the index of the matrix that it chooses. Some indices
/// are out of range: these rows choose no matrix.
Value choices(Generator &g, ArrayRef<int64_t> rows) {
  return g.like(g.ints(rows)).value;
}

bool groupedDot(Generator &g) {
  Entry x = g.any(1, 4);
  int64_t e = g.size(), k = x.shape().back(), n = g.size();
  ArrayRef<int64_t> rows = x.shape().drop_back();
  SmallVector<int64_t> shape(rows);
  shape.push_back(n);
  if (e * k * n > 2 * g.kMaxElements || elements(shape) > 2 * g.kMaxElements)
    return false;
  bool transposed = g.random.chance(1, 2);
  Entry w = g.like(transposed ? g.floats({e, n, k}) : g.floats({e, k, n}));
  double bound = x.bound * w.bound * k;
  if (bound > g.maxBound)
    return false;
  g.give(nn::GroupedDotOp::create(g.b, g.loc, g.floats(shape), x.value, w.value,
                                  choices(g, rows), transposed),
         bound, x.exact && w.exact);
  return true;
}

bool groupedOuter(Generator &g) {
  Entry left = g.any(1, 4);
  int64_t e = g.size(), k = left.shape().back(), n = g.size();
  ArrayRef<int64_t> rows = left.shape().drop_back();
  SmallVector<int64_t> shape(rows);
  shape.push_back(n);
  if (e * k * n > 2 * g.kMaxElements || elements(shape) > 2 * g.kMaxElements)
    return false;
  Entry right = g.like(g.floats(shape));
  double bound = left.bound * right.bound * elements(rows);
  if (bound > g.maxBound)
    return false;
  g.give(nn::GroupedOuterOp::create(g.b, g.loc, g.floats({e, k, n}), left.value,
                                    right.value, choices(g, rows)),
         bound, left.exact && right.exact);
  return true;
}

bool positionInExpert(Generator &g) {
  int64_t experts = g.size();
  SmallVector<int64_t> shape = g.shape(2, 3);
  ArrayRef<int64_t> tokens = ArrayRef(shape).take_front(2);
  if (elements(shape) > g.kMaxElements)
    return false;
  // The positions by which the rows are ordered: 0, 1, 2, ..., or values of the
  // program, of which some are equal.
  RankedTensorType type =
      g.ints(g.random.chance(1, 3) ? tokens : tokens.take_back(1));
  Value positions =
      g.random.chance(1, 3)
          ? Value(nn::IotaOp::create(g.b, g.loc, type, type.getRank() - 1))
          : g.like(type).value;
  Value ids = choices(g, shape), loads, samples;
  if (g.random.chance(1, 2)) {
    loads = g.like(g.ints({g.size(), experts})).value;
    samples = g.like(g.ints(tokens.take_front(1))).value;
  }
  bool narrow = g.random.chance(1, 4);
  if (narrow)
    ids = arith::TruncIOp::create(g.b, g.loc,
                                  g.ints(shape).clone(g.b.getI32Type()), ids);
  Value place = nn::PositionInExpertOp::create(
      g.b, g.loc, ids.getType(), ids, positions, loads, samples, experts);
  if (narrow)
    place = arith::ExtSIOp::create(g.b, g.loc, g.ints(shape), place);
  g.give(place, 1e6, true);
  return true;
}

} // namespace

ArrayRef<Family> cleave::random::expertFamilies() {
  static const Family families[] = {
      {"grouped_dot", 8, groupedDot},
      {"grouped_outer", 6, groupedOuter},
      {"position_in_expert", 6, positionInExpert},
  };
  return families;
}
