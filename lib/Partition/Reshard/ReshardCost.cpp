//===- ReshardCost.cpp - the costs of the moves of a reshard --------------===//

#include "ReshardCost.h"
#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

MoveCost cleave::partition::costOf(const MeshAxes &mesh,
                                   const cost::LinkModel &model,
                                   ArrayRef<int64_t> shape,
                                   int64_t elementBytes, const Layout &at,
                                   const Move &move, double enough) {
  auto elements = [&](const Layout &layout) {
    double count = 1;
    for (int64_t extent : mesh.tile(layout, shape))
      count *= extent;
    return count;
  };
  int64_t n = mesh.size(move.axes);
  AxisSet group = setOf(move.axes);
  double width = elementBytes;
  switch (move.kind) {
  case Move::AllReduce: {
    // An all-reduce splits the tile into chunks of whole elements, so the first
    // rank has a full chunk even if the elements do not divide evenly.
    double tile = elements(at), chunk = std::ceil(tile / n);
    double padded = n > 1 ? (tile + (n - 2) * chunk) * n / (2 * (n - 1)) : tile;
    return {model.allReduce(group, width * padded), 2 * (n - 1) * tile / n};
  }
  case Move::ReduceScatter: {
    double tile = elements(move.after);
    return {model.reduceScatter(group, width * tile * n), (n - 1) * tile};
  }
  case Move::AllGather: {
    double tile = elements(at);
    return {model.allGather(group, width * tile * n), (n - 1) * tile};
  }
  case Move::AllToAll: {
    // Before an all-to-all, the dimension that it splits is padded to equal
    // tiles.
    double tile = 1;
    for (auto [dim, extent] : llvm::enumerate(mesh.tile(at, shape)))
      tile *= int64_t(dim) == move.dim ? n * mesh.tile(move.after, shape)[dim]
                                       : extent;
    return {model.allToAll(group, width * tile), (n - 1) * tile / n};
  }
  case Move::Permute: {
    double tile = elements(at);
    bool even = true;
    for (auto [extent, axes] : llvm::zip_equal(shape, at.dims))
      even &= extent % mesh.size(axes) == 0;
    // Padding is moved as well.
    double received = even ? estimateExchange(mesh, shape, at, move.after,
                                              group, 1, uncounted)
                                 .received
                           : tile;
    return {model.permute(group, width * tile), received};
  }
  case Move::Exchange: {
    // Ranks that hold the same elements each send an equal share of what the
    // receivers need.
    auto seconds = [&](const ExchangeEstimate &moved) {
      return model.exchange(group, width * moved.mostReceived, moved.peers) +
             model.exchange(group, 0, moved.copyPeers);
    };
    ExchangeEstimate moved = estimateExchange(
        mesh, shape, at, move.after, group, move.rounds,
        [&](const ExchangeEstimate &known) { return seconds(known) < enough; });
    return {seconds(moved), moved.received};
  }
  case Move::KeepFirst:
  case Move::Slice:
  case Move::Embed:
    return {};
  }
  llvm_unreachable("unknown move");
}
