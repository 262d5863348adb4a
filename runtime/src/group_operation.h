// Collectives of ranks that are threads of one process: determines which bytes
// a member reads from which peer. Subclasses move the bytes, by the CPU or on a
// device's stream.
#ifndef CLEAVE_RUNTIME_GROUP_OPERATION_H
#define CLEAVE_RUNTIME_GROUP_OPERATION_H

#include "counters.h"
#include "group.h"

#include <map>
#include <mutex>

namespace cleave {

// Elements in contiguous runs of `run` elements, with `stride` elements between
// the beginnings of runs.
struct Runs {
  char *at;
  int64_t run, stride;
};
struct ConstRuns {
  const char *at;
  int64_t run, stride;
};

// An elementwise reduction over the arrays `srcs`, in this order. Each array
// has `rows` rows of `count` elements; strides between rows are in bytes.
struct RowReduction {
  char *dst;
  const std::vector<const char *> &srcs;
  int64_t rows, count, dstStride, srcStride;
};

// A member of a group reads the memory of its peers and writes only its own.
// Every element is reduced by one member, in the order of the group, so
// replicas are bit-identical and runs are reproducible.
class GroupOperation : public Operation {
protected:
  GroupOperation(const CollectiveCall &call, Group &group, Counters &counters);

  // Moves the data of the collective. Before, all members must have stored
  // their calls in `group.calls` and passed a barrier. Afterwards they must
  // pass another barrier before a member may overwrite its source.
  void move();

  Counters::Entry &mine() {
    return counters.at(group.members[call.self], call.purpose);
  }

  virtual void copyRows(char *dst, int64_t dstStride, const char *src,
                        int64_t srcStride, int64_t rows, int64_t bytes) = 0;
  virtual void zero(char *dst, int64_t bytes) = 0;
  virtual void reduce(const RowReduction &reduction) = 0;
  // Copies `count` elements. In memory they form contiguous runs, whose length
  // may differ between source and destination.
  virtual void retile(const Runs &dst, const ConstRuns &src, int64_t count) = 0;
  // Writes one rectangular range of elements of the target tile of an exchange.
  // Its value is the reduction over the same range in the tiles `from` of its
  // senders, or zero if there is no sender.
  virtual void box(const program::ExchangePiece &piece, const Part &part,
                   const std::vector<const char *> &from,
                   const std::vector<int64_t> &srcStrides) = 0;
  // Returns the number of rows that member `member` sends to this one
  // (AllToAllV).
  virtual int64_t rowsOfMember(int member) = 0;
  // Waits until all members have finished the first round of an all-reduce or
  // exchange. After this barrier each member sees what the others wrote in the
  // first round.
  virtual void betweenRounds() = 0;

  const CollectiveCall &call;
  Group &group;
  Counters &counters;
  const int64_t elementSize;
  const int size;       // members
  int64_t received = 0; // bytes since the subclass set it to 0

private:
  const Part &partOf(int member, size_t part) const {
    return group.calls[member]->parts[part];
  }
  void book(int owner, int64_t bytes);

  void allReduce();
  void allGather(size_t index);
  void reduceScatter(size_t index);
  void allToAll(size_t index);
  void allToAllV();
  void receiveWhole(size_t index);
  void exchange();
  void exchangeRound(size_t index, int round);

  std::vector<const char *> sources;
};

// A transport between ranks in one process: the groups of ranks, and the
// channels between two ranks. `ChannelType` has a constructor from
// TransportOptions, and a function abort().
template <class ChannelType> class GroupTransport : public Transport {
public:
  GroupTransport(const TransportOptions &options, Counters &counters)
      : options(options), counters(counters) {}

  void abort() override {
    std::lock_guard lock(mutex);
    aborted = true;
    for (auto &[members, group] : groups)
      group->abort();
    for (auto &[ranks, channel] : channels)
      channel->abort();
  }

  ChannelType &channel(int from, int to) {
    std::lock_guard lock(mutex);
    std::unique_ptr<ChannelType> &channel = channels[{from, to}];
    if (!channel) {
      channel = std::make_unique<ChannelType>(options);
      if (aborted)
        channel->abort();
    }
    return *channel;
  }

  Group &groupOf(const std::vector<int> &members) {
    std::lock_guard lock(mutex);
    std::unique_ptr<Group> &group = groups[members];
    if (!group) {
      group = std::make_unique<Group>(members, options);
      if (aborted)
        group->abort();
    }
    return *group;
  }

  const TransportOptions options;
  Counters &counters;

private:
  std::mutex mutex;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups;
  std::map<std::pair<int, int>, std::unique_ptr<ChannelType>> channels;
  bool aborted = false;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_GROUP_OPERATION_H
