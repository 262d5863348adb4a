//===- ReshardCost.h - the costs of the moves of a reshard ------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_RESHARD_RESHARDCOST_H
#define CLEAVE_LIB_PARTITION_RESHARD_RESHARDCOST_H

#include "cleave/Partition/Reshard/Reshard.h"

namespace cleave::partition {

/// The numbers of elements that an exchange over `axes` moves, summed over its
/// one or two rounds. `mostReceived` and `mostSent` are maxima over ranks.
/// ExchangeEstimate.cpp says which numbers are exact. If several ranks hold the
/// same tile, an exact count of the senders takes half of the time of the
/// estimate. The senders are counted only if the callback `counts`, which gets
/// the estimate so far, returns true.
struct ExchangeEstimate {
  double mostReceived = 0, mostSent = 0;
  double received = 0;              // mean over all ranks
  int64_t peers = 0, copyPeers = 0; // of the busiest receiver
};
ExchangeEstimate estimateExchange(
    const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape,
    const dist::Layout &from, const dist::Layout &to, dist::AxisSet axes,
    int64_t rounds = 1,
    llvm::function_ref<bool(const ExchangeEstimate &)> counts = {});

/// A callback for the parameter `counts` of estimateExchange that always
/// returns false, so that the exact count of senders is skipped. It is for
/// callers that need only the numbers of received elements.
inline bool uncounted(const ExchangeEstimate &) { return false; }

/// The cost of a plan is its modelled time, plus this weight times the time for
/// the elements that a rank receives on average, over the fastest links. The
/// weight is small, so it decides mainly between plans that take equally long.
constexpr double kMeanWeight = 0.1;

/// The seconds that a move takes, and the number of elements that a rank
/// receives on average, padding included. If a move takes longer than `enough`
/// seconds, the search needs no exact time: `seconds` may then be any number
/// between `enough` and the actual time.
struct MoveCost {
  double seconds = 0, received = 0;
};
MoveCost costOf(const dist::MeshAxes &mesh, const cost::LinkModel &model,
                llvm::ArrayRef<int64_t> shape, int64_t elementBytes,
                const dist::Layout &at, const Move &move,
                double enough = INFINITY);

/// Returns the moves of a reshard, planned without a search.
llvm::SmallVector<Move> planPlainly(const dist::MeshAxes &mesh,
                                    llvm::ArrayRef<int64_t> shape,
                                    const dist::Layout &from,
                                    const dist::Layout &to);

} // namespace cleave::partition

#endif
