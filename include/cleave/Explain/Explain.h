// Computes what `cleave explain` prints: memory, communication and kernels.

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

/// All collectives of a step that agree in kind, purpose, source, element type,
/// link class and mesh axes. `count` is their number, and the bytes and the
/// exposed time are their sums. `source` is the node of the model that computes
/// the sent value, or the name of the sent gradient or parameter.
struct CollectiveCost {
  std::string kind, purpose, source, dtype, link;
  std::vector<std::string> axes;
  int64_t groupSize = 1, count = 0;
  int64_t payloadBytes = 0, sentBytes = 0, receivedBytes = 0, paddingBytes = 0;
  double exposedMs = 0;

  bool operator==(const CollectiveCost &) const = default;
};

/// The costs of one step on a rank, or on several ranks with equal costs.
struct RankCost {
  std::vector<int64_t> members;
  int64_t flops = 0, attentionFlops = 0;
  std::vector<CollectiveCost> collectives;
  /// The index of the rank's memory footprint in Explanation::memory.
  int64_t rankClass = 0;
};

/// The costs of a pipeline schedule. Unless stated otherwise, all passes (F:
/// forward, I: input gradient, W: weight gradient) of all stages take equally
/// long.
struct PipelineCost {
  int64_t stages = 1;
  std::string schedule = "none", axis;
  /// The idle time of ranks as a fraction of the time of a step, and as a
  /// fraction of their busy time.
  double bubbleFraction = 0, bubbleOfIdeal = 0;
  /// Like `bubbleFraction`, but the time of each forward or backward pass is
  /// proportional to its FLOPs, so that stages of different sizes take
  /// different times.
  double bubbleByFlops = 0;
  /// The fraction of the time of a step that consecutive steps would save if
  /// the gradient norm did not synchronize all ranks at the end of each step.
  double normFraction = 0;
  /// For each index on the pipeline axis: the most activations that a rank with
  /// this index holds at once, in units of the activations of one stage for one
  /// microbatch. These activations are held from F to the end of W.
  std::vector<int64_t> peakInFlight = {1};
  /// For each index on the pipeline axis: the stages that the ranks with this
  /// index hold.
  std::vector<std::vector<int>> stagesOfRank;
};

/// The load that one router of a mixture-of-experts layer causes on a rank in
/// one microbatch: how many token-expert pairs the rank's experts process, and
/// how many rows (one for each pair) the rank sends and receives.
struct ExpertLoad {
  std::string router;
  int64_t experts = 0, slotsPerToken = 1;
  /// The number of ranks over which the experts are sharded, and the largest
  /// number of experts on one rank.
  int64_t ranks = 1, expertsPerRank = 0;
  /// The number of token-expert pairs of a rank, also called slots: a pair
  /// consists of one of the rank's tokens and an expert that the token chose.
  /// With balanced routing, the experts of each rank also process this many
  /// pairs in total.
  int64_t slots = 0;
  /// If tokens are sent to the ranks of their experts: `places` is the number
  /// of rows that a rank's receive buffer has for each sending rank, and
  /// `rounds` is the number of consecutive exchanges with this buffer that
  /// suffice for any routing. Both are 0 if nothing is sent.
  int64_t places = 0, rounds = 0;
  /// The capacity of an expert: one sample (or one microbatch) has `capacityOf`
  /// token-expert pairs in total, and each expert accepts at most `capacity` of
  /// them. If there is no limit, `capacity` is 0.
  int64_t capacity = 0, capacityOf = 0;

  /// Return the number of rows that a rank sends to other ranks with balanced
  /// routing, the most rows that it sends with any routing, and the most rows
  /// that it receives with any routing.
  int64_t rowsSent() const { return slots / ranks * (ranks - 1); }
  int64_t mostRowsSent() const { return places ? slots : 0; }
  int64_t mostRowsReceived() const { return places ? slots * (ranks - 1) : 0; }
  /// Returns how many of the `capacityOf` token-expert pairs of a sample (or of
  /// a microbatch) are dropped in the worst case, in which all tokens choose
  /// the same experts.
  int64_t mostDropped() const;
};

