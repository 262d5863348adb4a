// The verifier: proves that a pipeline program of transfers, collectives and
// computations cannot deadlock and runs every forward and backward pass once,
// or reports the actions that violate this. docs/pipeline.md lists its rules.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINESCHEDULE_VERIFY_H
#define CLEAVE_PIPELINESCHEDULE_VERIFY_H

#include "cleave/PipelineSchedule/Lower.h"

#include <string>
#include <vector>

namespace cleave::pipeline {

// One entry of the ordered list of what a rank does: a compute action, a
// transfer or, if `communicator` is set, a collective of that communicator. For
// a collective, the phase of `action` (start, wait, or both) is the phase of
// the collective. If the collective is an UNSHARD, RESHARD or REDUCE_GRAD of
// the schedule, or a part of one, `action` has this kind. Otherwise, `action`
// has a compute kind (F, I, W, B), which is ignored.
struct Item {
  LoweredAction action;
  int communicator = -1; // index into Program::communicators
  // A text that all ranks of a collective must agree on: "all_gather of wte".
  std::string what;
  std::string label; // the collective's name in error messages; "": `what`
  // A number that matches the wait of a collective with its start on this rank.
  // It is not needed if waits are in the order of starts.
  int ticket = -1;
  // On a rank, items with the same stream run in the order of their starts. The
  // value -1 means no stream: transfers and collectives of different groups run
  // concurrently.
  int stream = -1;

  bool isCollective() const { return communicator >= 0; }
  bool operator==(const Item &) const = default;
};

std::string print(const Item &item);

// A group of ranks, in the group's order. If `channel` is true, it carries the
// messages from ranks[0] to ranks[1]: the wait for a send ends when the
// receiver has reached its wait, and the wait for a receive ends when the send
// has started.
struct Communicator {
  std::string name;
  std::vector<int> ranks; // of the whole mesh
  bool channel = false;
};

// Properties of a stage that the pipeline schedule does not contain. They are
// read from the compiled stage.
struct StageTraits {
  bool reduces = true;     // has gradients for REDUCE_GRAD
  bool weightsRead = true; // its W reads the parameters that UNSHARD gathers
};

// The program that is verified: for each rank of the whole mesh, the ordered
// list of its compute actions, transfers and collectives (items).
struct Program {
  struct Rank {
    int pipeline = 0; // index on the pipeline axis
    int replica = 0;  // number of the pipeline that the rank belongs to
    std::vector<Item> items;
    int peak = -1; // expected RankReplay::peak (activations); -1: unknown
  };
  int stages = 0, microbatches = 0;
  std::vector<Communicator> communicators;
  std::vector<Rank> ranks;         // by rank of the whole mesh
  std::vector<StageTraits> traits; // by stage; defaults for missing entries
};

// Return the program of a schedule on a mesh that has only the pipeline axis.
// The second function also sets Rank::peak, to the peaks of `replay`, which is
// a simulation of the same schedule.
Program programOf(const LoweredTable &table);
Program programOf(const LoweredTable &table, const Replay &replay);

// An item of the program at which a rule is violated.
struct Place {
  int rank = 0;     // rank of the whole mesh
  size_t index = 0; // index of the item in the rank's list
  std::string text; // the printed item
};

struct Finding {
  // The violated rule: "range", "once", "order", "transfer", "wait",
  // "reduction", "shard", "collective", "replicas", "peak" or "deadlock"; for
  // command lists also "slot".
  std::string rule;
  std::string message; // a sentence that names the actions at fault
  std::vector<Place> places;
};

// Returns at most `most` findings. If there are none, the program is proved
// correct.
std::vector<Finding> verify(const Program &program, size_t most = 20);
std::vector<Finding> verify(const LoweredTable &table, size_t most = 20);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_VERIFY_H
