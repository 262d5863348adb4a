// The planner limits the received data if latency is negligible, and otherwise
// chooses the fastest plan. The test finds the sizes at which the planner
// switches from one rule to the other, with the default links.

#include "Context.h"
#include "ReshardBounds.h"

#include "gtest/gtest.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;
using namespace cleave::test;

namespace {

MeshAxes makeMesh(MLIRContext &context, ArrayRef<int64_t> sizes) {
  SmallVector<MeshAxisAttr> axes;
  for (auto [index, size] : llvm::enumerate(sizes))
    axes.push_back(MeshAxisAttr::get(
        &context, StringAttr::get(&context, std::string(1, char('a' + index))),
        size));
  return MeshAxes(FlatSymbolRefAttr::get(&context, "m"),
                  MeshAttr::get(&context, axes));
}

/// Reshards of f32 tensors with `rows` rows and any number of columns.
class Growing {
public:
  Growing(const MeshAxes &mesh, int64_t rows, const Layout &from,
          const Layout &to)
      : mesh(mesh), model(mesh, LinkClass()), rows(rows), from(from), to(to) {}

  SmallVector<Move> plan(int64_t columns) const {
    // Uses a new planner for each plan, because a planner caches its plans.
    ReshardPlanner planner(mesh, model);
    return SmallVector<Move>(planner.plan({rows, columns}, 4, from, to));
  }
  MoveCost cost(int64_t columns, ArrayRef<Move> moves,
                int64_t width = 4) const {
    MoveCost sum;
    const Layout *at = &from;
    for (const Move &move : moves) {
      MoveCost one = costOf(mesh, model, {rows, columns}, width, *at, move);
      sum.seconds += one.seconds;
      sum.received += one.received;
      at = &move.after;
    }
    return sum;
  }
  /// The share of latency in the total time of a plan.
  double latencyShare(int64_t columns, ArrayRef<Move> moves) const {
    return cost(columns, moves, 0).seconds / cost(columns, moves).seconds;
  }
  /// Returns the received elements relative to the minimum.
  double received(int64_t columns, ArrayRef<Move> moves) const {
    return cost(columns, moves).received * mesh.mesh().getNumRanks() /
           receiveFloor(mesh, {rows, columns}, from, to);
  }

private:
  const MeshAxes &mesh;
  cost::LinkModel model;
  int64_t rows;
  Layout from, to;
};

/// Finds the number of columns at which the planner switches from the fastest
/// plan to the plan that limits the received data, and checks both plans. Only
/// multiples of `step` are tried.
void expectGate(const Growing &reshard, int64_t step) {
  auto limited = [&](int64_t steps) {
    return reshard.received(step * steps, reshard.plan(step * steps)) <= 1.2501;
  };
  int64_t low = (1 << 16) / step, high = (1 << 22) / step;
  ASSERT_FALSE(limited(low));
  ASSERT_TRUE(limited(high));
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    (limited(middle) ? high : low) = middle;
  }
  // `low` and `high` are adjacent sizes. At `low`, latency is just over 1/20 of
  // the time of the fast plan; at `high`, it is just under 1/20.
  SmallVector<Move> fast = reshard.plan(step * low),
                    lean = reshard.plan(step * high);
  double over = reshard.latencyShare(step * low, fast);
  double under = reshard.latencyShare(step * high, fast);
  EXPECT_GT(over, 0.05);
  EXPECT_LE(under, 0.05);
  EXPECT_NEAR(over, under, 1e-4);
  // The plan that limits the received data (`lean`) is still slower than the
  // fastest plan (`fast`).
  EXPECT_LT(reshard.cost(step * high, fast).seconds,
            reshard.cost(step * high, lean).seconds);
  EXPECT_GT(reshard.received(step * high, fast), 1.25);
}

/// The reduce-scatter pads the rows. The exchange does not pad, but has a
/// higher latency.
TEST(ReshardGate, PaddedReduceScatter) {
  TestContext test;
  MeshAxes mesh = makeMesh(test.context, {6});
  Layout from(2), to(2);
  from.partial = 1;
  to.dims[0] = {0};
  for (int64_t rows : {3, 7})
    expectGate(Growing(mesh, rows, from, to), 6);
}

} // namespace