struct Explanation {
  std::vector<std::pair<std::string, int64_t>> mesh;
  int64_t ranks = 1;
  int64_t batch = 0, perRankMicrobatch = 0, microbatches = 1, sequence = 0;
  /// The memory footprint of each group of ranks that run identical commands.
  /// In a pipeline, these are the ranks with the same index on the pipeline
  /// axis; in other programs, all ranks are one group.
  std::vector<Footprint> memory;
  std::optional<PipelineCost> pipeline;
  /// One entry for each rank or, if there are many ranks, for each group of
  /// ranks with equal costs.
  std::vector<RankCost> perRank;
  /// The number of launches of each kernel and of calls of each library
  /// function in one step, most frequent first. In a pipeline, these are sums
  /// over the pipeline's ranks.
  std::vector<std::pair<std::string, int64_t>> kernels, libraryCalls;
  std::vector<ExpertLoad> experts; ///< one for each router, in model order
  /// Modelled times of a step on a rank, in seconds. `exposed` is the part of
  /// `communication` that computation does not hide.
  struct Overlap {
    double compute = 0, communication = 0, exposed = 0;
    /// For a pipeline, from a simulation of its schedule; 0 in other programs.
    /// `messages` is the part of `communication` for messages from other
    /// stages, and `messagesExposed` is the exposed part of `messages`. `idle`
    /// is the time for which the rank waits for computation on other ranks.
    double messages = 0, messagesExposed = 0, idle = 0;
  };
  /// The modelled times of a step for each group of ranks in `memory`; empty if
  /// the pass rt-overlap, which models the times of actions, did not run.
  std::vector<Overlap> overlap;
  std::string cluster; ///< name of the cluster whose speeds the model used
  std::vector<std::string> remarks;
};

/// The bytes that one rank sends and receives in a collective. `payload` is the
/// size of the rank's operand or result, whichever is larger; for rows that are
/// sent to experts, the size of the rank's rows.
struct Traffic {
  int64_t sent = 0, received = 0, payload = 0;
};
Traffic trafficOf(const program::Collective &collective, int64_t groupSize,
                  int64_t member);
/// Returns the traffic of an exchange for each rank, because the ranks of an
/// exchange send and receive different amounts.
std::vector<Traffic> exchangeTraffic(const program::Program &program,
                                     const program::Collective &collective);
/// Returns the traffic of `rank` in an all_to_all_v, which sends the rows of
/// tokens to the ranks of their experts or back, with balanced routing.
Traffic rowTraffic(const program::Program &program,
                   const program::Collective &collective, int64_t rank);

/// Returns the expert load of each router in a training program.
std::vector<ExpertLoad> expertLoadsOf(const program::Program &program,
                                      mlir::ModuleOp module);

/// Returns the memory footprint of each group of ranks that run identical
/// commands (see Explanation::memory).
mlir::FailureOr<std::vector<Footprint>>
footprintsOf(const program::Program &program, mlir::ModuleOp module,
             const Booking &booking = {});

/// Returns the costs of one step: of the action `loss_grad` for each microbatch
/// (in a pipeline it runs all microbatches, so it counts once), then of
/// `update`. In a program without these actions, each action counts once.
/// `module` is the module from which `program` was emitted; the padding and the
/// pipeline schedule are read from it. `cluster` has the speeds of the links.
mlir::FailureOr<Explanation> explain(const program::Program &program,
                                     mlir::ModuleOp module,
                                     std::vector<Footprint> memory,
                                     int64_t microbatches,
                                     const Cluster &cluster = Cluster());

/// Changes the bytes of gradient reductions in `explanation` to those of
/// reductions in `reduceDtype`; in the program they run in f32.
void bookCollectives(Explanation &explanation, llvm::StringRef reduceDtype);

void writeExplanation(const Explanation &explanation, llvm::raw_ostream &out);
void writeExplanationJson(const Explanation &explanation,
                          llvm::raw_ostream &out);

} // namespace cleave

#endif
