// The verifier: proves that a program of transfers, collectives and
// computations cannot deadlock and computes every pass once, or reports the
// actions that violate this. docs/pipeline.md lists its rules.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINESCHEDULE_VERIFY_H
#define CLEAVE_PIPELINESCHEDULE_VERIFY_H

#include "cleave/PipelineSchedule/Lower.h"

#include <string>
#include <vector>

namespace cleave::pipeline {

// One entry of a rank's list: a compute action, a transfer or, if
// `communicator` is set, a collective of that communicator. For a collective,
// the phase of `action` is the phase of the collective. If the collective is
// part of an UNSHARD, RESHARD or REDUCE_GRAD, `action` has this kind.
// Otherwise, `action` has a compute kind (F, I, W, B), which is ignored.
struct Item {
  LoweredAction action;
  int communicator = -1; // index into Program::communicators
  std::string what;      // "all_gather of wte"; equal on all members
  std::string label;     // what messages call it; "": like `what`
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

// The ranks of a group, in the group's order. A channel carries the messages
// from ranks[0] to ranks[1]: the wait of a send ends when the receiver has
// reached its wait, the wait of a receive ends when the send is started.
struct Communicator {
  std::string name;
  std::vector<int> ranks; // global
  bool channel = false;
};

// Properties of a stage that a table does not contain.
struct StageTraits {
  bool reduces = true;     // has gradients for REDUCE_GRAD
  bool weightsRead = true; // its W reads what UNSHARD gathers
};

// The item lists of all ranks, along the pipeline axis and all other mesh axes.
struct Program {
  struct Rank {
    int pipeline = 0; // index on the pipeline axis
    int replica = 0;  // which pipeline it is part of
    std::vector<Item> items;
    int peak = -1; // most activations held (F to W), where it is known
  };
  int stages = 0, microbatches = 0;
  std::vector<Communicator> communicators;
  std::vector<Rank> ranks;         // by global rank
  std::vector<StageTraits> traits; // by stage; a missing one has the defaults
};

// Return the program of a single pipeline. The second function also sets the
// peaks of activations, from the replay.
Program programOf(const LoweredTable &table);
Program programOf(const LoweredTable &table, const Replay &replay);

struct Place {
  int rank = 0;     // global
  size_t index = 0; // in its list
  std::string text; // the action, as printed
};

struct Finding {
  // The violated rule: "range", "once", "order", "transfer", "wait",
  // "reduction", "shard", "collective", "replicas", "peak" or "deadlock"; for
  // command lists also "slot".
  std::string rule;
  std::string message; // a sentence; names the actions at fault
  std::vector<Place> places;
};

// Returns at most `most` findings. If there are none, the program is proved
// correct.
std::vector<Finding> verify(const Program &program, size_t most = 20);
std::vector<Finding> verify(const LoweredTable &table, size_t most = 20);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_VERIFY_H
