//===- ReshardCost.h - what the moves of a reshard cost ---------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_RESHARD_RESHARDCOST_H
#define CLEAVE_LIB_PARTITION_RESHARD_RESHARDCOST_H

#include "cleave/Partition/Reshard/Reshard.h"

namespace cleave::partition {

/// Elements that an exchange over `axes` moves; of them a rank receives and
/// sends at most, in all rounds. What is exact, ExchangeEstimate.cpp says.
/// Senders of tiles that several ranks share are counted where `counts` of what
/// is known without is true; else there may be more. That takes half of the
/// time.
struct ExchangeEstimate {
  double mostReceived = 0, mostSent = 0;
  double received = 0;              // mean over all ranks
  int64_t peers = 0, copyPeers = 0; // that the busiest receiver has
};
ExchangeEstimate estimateExchange(
    const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape,
    const dist::Layout &from, const dist::Layout &to, dist::AxisSet axes,
    int64_t rounds = 1,
    llvm::function_ref<bool(const ExchangeEstimate &)> counts = {});

/// For those who ask only what is received.
inline bool uncounted(const ExchangeEstimate &) { return false; }

/// What a rank receives on average counts a little, too: of plans that take
/// equally long the one is better that moves less.
constexpr double kMeanWeight = 0.1;

/// The time of a move, and the mean of the elements that a rank receives in it,
/// padding included. Of a move that takes longer than `enough` seconds the time
/// may be told as less, but not below `enough`.
struct MoveCost {
  double seconds = 0, received = 0;
};
MoveCost costOf(const dist::MeshAxes &mesh, const cost::LinkModel &model,
                llvm::ArrayRef<int64_t> shape, int64_t elementBytes,
                const dist::Layout &at, const Move &move,
                double enough = INFINITY);

/// The moves that need no search.
llvm::SmallVector<Move> planPlainly(const dist::MeshAxes &mesh,
                                    llvm::ArrayRef<int64_t> shape,
                                    const dist::Layout &from,
                                    const dist::Layout &to);

} // namespace cleave::partition

#endif
