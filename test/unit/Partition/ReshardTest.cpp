// Tests the reshard planner. Every plan is executed on numbers. The received
// data are compared with the least that must be received, and the modelled time
// with the best of all plans of up to three moves.
//
// By default, a sample of the cases runs. CLEAVE_RESHARD=full runs all pairs
// on meshes of up to 8 ranks and 20,000 sampled pairs on meshes of up to 64
// ranks. It prints the table of docs/reshard.md.

#include "Context.h"
#include "ReshardBounds.h"
#include "ReshardSimulator.h"

#include "../../../lib/Partition/Reshard/ReshardExhaustive.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <random>
#include <set>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;
using namespace cleave::test;

namespace {

bool isFull() {
  const char *mode = std::getenv("CLEAVE_RESHARD");
  return mode && StringRef(mode) == "full";
}

MeshAxes makeMesh(MLIRContext &context, ArrayRef<int64_t> sizes) {
  SmallVector<MeshAxisAttr> axes;
  for (auto [index, size] : llvm::enumerate(sizes))
    axes.push_back(MeshAxisAttr::get(
        &context, StringAttr::get(&context, std::string(1, char('a' + index))),
        size));
  return MeshAxes(FlatSymbolRefAttr::get(&context, "m"),
                  MeshAttr::get(&context, axes));
}

/// Returns the pair of layouts as text. Axes of equal size, and dimensions, are
/// renamed such that the text is the lexicographically first one. So pairs that
/// differ only in these names have the same text.
std::string canonical(ArrayRef<int64_t> sizes, const Layout &from,
                      const Layout &to) {
  std::vector<unsigned> axes(sizes.size()), dims(from.dims.size());
  std::iota(axes.begin(), axes.end(), 0);
  std::string best;
  do {
    bool same = true;
    for (size_t i = 0; i < axes.size(); ++i)
      same &= sizes[axes[i]] == sizes[i];
    if (!same)
      continue;
    std::iota(dims.begin(), dims.end(), 0);
    do {
      std::string text;
      for (const Layout *layout : {&from, &to}) {
        for (unsigned dim : dims) {
          for (Axis axis : layout->dims[dim])
            text += char('a' + axes[axis]);
          text += '|';
        }
        AxisSet partial = 0;
        for (Axis axis : listOf(layout->partial))
          partial |= AxisSet(1) << axes[axis];
        text += std::to_string(partial) + ';';
      }
      if (best.empty() || text < best)
        best = text;
    } while (std::next_permutation(dims.begin(), dims.end()));
  } while (std::next_permutation(axes.begin(), axes.end()));
  return best;
}

//===----------------------------------------------------------------------===//
// Cases
//===----------------------------------------------------------------------===//

/// Statistics over a set of cases.
struct Figures {
  int64_t cases = 0, wrong = 0, whole = 0, larger = 0, compared = 0;
  double received = 0, floor = 0, worstReceived = 1;
  double worstSender = 1;
  double worstTime[2] = {1, 1}; // bandwidth-bound, latency-bound
  double worstUnlimited = 1;    // bandwidth-bound, without a receive limit
  double worstModel =
      1; // the busiest rank's received data over the modelled time
  double planSeconds = 0;
  int64_t plans = 0;
  std::string worst;

