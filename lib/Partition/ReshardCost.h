//===- ReshardCost.h - what the moves of a reshard cost ---------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_RESHARDCOST_H
#define CLEAVE_LIB_PARTITION_RESHARDCOST_H

#include "cleave/Partition/Reshard.h"

namespace cleave::partition {

/// Elements that an exchange moves.
struct ExchangeEstimate {
  double mostReceived = 0, mostSent = 0; // of one rank
  double received = 0;                   // mean over all ranks
  int64_t peers = 0;                     // that the busiest receiver has
};
ExchangeEstimate estimateExchange(const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape,
                                  const dist::Layout &from, const dist::Layout &to);

/// The time of a move, and the mean of the elements that a rank receives in it,
/// padding included.
struct MoveCost {
  double seconds = 0, received = 0;
};
MoveCost costOf(const dist::MeshAxes &mesh, const cost::LinkModel &model,
                llvm::ArrayRef<int64_t> shape, int64_t elementBytes, const dist::Layout &at,
                const Move &move);

/// The moves that need no search.
llvm::SmallVector<Move> planPlainly(const dist::MeshAxes &mesh, llvm::ArrayRef<int64_t> shape,
                                    const dist::Layout &from, const dist::Layout &to);

} // namespace cleave::partition

#endif
