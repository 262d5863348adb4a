// Host-side state that members of a communicator share if they are threads of
// one process.
#ifndef CLEAVE_RUNTIME_CUDA_NCCL_GROUP_H
#define CLEAVE_RUNTIME_CUDA_NCCL_GROUP_H

#include "transport.h"

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

namespace cleave::cuda {

// Shared by the members of a communicator if they are threads of one process.
// It detects late members, and members that run different collectives. Each
// member numbers the collectives that it starts; equal numbers must mean the
// same collective.
class NcclGroup {
public:
  NcclGroup(std::vector<int> members, const TransportOptions &options)
      : options(options), turns(members.size()), enqueuedTurns(members.size()) {
  }

  // Returns the number of the collective that a member starts. Throws
  // BAD_PROGRAM if another member has started a different collective under this
  // number.
  int64_t start(const CollectiveCall &call);
  // Records that member `self` has enqueued the next of its started
  // collectives.
  void enqueued(int self);
  // Waits until all members have enqueued the collective with the number
  // `turn`. Meanwhile calls drive() periodically.
  void await(const CollectiveCall &call, int64_t turn,
             const std::function<void()> &drive);
  std::vector<int> missing(const CollectiveCall &call, int64_t turn);
  void abort();

private:
  struct Started {
    CollectiveCall call; // of the first member; addresses are ignored
    int members = 0;
    std::string failure; // how the members' calls differ; "": they agree
  };

  const TransportOptions &options;
  std::mutex mutex;
  std::condition_variable changed;
  // For each member: how many collectives it has started, and how many of these
  // it has enqueued.
  std::vector<int64_t> turns, enqueuedTurns;
  std::map<int64_t, Started> started;
  bool isAborted = false;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_NCCL_GROUP_H