  void print(const char *name) const {
    std::printf("| %-34s | %7ld | %5ld | %8.4f | %8.4f | %6.3f | %7ld | %8.4f "
                "| %9.4f | %8.4f | %5ld | "
                "%7.1f | %6.3f |\n",
                name, long(cases), long(wrong),
                floor > 0 ? received / floor : 1.0, worstReceived, worstSender,
                long(compared), worstTime[0], worstUnlimited, worstTime[1],
                long(whole), 1e6 * planSeconds / std::max<int64_t>(plans, 1),
                worstModel);
  }
  static void printHead() {
    std::printf("| cases                              |   count | wrong | "
                "received |    worst | sender "
                "| compared | bandwidth | unlimited | latency | whole | plan "
                "us | model |\n");
  }
};

/// Kinds of sizes. Even: every size is divisible by any product of axes. Long:
/// one dimension is long, and its padding is at most a few percent. Uneven: few
/// sizes are divisible, and tiles differ much in size. Small: some dimensions
/// are smaller than an axis.
enum class Sizes { Even, Long, Uneven, Small };
constexpr Sizes kSizes[] = {Sizes::Even, Sizes::Long, Sizes::Uneven,
                            Sizes::Small};
SmallVector<int64_t> sizesOf(Sizes kind, int64_t ranks, unsigned rank,
                             std::mt19937 &random) {
  auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  SmallVector<int64_t> shape;
  for (unsigned dim = 0; dim < rank; ++dim) {
    if (kind == Sizes::Even || kind == Sizes::Long)
      shape.push_back(ranks);
    else if (kind == Sizes::Uneven)
      shape.push_back(between(ranks / 2 + 1, 2 * ranks + 1));
    else
      shape.push_back(between(1, ranks));
  }
  if (kind == Sizes::Long) {
    // On many ranks the other dimensions stay small, to limit simulation time.
    bool many = ranks > 8 && rank > 1;
    if (many)
      shape.assign(rank, 4);
    shape[between(0, rank - 1)] =
        ranks * (many ? between(16, 20) : between(40, 60)) +
        between(1, std::max<int64_t>(1, ranks / 2));
  }
  return shape;
}

/// Returns whether the layout pads some dimension by more than 1/20.
bool isTiny(const MeshAxes &mesh, ArrayRef<int64_t> shape,
            const Layout &layout) {
  for (auto [extent, axes] : llvm::zip_equal(shape, layout.dims)) {
    int64_t ways = mesh.size(axes);
    if (20 * (tileSize(extent, ways) * ways - extent) > extent)
      return true;
  }
  return false;
}

// On bandwidth-bound links, latency and messages are free. On latency-bound
// links, bytes are nearly free, and a message that is sent together with other
// messages costs 1/50 of a single message.
const LinkClass kBandwidthBound = {0, 0, 1};
const LinkClass kLatencyBound = {1, 0.02, 1e15};

/// CPU time of this thread. Wall time would depend on the load of the machine.
double threadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

class Proof {
public:
  Proof(const MeshAxes &mesh, ArrayRef<int64_t> shape)
      : mesh(mesh), shape(shape), models{cost::LinkModel(mesh, kBandwidthBound),
                                         cost::LinkModel(mesh, kLatencyBound)},
        planners{ReshardPlanner(mesh, models[0]),
                 ReshardPlanner(mesh, models[1])} {}

  void enumerate(const std::vector<Layout> &layouts) {
    for (int m = 0; m < 2; ++m)
      best.push_back(
          std::make_unique<Exhaustive>(mesh, models[m], shape, layouts));
  }

  bool isTiny(const Layout &layout) const {
    return ::isTiny(mesh, shape, layout);
  }

