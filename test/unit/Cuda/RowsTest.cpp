// Compares commands on a device with their definitions in program.h: the
// sorting of rows by id, the planning of which rank each row is sent to, and
// positions in experts.

#include "Helpers.h"
#include "TinyDriver.h"
#include "cpu/position_in_expert.h"

#include <numeric>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
using Numbers = std::vector<int64_t>;

Numbers randomIds(int64_t rows, int64_t groups, int64_t outside,
                  uint32_t seed) {
  std::mt19937 engine(seed);
  Numbers ids;
  for (int64_t row = 0; row < rows; ++row) {
    ids.push_back(int64_t(engine() % groups));
    if (outside && int64_t(engine() % outside) == 0)
      ids.back() = engine() % 2 ? -1 - row : groups + row;
  }
  return ids;
}

void expectSorts(int64_t rows, int64_t groups, int64_t outside) {
  Numbers ids = randomIds(rows, groups, outside, 5);
  auto chosen = [&](int64_t row) {
    return ids[row] >= 0 && ids[row] < groups ? ids[row] : groups;
  };
  Numbers want(rows);
  std::iota(want.begin(), want.end(), 0);
  std::sort(want.begin(), want.end(), [&](int64_t a, int64_t b) {
    return std::pair(chosen(a), a) < std::pair(chosen(b), b);
  });
  SortRows sort;
  sort.rows = rows, sort.groups = groups;
  Numbers order(rows, -7), placeOf(rows, -7), sorted(rows, -7);
  cuda::Enqueue enqueue = cuda::makeSortRows(
      kernels(), sort,
      {ids.data(), order.data(), placeOf.data(), sorted.data()});
  runInBothOrders(
      [&] { enqueue(nullptr); },
      [&] { return bytesOf(order) + bytesOf(placeOf) + bytesOf(sorted); });
  EXPECT_EQ(order, want) << rows << " rows, " << groups << " groups";
  for (int64_t place = 0; place < rows; ++place) {
    EXPECT_EQ(placeOf[want[place]], place);
    int64_t id = chosen(want[place]);
    EXPECT_EQ(sorted[place], id < groups ? id : -1);
  }
}

void expectPlans(PlanRows plan, int64_t outside) {
  Numbers ids = randomIds(plan.rows, plan.ranks * plan.tile, outside, 6);
  int64_t all = plan.rounds * plan.ranks * plan.places;
  struct Tables {
    Numbers sources, placeOf, sent, counts;
    std::string bytes() const {
      return bytesOf(sources) + bytesOf(placeOf) + bytesOf(sent) +
             bytesOf(counts);
    }
  };
  Tables want{Numbers(all, -1), Numbers(plan.rows, -1), Numbers(all, -1),
              Numbers(plan.ranks * plan.rounds)};
  for (int64_t row = 0; row < plan.rows; ++row) {
    int64_t to = ids[row] < 0 ? plan.ranks : ids[row] / plan.tile;
    if (to >= plan.ranks)
      continue;
    // Finds the first all-to-all (round) in which the target rank has room for
    // another row.
    int64_t round = 0;
    while (want.counts[to * plan.rounds + round] == plan.places)
      ++round;
    int64_t place = (round * plan.ranks + to) * plan.places +
                    want.counts[to * plan.rounds + round]++;
    want.sources[place] = row;
    want.placeOf[row] = place;
    want.sent[place] = ids[row] - to * plan.tile;
  }
  Tables got{Numbers(all, -7), Numbers(plan.rows, -7), Numbers(all, -7),
             Numbers(plan.ranks * plan.rounds, -7)};
  cuda::Enqueue enqueue =
      cuda::makePlanRows(kernels(), plan,
                         {ids.data(), got.sources.data(), got.placeOf.data(),
                          got.sent.data(), got.counts.data()});
  runInBothOrders([&] { enqueue(nullptr); }, [&] { return got.bytes(); });
  EXPECT_EQ(got.sources, want.sources);
  EXPECT_EQ(got.placeOf, want.placeOf);
  EXPECT_EQ(got.sent, want.sent);
  EXPECT_EQ(got.counts, want.counts);
}

enum class Order { Ascending, Shuffled, Repeated };

void expectPositions(PositionInExpert x, Order order, bool hasLoads) {
  Numbers ids = randomIds(x.b * x.s * x.k, x.e, 5, 7), positions;
  std::mt19937 engine(8);
  for (int64_t i = 0; i < (x.perSample ? x.b : 1) * x.s; ++i)
    positions.push_back(order == Order::Ascending  ? 3 * (i % x.s) - 2
                        : order == Order::Shuffled ? i * 7 % x.s
                                                   : int64_t(engine() % 5));
  Numbers loads, samples;
  for (int64_t i = 0; i < x.rows * x.e; ++i)
    loads.push_back(int64_t(engine() % 100));
  for (int64_t i = 0; i < x.b; ++i)
    samples.push_back(int64_t(engine() % (x.rows + 2)) - 1);
  Numbers want(ids.size(), -7), got(ids.size(), -8), scratch(2 * x.e + x.s);
  PositionInExpertBuffers at;
  at.ids = ids.data(), at.positions = positions.data();
  if (hasLoads)
    at.loads = loads.data(), at.samples = samples.data();
  at.scratch = scratch.data();
  at.result = want.data();
  positionInExpert(x, at);
  at.result = got.data();
  cuda::Enqueue enqueue = cuda::makePositionInExpert(kernels(), x, at);
  runInBothOrders([&] { enqueue(nullptr); }, [&] { return bytesOf(got); });
  EXPECT_EQ(got, want) << x.s << " x " << x.k << ", order " << int(order);
}
} // namespace

TEST(CudaRows, Sorts) {
  expectSorts(0, 3, 0);
  expectSorts(1, 1, 0);
  expectSorts(31, 4, 3);
  expectSorts(1000, 8, 0);
  expectSorts(3000, 65, 4);
  expectSorts(2500, 3, 1); // none is within
  // A block has counters for every group and warp. With 3000 groups, the
  // counters of only a few warps fit into shared memory. With 40000 groups, not
  // even those of one warp fit, so another kernel sorts the rows.
  expectSorts(2000, 3000, 7);
  takeLaunches();
  expectSorts(600, 40000, 7);
  EXPECT_EQ(takeLaunches()[0], "cleave_sort_rows_pairs");
}

TEST(CudaRows, Plans) {
  PlanRows plan;
  plan.rows = 1000, plan.ranks = 4, plan.rounds = 4, plan.places = 250;
  expectPlans(plan, 0);
  plan.tile = 3, plan.rounds = 5, plan.places = 200;
  expectPlans(plan, 4);
  plan.rows = 7, plan.rounds = 7, plan.places = 1;
  expectPlans(plan, 3);
  plan.rows = 0, plan.rounds = 2, plan.places = 0;
  expectPlans(plan, 0);
}

TEST(CudaRows, PositionsInExperts) {
  for (Order order : {Order::Ascending, Order::Shuffled, Order::Repeated})
    for (bool perSample : {false, true})
      for (bool hasLoads : {false, true}) {
        PositionInExpert x;
        x.b = 3, x.s = 97, x.k = 2, x.e = 6, x.rows = 5;
        x.perSample = perSample;
        expectPositions(x, order, hasLoads);
        x.s = 700, x.k = 1, x.e = 33, x.b = 2;
        expectPositions(x, order, hasLoads);
        x.s = 300, x.e = 9000, x.rows = 2;
        expectPositions(x, order, hasLoads);
        x.s = 1, x.k = 3, x.e = 1;
        expectPositions(x, order, hasLoads);
      }
}
