// NCCL calls that the members of a communicator make together.
#ifndef CLEAVE_TEST_GPU_RECORDER_COLLECTIVE_H
#define CLEAVE_TEST_GPU_RECORDER_COLLECTIVE_H

#include "queue.h"

#include <nccl.h>

#include <map>
#include <set>

namespace recorder {

struct Communicator;
struct Exchange;
class Line;

struct Call {
  enum Kind { AllReduce, AllGather, ReduceScatter, Broadcast, Send, Receive };
  Kind kind = AllReduce;
  const char *src = nullptr;
  char *dst = nullptr;
  int64_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int peer = 0; // or the root
  Communicator *communicator = nullptr;

  bool isMessage() const { return kind == Send || kind == Receive; }
  std::string text() const;
  std::vector<Access> accesses() const;
};

int64_t sizeOf(ncclDataType_t type); // 0: not one of ours
bool agree(const Call &a, const Call &b);

// One collective, or one message between two members.
struct Exchange {
  struct Member {
    bool isKnown = false, hasArrived = false;
    Call call;
    std::shared_ptr<const Who> who;
    Clock clock;
  };
  std::vector<Member> members; // of a message: sender, receiver
  std::vector<int> ranks;
  bool isDone = false, isBroken = false;

  void run();
};

// The ranks that joined with the same unique id, and the calls that they have
// started.
struct Group {
  explicit Group(int size) : size(size), members(size) {}
  bool isComplete() const {
    return std::find(members.begin(), members.end(), nullptr) == members.end();
  }

  const int size;
  std::vector<Communicator *> members;
  // The pending calls: collectives by their number in the communicator,
  // messages by sender and receiver and then by their number.
  std::map<uint64_t, std::shared_ptr<Exchange>> collectives;
  std::map<std::pair<int, int>, std::map<uint64_t, std::shared_ptr<Exchange>>>
      messages;
  // The pairs (rank, peer) for which `rank` has already called its first send
  // to `peer` or its first receive from it.
  std::set<std::pair<int, int>> came;
};

struct Communicator {
  std::shared_ptr<Group> group;
  int rank = 0, device = 0;
  bool isAborted = false;
  int pending = 0; // operations that have not run
  uint64_t started = 0;
  std::map<int, uint64_t> sent, received; // by peer
  // The connection to members in other processes. If it is set, all calls of
  // the communicator use it.
  std::shared_ptr<Line> line;

  // Returns whether all members have joined.
  bool isComplete() const;
};

// Numbers each call within its communicator, so that it is matched with the
// other members' calls. Returns a Meeting, the part of an operation in which
// all members execute these calls together.
std::shared_ptr<Meeting> meet(const std::vector<Call> &calls,
                              const std::shared_ptr<const Who> &who);

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_COLLECTIVE_H