  /// `i`, `j`: the indices of `from` and `to` in the list that enumerate() got.
  void run(const Layout &from, const Layout &to, size_t i, size_t j,
           Figures &figures) {
    ++figures.cases;
    for (int m = 0; m < 2; ++m) {
      double begin = threadSeconds();
      ArrayRef<Move> moves = planners[m].plan(shape, 1, from, to);
      figures.planSeconds += threadSeconds() - begin;
      ++figures.plans;
      ReshardSimulator simulator(mesh, shape);
      simulator.fill(from);
      int64_t limit = std::max(product(mesh.tile(from, shape)),
                               product(mesh.tile(to, shape)));
      for (const Move &move : moves) {
        simulator.run(move);
        figures.whole += !move.after.split() && from.split() && to.split();
        figures.larger += product(mesh.tile(move.after, shape)) > limit;
      }
      if (!simulator.holds(to)) {
        ++figures.wrong;
        ADD_FAILURE() << "wrong: " << describe(from, to, moves);
      }
      if (simulator.worstImbalance > 1.25)
        note(figures, "sender " + std::to_string(simulator.worstImbalance) +
                          ": " + describe(from, to, moves));
      figures.worstSender =
          std::max(figures.worstSender, simulator.worstImbalance);
      double seconds = planners[m].seconds(shape, 1, from, moves);
      double floor = receiveFloor(mesh, shape, from, to);
      if (!best.empty()) {
        ++figures.compared;
        auto ratioTo = [&](double least) {
          return seconds <= least * (1 + 1e-12) ? 1 : seconds / least;
        };
        double ratio = ratioTo(best[m]->best(i, j, INFINITY));
        if (m == 0)
          figures.worstUnlimited = std::max(figures.worstUnlimited, ratio);
        // A faster plan that exceeds the receive limit does not count.
        if (m == 0 && ratio > 1.05)
          ratio = ratioTo(best[m]->best(i, j, 1.25 * floor + 1e-6));
        if (ratio > 1.05)
          note(figures, "time " + std::to_string(m) + " " +
                            std::to_string(ratio) + ": " +
                            describe(from, to, moves));
        figures.worstTime[m] = std::max(figures.worstTime[m], ratio);
      }
      // On this link an element takes one second, so the number of elements
      // that the busiest rank receives is a time in seconds.
      double most = 0;
      for (double one : simulator.received)
        most = std::max(most, one);
      if (m == 0 && most > seconds)
        figures.worstModel = std::max(figures.worstModel, most / seconds);
      double received = 0;
      for (double one : simulator.received)
        received += one;
      // A plan that receives less than the lower bound (floor) would mean that
      // the bound is wrong.
      if (received < floor - 1e-6)
        ADD_FAILURE() << "received " << received << ", less than the floor of "
                      << floor << ": " << describe(from, to, moves);
      if (m == 1)
        continue;
      figures.received += received;
      figures.floor += floor;
      double ratio = received <= floor ? 1 : received / floor;
      if (ratio > 1.25)
        note(figures, "received " + std::to_string(received) + " floor " +
                          std::to_string(floor) + ": " +
                          describe(from, to, moves));
      figures.worstReceived = std::max(figures.worstReceived, ratio);
    }
  }

private:
  static void note(Figures &figures, std::string text) {
    static int noted = 0;
    if (std::getenv("CLEAVE_RESHARD_SHOW") && noted++ < 40)
      std::printf("%s\n", text.c_str());
    figures.worst = std::move(text);
  }

  std::string describe(const Layout &from, const Layout &to,
                       ArrayRef<Move> moves) {
    std::string text;
    llvm::raw_string_ostream out(text);
    out << mesh.mesh() << " [";
    llvm::interleaveComma(shape, out);
    out << "] " << mesh.sharding(from) << " to " << mesh.sharding(to);
    constexpr const char *names[] = {
        "all_reduce", "reduce_scatter", "keep_first",
        "all_to_all", "all_gather",     "slice",
        "permute",    "exchange",       "embed"};
    for (const Move &move : moves)
      out << "\n    " << names[move.kind] << (move.rounds > 1 ? "2 " : " ")
          << mesh.list(move.axes) << " -> " << mesh.sharding(move.after);
    return text;
  }

  const MeshAxes &mesh;
  SmallVector<int64_t> shape;
  cost::LinkModel models[2];
  ReshardPlanner planners[2];
  std::vector<std::unique_ptr<Exhaustive>> best;
};

const std::vector<std::vector<int64_t>> kSmallMeshes = {
    {2}, {3}, {4}, {5}, {6}, {7}, {8}, {2, 2}, {2, 3}, {2, 4}, {2, 2, 2}};

/// Cases in four groups: with a partial target or not, and with sizes that need
/// much padding or not.
struct Groups {
  Figures of[2][2];
  void run(Proof &proof, const Layout &from, const Layout &to, size_t i,
           size_t j) {
    proof.run(from, to, i, j,
              of[to.partial != 0][proof.isTiny(from) || proof.isTiny(to)]);
  }

