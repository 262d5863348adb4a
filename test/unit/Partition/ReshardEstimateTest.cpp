// Compares the planner's estimate of an exchange with the rectangular ranges of
// elements (boxes) that the real exchange sends, for all pairs of layouts on
// small meshes and all exchanges that the planner considers between two
// layouts.

#include "Context.h"

#include "../../../lib/Partition/Reshard/ReshardCost.h"
#include "../../../lib/Partition/Reshard/ReshardExhaustive.h"

#include "cleave/Dialect/Dist/IR/Exchange.h"

#include "gtest/gtest.h"

#include <numeric>
#include <set>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// Counts of a real exchange: the most elements that a rank sends and receives,
/// and the most peers of a rank.
struct Counted {
  int64_t mostReceived = 0, mostSent = 0, received = 0;
  int64_t peers = 0, copyPeers = 0;
};

Counted count(const MeshAxes &mesh, ArrayRef<int64_t> shape, const Layout &from,
              const Layout &to, AxisSet axes, int64_t rounds) {
  AxisListAttr list = mesh.list(axes);
  program::Exchange exchange =
      describeExchange(mesh.mesh(), list.getAxes(), mesh.sharding(from),
                       mesh.sharding(to), shape, rounds);
  Counted counted;
  for (ArrayRef<int64_t> group : allGroups(mesh.mesh(), list.getAxes())) {
    std::vector<int64_t> sent(group.size()), received(group.size());
    std::vector<std::set<int32_t>> peers[2] = {
        std::vector<std::set<int32_t>>(group.size()),
        std::vector<std::set<int32_t>>(group.size())};
    for (const program::ExchangePiece &piece :
         planExchange(mesh.mesh(), exchange, group).pieces())
      for (int32_t sender : piece.senders)
        if (sender != piece.receiver) {
          sent[sender] += piece.count();
          received[piece.receiver] += piece.count();
          peers[piece.round][piece.receiver].insert(sender);
        }
    for (size_t i = 0; i < group.size(); ++i) {
      counted.mostSent = std::max(counted.mostSent, sent[i]);
      counted.mostReceived = std::max(counted.mostReceived, received[i]);
      counted.received += received[i];
      counted.peers = std::max<int64_t>(counted.peers, peers[0][i].size());
      counted.copyPeers =
          std::max<int64_t>(counted.copyPeers, peers[1][i].size());
    }
  }
  return counted;
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

/// Returns the exchanges that the planner considers from one layout to another,
/// as pairs of the mesh axes and the number of message rounds.
std::set<std::pair<AxisSet, int64_t>> exchangesOf(const MeshAxes &mesh,
                                                  ArrayRef<int64_t> shape,
                                                  const Layout &from,
                                                  const Layout &to) {
  AxisSet axes = mesh.exchangeAxes(shape, from, to),
          common = from.partial & to.partial;
  AxisSet unused = mesh.everyAxis() & ~(from.used() | to.used());
  std::set<std::pair<AxisSet, int64_t>> all = {{axes, 1}, {axes | common, 1}};
  if (from.partial & ~to.partial)
    all.insert({{axes, 2}, {axes | unused, 2}});
  if (common)
    all.insert({{axes | common, 2}, {axes | common | unused, 2}});
  all.erase({0, 1});
  return all;
}

/// By how much the estimates differ from the real exchanges of one kind.
struct Differences {
  int64_t cases = 0, peers = 0, worstPeers = 0;
  double worstReceived = 0, worstSent = 0;
};

TEST(ReshardEstimate, IsWhatThePlanDoes) {
  TestContext test;
  const std::vector<std::vector<int64_t>> meshes = {
      {2}, {3}, {4}, {6}, {2, 2}, {2, 3}, {2, 4}, {3, 2}, {2, 2, 2}};
  // kinds[0] and kinds[1] are for exchanges with one round of messages,
  // kinds[2] and kinds[3] for exchanges with two rounds. In the exchanges of
  // kinds[1] and kinds[3], the result consists of partial sums.
  Differences kinds[4];
  for (const std::vector<int64_t> &sizes : meshes) {
    MeshAxes mesh = makeMesh(test.context, sizes);
    for (unsigned rank = 1; rank <= (sizes.size() < 3 ? 2 : 1); ++rank)
      for (SmallVector<int64_t> shape :
           {SmallVector<int64_t>{24, 8}, {13, 5}, {3, 2}, {96, 5}}) {
        shape.resize(rank);
        std::vector<Layout> layouts = layoutsOf(mesh, rank, SIZE_MAX);
        for (const Layout &from : layouts)
          for (const Layout &to : layouts)
            for (auto [axes, rounds] : exchangesOf(mesh, shape, from, to)) {
              Counted real = count(mesh, shape, from, to, axes, rounds);
              ExchangeEstimate estimate =
                  estimateExchange(mesh, shape, from, to, axes, rounds);
              std::string text;
              llvm::raw_string_ostream out(text);
              out << mesh.mesh() << " [";
              llvm::interleaveComma(shape, out);
              out << "] " << mesh.sharding(from) << " to " << mesh.sharding(to)
                  << " over " << mesh.list(axes) << ", rounds: " << rounds;
              bool makes = (to.partial & axes) != 0;
              EXPECT_NEAR(estimate.received * mesh.mesh().getNumRanks(),
                          real.received, 1e-6)
                  << text;
              if (rounds == 1 && !makes) {
                EXPECT_EQ(estimate.peers, real.peers) << text;
                EXPECT_EQ(estimate.mostReceived, real.mostReceived) << text;
                EXPECT_EQ(estimate.mostSent, real.mostSent) << text;
              }
              if (rounds == 1) {
                EXPECT_EQ(estimate.copyPeers, 0);
                EXPECT_EQ(real.copyPeers, 0);
              }
              Differences &kind = kinds[2 * (rounds - 1) + makes];
              int64_t peers = std::abs(estimate.peers - real.peers) +
                              std::abs(estimate.copyPeers - real.copyPeers);
              auto note = [&](double &worst, double a, double b) {
                worst = std::max(worst, std::abs(a - b));
              };
              ++kind.cases;
              kind.peers += peers != 0;
              kind.worstPeers = std::max(kind.worstPeers, peers);
              note(kind.worstReceived, estimate.mostReceived,
                   real.mostReceived);
              note(kind.worstSent, estimate.mostSent, real.mostSent);
            }
      }
  }
  for (const Differences &kind : kinds) {
    std::printf("%ld exchanges, other numbers of senders: %ld, by %ld at most; "
                "received by %g, sent by %g elements\n",
                long(kind.cases), long(kind.peers), long(kind.worstPeers),
                kind.worstReceived, kind.worstSent);
    // The estimates are not exact, because elements cannot be divided and the
    // ranges of elements that are sent are cut between rows.
    EXPECT_LE(kind.worstReceived, 2);
    EXPECT_LE(kind.worstSent, 3);
    EXPECT_LE(kind.worstPeers, 3);
    EXPECT_LE(kind.peers, 0.11 * kind.cases);
  }
}

/// Each source tile is held by two ranks. The two ranks share the work of
/// sending it to three other ranks that need it, so one of the three receives
/// from both. Each rank needs two source tiles.
TEST(ReshardEstimate, SendersThatHoldTheSame) {
  TestContext test;
  MeshAxes mesh = makeMesh(test.context, {2, 4});
  Layout from(1), to(1);
  from.dims[0] = {1};
  to.dims[0] = {0};
  EXPECT_EQ(count(mesh, {24}, from, to, 3, 1).peers, 4);
  EXPECT_EQ(estimateExchange(mesh, {24}, from, to, 3).peers, 4);
}

/// In large groups, the number of senders is estimated from mean values. The
/// ranges of elements that are sent are not visited one by one.
TEST(ReshardEstimate, SendersInLargeGroups) {
  TestContext test;
  MeshAxes mesh = makeMesh(test.context, {32, 32});
  Layout from(2), to(2);
  from.dims[0] = {0};
  to.dims[1] = {1};
  Counted real = count(mesh, {330, 345}, from, to, 3, 1);
  ExchangeEstimate estimate = estimateExchange(mesh, {330, 345}, from, to, 3);
  EXPECT_EQ(estimate.mostReceived, real.mostReceived);
  EXPECT_LE(estimate.peers, 2 * real.peers);
  EXPECT_GE(2 * estimate.peers, real.peers);
}

/// Tests an exchange in a group of 3,072 members. The ranges of elements that a
/// member receives make up its tile. The numbers of elements that
/// forTransfers() computes without these ranges equal the sums over the ranges.
TEST(ExchangePlan, LargeGroups) {
  TestContext test;
  MeshAxes mesh = makeMesh(test.context, {384, 8});
  const SmallVector<int64_t> shape = {12289, 3};
  const Axes data = {0}, model = {1}, both = {0, 1}, none;
  struct Case {
    Axes from, to;
    AxisSet partial, toPartial;
    int64_t rounds;
  };
  const Case cases[] = {{data, model, 0, 0, 1}, {both, model, 0, 0, 1},
                        {data, none, 0, 1, 1},  {both, model, 0, 1, 1},
                        {model, data, 1, 2, 1}, {model, data, 1, 0, 2},
                        {none, model, 1, 0, 2}};
  for (const Case &one : cases) {
    Layout from(2), to(2);
    from.dims[0] = one.from;
    to.dims[0] = one.to;
    from.partial = one.partial;
    to.partial = one.toPartial;
    program::Exchange exchange = describeExchange(
        mesh.mesh(), mesh.list(3).getAxes(), mesh.sharding(from),
        mesh.sharding(to), shape, one.rounds);
    SmallVector<int64_t> group =
        allGroups(mesh.mesh(), mesh.list(3).getAxes())[0];
    program::ExchangePlan plan = planExchange(mesh.mesh(), exchange, group);
    ASSERT_TRUE(plan.complete());
    std::vector<int64_t> sent(group.size()), received(group.size());
    plan.forTransfers(
        [&](int32_t sender, int32_t receiver, int, int64_t elements) {
          EXPECT_NE(sender, receiver);
          sent[sender] += elements;
          received[receiver] += elements;
        });
    ExchangeEstimate estimate =
        estimateExchange(mesh, shape, from, to, 3, one.rounds);
    EXPECT_NEAR(estimate.received * group.size(),
                std::accumulate(received.begin(), received.end(), 0.0), 0.5);
    SmallVector<int64_t> tile = mesh.tile(to, shape);
    for (int32_t self : {0, 7, 1000, 3071}) {
      int64_t place = 0, sends = 0, receives = 0;
      for (Axis axis : one.to)
        place =
            place * mesh.size(axis) + rankCoordinates(mesh.mesh(), self)[axis];
      std::vector<int> written(tile[0] * tile[1]);
      for (const program::ExchangePiece &piece : plan.pieces(self)) {
        for (int32_t sender : piece.senders) {
          sends += sender == self && piece.receiver != self ? piece.count() : 0;
          receives +=
              sender != self && piece.receiver == self ? piece.count() : 0;
        }
        if (piece.receiver == self)
          for (int64_t i = 0; i < piece.sizes[0]; ++i)
            for (int64_t j = 0; j < piece.sizes[1]; ++j)
              ++written[(piece.dstAt[0] + i) * tile[1] + piece.dstAt[1] + j];
      }
      EXPECT_EQ(sends, sent[self]);
      EXPECT_EQ(receives, received[self]);
      int64_t rows =
          std::clamp<int64_t>(shape[0] - place * tile[0], 0, tile[0]);
      for (int64_t i = 0; i < tile[0]; ++i)
        for (int64_t j = 0; j < tile[1]; ++j)
          ASSERT_EQ(written[i * tile[1] + j], i < rows) << i << ", " << j;
    }
  }
}

} // namespace
