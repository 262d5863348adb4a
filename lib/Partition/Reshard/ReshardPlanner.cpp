//===- ReshardPlanner.cpp - finds the moves of a reshard ------------------===//

#include "ReshardSearch.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// If the tensor has few possible layouts and the search's plan is poor, all
/// plans are tried. A plan is poor if its cost exceeds the lower bound by more
/// than the share `kFar`, or if ranks receive more than `kMostReceived` times
/// the lower bound of received elements.
constexpr double kFar = 0.04, kMostReceived = 1.2501;
constexpr size_t kMostRanksTimesLayouts = 6000;
/// The largest number of layouts that a search visits.
constexpr unsigned kMaxVisits = 160;
/// Latency is negligible in a plan if it takes at most this share of the plan's
/// time.
constexpr double kHardlyLatency = 0.05;

} // namespace

ReshardPlanner::ReshardPlanner(const MeshAxes &mesh, cost::LinkModel model,
                               ReshardOptions options)
    : mesh(mesh), model(std::move(model)), options(options) {}

ArrayRef<Move> ReshardPlanner::plan(ArrayRef<int64_t> shape,
                                    int64_t elementBytes, const Layout &from,
                                    const Layout &to) {
  if (from == to)
    return {};
  std::string key(reinterpret_cast<const char *>(shape.data()),
                  shape.size() * sizeof(int64_t));
  key.push_back(char(elementBytes));
  key += keyOf(from);
  key += keyOf(to);
  auto [at, isNew] = known.try_emplace(key);
  if (!isNew)
    return at->second;
  double largest = options.largerTiles
                       ? INFINITY
                       : std::max(llvm::product_of(mesh.tile(from, shape)),
                                  llvm::product_of(mesh.tile(to, shape)));
  bool mayReplicate = options.largerTiles || !from.split() || !to.split();
  ReshardProblem problem = {mesh, model, shape,   elementBytes,
                            from, to,    largest, mayReplicate};
  // If the tensor has few possible layouts, all plans are tried later in case
  // the A* search finds only a poor one. So the search may visit fewer layouts.
  ArrayRef<Layout> few = fewLayouts(problem);
  unsigned maxVisits = few.empty() ? kMaxVisits : kMaxVisits / 8;
  AxisSet common = from.kind == to.kind ? from.partial & to.partial : 0;
  double cost = INFINITY, fastest = INFINITY, least = INFINITY,
         leastReceived = INFINITY;
  SmallVector<Move> best;
  auto search = [&](double mostReceived) {
    // Source and target are both partial over the axes `common`. The first
    // search keeps the value partial over them. The second search reduces the
    // value over these axes and creates partial sums again at the end, which
    // may be cheaper.
    for (bool summing : {false, true}) {
      if (summing && !common)
        break;
      FoundPlan plan =
          searchPlan(problem, options,
                     {summing ? 0 : common, summing, maxVisits, mostReceived});
      least = std::min(least, plan.leastCost);
      leastReceived = std::min(leastReceived, plan.leastReceived);
      fastest = std::min(fastest, plan.fastestCost);
      if (plan.cost >= cost * (1 - kGain))
        continue;
      best = std::move(plan.moves);
      cost = plan.cost;
    }
  };
  search(INFINITY);
  if (!options.plain) {
    // If bytes dominate the time, received elements also delay other transfers,
    // so their number is limited.
    ReshardProblem nothing = problem;
    nothing.elementBytes = 0;
    MoveCost found = problem.measure(best);
    double most = INFINITY;
    if (nothing.measure(best).seconds <= kHardlyLatency * found.seconds)
      most = kMostReceived * leastReceived;
    bool tooMuch = found.received > most;
    if (tooMuch) {
      cost = fastest = INFINITY;
      SmallVector<Move> unlimited = std::move(best);
      search(most);
      if (cost == INFINITY)
        best = std::move(unlimited);
    }
    if (tooMuch || fastest > least * (1 + kFar))
      if (auto better =
              cheapestOfAll(problem, few, fastest * (1 - kGain), most))
        best = std::move(*better);
  }
  at->second = std::move(best);
  return at->second;
}

/// Returns all layouts of the tensor if there are few, and if partial results
/// are sums; otherwise an empty list.
ArrayRef<Layout> ReshardPlanner::fewLayouts(const ReshardProblem &problem) {
  for (const Layout *layout : {&problem.from, &problem.to})
    if (options.plain || (layout->partial && layout->kind != ReduceKind::Sum))
      return {};
  size_t rank = problem.shape.size();
  auto [known, isNew] = layouts.try_emplace(rank);
  if (isNew)
    known->second = layoutsOf(
        mesh, rank, kMostRanksTimesLayouts / mesh.mesh().getNumRanks());
  return known->second;
}

double ReshardPlanner::seconds(ArrayRef<int64_t> shape, int64_t elementBytes,
                               const Layout &from, ArrayRef<Move> moves) const {
  double total = 0;
  Layout at = from;
  for (const Move &move : moves) {
    total += costOf(mesh, model, shape, elementBytes, at, move).seconds;
    at = move.after;
  }
  return total;
}