  void print() const {
    of[0][0].print("all");
    of[0][1].print("all, tiny sizes");
    of[1][0].print("all, to partial sums");
    of[1][1].print("all, to partial sums, tiny sizes");
    double received = 0, floor = 0, seconds = 0;
    int64_t plans = 0;
    for (const auto &row : of)
      for (const Figures &figures : row) {
        received += figures.received;
        floor += figures.floor;
        seconds += figures.planSeconds;
        plans += figures.plans;
      }
    std::printf("together: received %.4f, plan %.1f us\n", received / floor,
                1e6 * seconds / plans);
  }

  void expect() const {
    double received = 0, floor = 0;
    for (int terms = 0; terms < 2; ++terms)
      for (int tiny = 0; tiny < 2; ++tiny) {
        const Figures &figures = of[terms][tiny];
        received += figures.received;
        floor += figures.floor;
        EXPECT_EQ(figures.wrong, 0);
        EXPECT_EQ(figures.whole, 0) << "through full replication";
        EXPECT_EQ(figures.larger, 0) << "larger tiles on the way";
        EXPECT_LE(figures.worstReceived, 1.25) << figures.worst;
        EXPECT_LE(figures.worstSender, 1.25);
        for (double worst : figures.worstTime)
          EXPECT_LE(worst, 1.05) << figures.worst;
      }
    EXPECT_LE(received, 1.02 * floor);
    EXPECT_LE(of[0][0].received, 1.02 * of[0][0].floor);
  }
};

/// Plans reshards on small meshes and executes the plans: for every `stride`-th
/// pair of layouts. Pairs with the same canonical() text count once.
void allPairs(size_t stride, bool full) {
  TestContext test;
  std::mt19937 random(1);
  Groups groups;
  Figures::printHead();
  size_t number = 0;
  for (const std::vector<int64_t> &sizes : kSmallMeshes) {
    MeshAxes mesh = makeMesh(test.context, sizes);
    for (unsigned rank = 1; rank <= 3; ++rank) {
      std::vector<Layout> layouts = layoutsOf(mesh, rank, SIZE_MAX);
      std::vector<std::pair<size_t, size_t>> pairs;
      std::set<std::string> seen;
      for (size_t i = 0; i < layouts.size(); ++i)
        for (size_t j = 0; j < layouts.size(); ++j)
          if (i != j &&
              seen.insert(canonical(sizes, layouts[i], layouts[j])).second &&
              number++ % stride == 0)
            pairs.emplace_back(i, j);
      if (pairs.empty())
        continue;
      for (Sizes kind : kSizes) {
        bool tiny = kind == Sizes::Uneven || kind == Sizes::Small;
        for (int repeat = 0; repeat < (tiny && full ? 3 : 1); ++repeat) {
          Proof proof(mesh,
                      sizesOf(kind, mesh.mesh().getNumRanks(), rank, random));
          if (full || layouts.size() < 40)
            proof.enumerate(layouts);
          for (auto [i, j] : pairs)
            groups.run(proof, layouts[i], layouts[j], i, j);
        }
      }
    }
  }
  groups.print();
  groups.expect();
}

TEST(Reshard, PairsOnSmallMeshes) { allPairs(isFull() ? 1 : 13, isFull()); }

TEST(Reshard, SampledPairsOnLargerMeshes) {
  TestContext test;
  std::mt19937 random(2);
  const std::vector<std::vector<int64_t>> meshes = {{16},
                                                    {64},
                                                    {3, 5},
                                                    {4, 4},
                                                    {2, 8},
                                                    {6, 6},
                                                    {8, 8},
                                                    {4, 16},
                                                    {2, 32},
                                                    {2, 3, 4},
                                                    {4, 4, 4},
                                                    {2, 2, 4},
                                                    {2, 4, 8},
                                                    {2, 2, 2, 2},
                                                    {3, 3, 3},
                                                    {2, 2, 3, 5},
                                                    {2, 2, 4, 4},
                                                    {2, 2, 2, 2, 2},
                                                    {2, 2, 2, 2, 2, 2}};
  Groups groups;
  int rounds = isFull() ? 3 : 1;
  size_t perProof = isFull() ? 21000 / (meshes.size() * 3 * 4 * rounds) + 1 : 3;
  Figures::printHead();
  for (const std::vector<int64_t> &sizes : meshes) {
    MeshAxes mesh = makeMesh(test.context, sizes);
    for (unsigned rank = 1; rank <= 3; ++rank) {
      std::vector<Layout> layouts;
      if (sizes.size() <= 4)
        layouts = layoutsOf(mesh, rank, SIZE_MAX);
      for (Sizes kind : kSizes)
        for (int round = 0; round < rounds; ++round) {
          // Keep the tensors of three dimensions small.
          int64_t extent = mesh.mesh().getNumRanks();
          while (rank == 3 && extent > 16)
            extent = (extent + 1) / 2;
          Proof proof(mesh,
                      sizesOf(kind, rank == 2 && extent > 32 ? 32 : extent,
                              rank, random));
          if (isFull() && !layouts.empty() && layouts.size() <= 120)
            proof.enumerate(layouts);
          for (size_t k = 0; k < perProof; ++k) {
            Layout pair[2];
            size_t index[2] = {0, 0};
            for (int side = 0; side < 2; ++side) {
              if (!layouts.empty()) {
                index[side] = random() % layouts.size();
                pair[side] = layouts[index[side]];
                continue;
              }
              pair[side] = Layout(rank);
              for (unsigned axis = 0; axis < sizes.size(); ++axis) {
                unsigned place = random() % (rank + 2);
                if (place < rank) {
                  Axes &dim = pair[side].dims[place];
                  dim.insert(dim.begin() + random() % (dim.size() + 1), axis);
                } else if (place == rank) {
                  pair[side].partial |= AxisSet(1) << axis;
                }
              }
            }
            if (pair[0] != pair[1])
              groups.run(proof, pair[0], pair[1], index[0], index[1]);
          }
        }
    }
  }
  groups.print();
  groups.expect();
}

/// Reshards of partial maxima and minima, including changes of the kind of
/// reduction.
TEST(Reshard, OtherReductions) {
  TestContext test;
  std::mt19937 random(3);
  const ReduceKind kinds[] = {ReduceKind::Sum, ReduceKind::Max,
                              ReduceKind::Min};
  for (const std::vector<int64_t> &sizes : std::vector<std::vector<int64_t>>{
           {3}, {2, 2}, {2, 3}, {2, 2, 2}, {4, 2, 3}}) {
    MeshAxes mesh = makeMesh(test.context, sizes);
    for (unsigned rank = 1; rank <= 2; ++rank) {
      std::vector<Layout> layouts = layoutsOf(mesh, rank, SIZE_MAX);
      SmallVector<int64_t> shape =
          sizesOf(Sizes::Uneven, mesh.mesh().getNumRanks(), rank, random);
      ReshardPlanner planner(mesh, cost::LinkModel(mesh, LinkClass()));
      for (int k = 0; k < 150; ++k) {
        Layout from = layouts[random() % layouts.size()],
               to = layouts[random() % layouts.size()];
        if (from.partial)
          from.kind = kinds[random() % 3];
        if (to.partial)
          to.kind = kinds[random() % 3];
        auto text = [&](const Layout &layout) {
          std::string text;
          llvm::raw_string_ostream(text) << mesh.sharding(layout);
          return text;
        };
        ReshardSimulator simulator(mesh, shape);
        simulator.fill(from);
        for (const Move &move : planner.plan(shape, 4, from, to))
          simulator.run(move);
        EXPECT_TRUE(simulator.holds(to)) << text(from) << " to " << text(to);
      }
    }
  }
}

} // namespace
