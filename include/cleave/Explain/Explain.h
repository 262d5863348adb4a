// The numbers of `cleave explain`: memory, communication, kernels.

#ifndef CLEAVE_EXPLAIN_EXPLAIN_H
#define CLEAVE_EXPLAIN_EXPLAIN_H

#include "cleave/Config/Cluster.h"
#include "cleave/Memory/Footprint.h"
#include "cleave/program.h"

#include "llvm/Support/raw_ostream.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// Equal collectives of one step, counted.
struct CollectiveCost {
  std::string kind, purpose, source, dtype, link;
  std::vector<std::string> axes;
  int64_t groupSize = 1, count = 0;
  int64_t payloadBytes = 0, sentBytes = 0, receivedBytes = 0, paddingBytes = 0;
  double exposedMs = 0;

  bool operator==(const CollectiveCost &) const = default;
};

/// The costs of a rank, and of others with equal costs.
struct RankCost {
  std::vector<int64_t> members;
  int64_t flops = 0, attentionFlops = 0;
  std::vector<CollectiveCost> collectives;
  /// Its class of ranks, an index into Explanation::memory.
  int64_t rankClass = 0;
};

/// The costs of a schedule. Every action F, I and W takes equally long unless
/// said otherwise.
struct PipelineCost {
  int64_t stages = 1;
  std::string schedule = "none", axis;
  /// Idle over the total span, and over the time that a rank is busy.
  double bubbleFraction = 0, bubbleOfIdeal = 0;
  /// Idle over the total span if the time of actions is proportional to their
  /// FLOPs: stages may be of different size.
  double bubbleByFlops = 0;
  /// The share of the total span that consecutive steps would save if the
  /// gradient norm did not synchronise all ranks at the end of each step.
  double normFraction = 0;
  /// By index on the pipeline axis: most activations of a stage and microbatch
  /// held at once, from F to the end of W; and the stages.
  std::vector<int64_t> peakInFlight = {1};
  std::vector<std::vector<int>> stagesOfRank;
};

/// The load of a router and its experts on a rank in a microbatch.
struct ExpertLoad {
  std::string router;
  int64_t experts = 0, slotsPerToken = 1;
  /// Ranks that share the experts, and the most experts of a rank.
  int64_t ranks = 1, expertsPerRank = 0;
  /// Slots of a rank's tokens; with even loads, as many slots choose its
  /// experts.
  int64_t slots = 0;
  /// If tokens are dispatched: the slots that a buffer has for one other rank,
  /// and the rounds that suffice for any routing; 0: nothing is sent.
  int64_t places = 0, rounds = 0;
  /// The most slots that an expert accepts of `capacityOf` slots; 0: all.
  int64_t capacity = 0, capacityOf = 0;

  /// Rows that a rank sends to others with even loads, the most that it sends
  /// with any routing, and the most that it receives.
  int64_t rowsSent() const { return slots / ranks * (ranks - 1); }
  int64_t mostRowsSent() const { return places ? slots : 0; }
  int64_t mostRowsReceived() const { return places ? slots * (ranks - 1) : 0; }
  /// The slots of `capacityOf` that are dropped if all tokens choose the same
  /// experts.
  int64_t mostDropped() const;
};

struct Explanation {
  std::vector<std::pair<std::string, int64_t>> mesh;
  int64_t ranks = 1;
  int64_t batch = 0, perRankMicrobatch = 0, microbatches = 1, sequence = 0;
  /// By class of ranks: one, or of a pipeline one for each index on its axis.
  std::vector<Footprint> memory;
  std::optional<PipelineCost> pipeline;
  /// One entry for each rank; of many ranks, one for each class of equal ones.
  std::vector<RankCost> perRank;
  /// Launches in one step by kernel, and calls of libraries, most frequent
  /// first: of a rank, or of a pipeline's ranks together.
  std::vector<std::pair<std::string, int64_t>> kernels, libraryCalls;
  std::vector<ExpertLoad> experts; ///< by router, in the order of the model
  /// Modelled seconds of a step of a rank with overlapped collectives: compute,
  /// communication, and the exposed part of communication.
  struct Overlap {
    double compute = 0, communication = 0, exposed = 0;
    /// For a pipeline, from a simulation of its schedule: the part of
    /// communication that is messages from other stages, the exposed part of
    /// these, and the time that the rank waits for others to compute.
    double messages = 0, messagesExposed = 0, idle = 0;
  };
  /// By class of ranks; empty where nothing is known.
  std::vector<Overlap> overlap;
  std::string cluster; ///< the times that were used
  std::vector<std::string> remarks;
};

/// Bytes that a member of a group sends and receives in one collective.
struct Traffic {
  int64_t sent = 0, received = 0, payload = 0;
};
Traffic trafficOf(const program::Collective &collective, int64_t groupSize,
                  int64_t member);
/// The traffic of an exchange, by rank: its members send and receive different
/// amounts.
std::vector<Traffic> exchangeTraffic(const program::Program &program,
                                     const program::Collective &collective);
/// The traffic of dispatched rows with balanced routing.
Traffic rowTraffic(const program::Program &program,
                   const program::Collective &collective, int64_t rank);

/// The expert loads of a training program, by router.
std::vector<ExpertLoad> expertLoadsOf(const program::Program &program,
                                      mlir::ModuleOp module);

/// The memory footprint of each class of ranks.
mlir::FailureOr<std::vector<Footprint>>
footprintsOf(const program::Program &program, mlir::ModuleOp module,
             const Booking &booking = {});

/// Counts one step: `loss_grad` once for each microbatch, then `update`; of a
/// program without them, each action once. In a pipeline `loss_grad` is all
/// microbatches. `module` is the one that the program was emitted from; it has
/// the padding and the schedule. `cluster` has the links.
mlir::FailureOr<Explanation> explain(const program::Program &program,
                                     mlir::ModuleOp module,
                                     std::vector<Footprint> memory,
                                     int64_t microbatches,
                                     const Cluster &cluster = Cluster());

/// Counts sums of gradients in `reduceDtype` instead of f32, the type of the
/// program.
void bookCollectives(Explanation &explanation, llvm::StringRef reduceDtype);

void writeExplanation(const Explanation &explanation, llvm::raw_ostream &out);
void writeExplanationJson(const Explanation &explanation,
                          llvm::raw_ostream &out);

} // namespace cleave

#endif
