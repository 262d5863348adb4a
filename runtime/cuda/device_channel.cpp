// Transfers between two ranks on devices of one process.

#include "device_channel.h"

#include "error.h"

#include <algorithm>
#include <chrono>

using namespace cleave;
using namespace cleave::cuda;

class cuda::DeviceMessage : public Operation {
public:
  DeviceMessage(CollectiveCall given, DeviceChannel &channel,
                Counters &counters, Transfers &transfers)
      : call(std::move(given)), channel(channel), counters(counters),
        transfers(transfers), ready(makeEvent()),
        copied(std::make_shared<Event>(makeEvent())) {
    for (const Part &part : call.parts)
      bytes += part.count * program::sizeOf(call.dtype);
  }

  ~DeviceMessage() override {
    std::lock_guard lock(channel.mutex);
    std::erase(channel.waiting, this);
  }

  void start() override {
    check(driver().cuEventRecord(ready.get(), transfers.rank.compute),
          "starting " + describe(call));
    std::lock_guard lock(channel.mutex);
    if (channel.isAborted)
      throw Aborted();
    if (isStarted)
      fail(CLEAVE_BAD_PROGRAM, describe(call) + " is started twice");
    isStarted = true;
    met = nullptr;
    if (channel.waiting.empty() ||
        channel.waiting.front()->call.self == call.self) {
      channel.waiting.push_back(this);
      return;
    }
    DeviceMessage &other = *channel.waiting.front();
    channel.waiting.pop_front();
    meet(other);
    channel.changed.notify_all();
  }

  void finish() override {
    mine().calls.fetch_add(1, std::memory_order_relaxed);
    std::unique_lock lock(channel.mutex);
    if (!isStarted)
      fail(CLEAVE_BAD_PROGRAM, describe(call) + " has not been started");
    std::chrono::duration<double> patience(channel.options.timeoutSeconds);
    int partner = call.members[1 - call.self];
    bool inTime = channel.changed.wait_for(
        lock, patience, [&] { return met || channel.isAborted; });
    if (!inTime)
      throw lateness(call, channel.options.timeoutSeconds, {partner});
    if (!met)
      throw Aborted(partner);
    isStarted = false;
    if (!failure.empty())
      fail(CLEAVE_BAD_PROGRAM, failure);
    // The rank that starts the transfer second enqueues the copy, records the
    // event `*met` after it, and then sets the pointer `met`. So the event has
    // already been recorded here. It is recorded again only for the next
    // message, which cannot start before both ranks have passed the wait for
    // `met` above.
    check(driver().cuStreamWaitEvent(transfers.rank.compute, met->get(), 0),
          describe(call));
  }

private:
  Counters::Entry &mine() {
    return counters.at(call.members[call.self], call.purpose);
  }

  // Called by the rank that starts the transfer second: matches its message
  // with `other`, the message of the rank that started first, and enqueues the
  // copy. The lock must be held.
  void meet(DeviceMessage &other) {
    DeviceMessage &sender = call.self == 0 ? *this : other;
    DeviceMessage &receiver = call.self == 0 ? other : *this;
    bool same = call.dtype == other.call.dtype &&
                call.parts.size() == other.call.parts.size();
    for (size_t i = 0; same && i < call.parts.size(); ++i)
      same = call.parts[i].count == other.call.parts[i].count;
    met = other.met = copied;
    if (!same) {
      failure = other.failure =
          "ranks " + std::to_string(call.members[0]) + " and " +
          std::to_string(call.members[1]) +
          " meet in different transfers: " + sender.call.name + " of " +
          std::to_string(sender.bytes) + " bytes and " + receiver.call.name +
          " of " + std::to_string(receiver.bytes) + " bytes";
      return;
    }
    CUstream stream = transfers.stream.get();
    for (DeviceMessage *side : {this, &other})
      check(driver().cuStreamWaitEvent(stream, side->ready.get(), 0),
            describe(call));
    transfers.begin(call);
    for (size_t i = 0; i < call.parts.size(); ++i)
      transfers.copy(receiver.call.parts[i].dst, sender.call.parts[i].src,
                     sender.call.parts[i].count * program::sizeOf(call.dtype));
    check(driver().cuEventRecord(copied->get(), stream), describe(call));
    sender.mine().sent.fetch_add(bytes, std::memory_order_relaxed);
    receiver.mine().received.fetch_add(bytes, std::memory_order_relaxed);
  }

  const CollectiveCall call;
  DeviceChannel &channel;
  Counters &counters;
  Transfers &transfers;
  int64_t bytes = 0;
  const Event ready;
  const std::shared_ptr<Event> copied; // also used by the other rank
  bool isStarted = false;
  // Points to the event that is recorded after the copy, and that both ranks
  // wait for. The rank that starts the transfer second sets the pointer; until
  // then it is null.
  std::shared_ptr<Event> met;
  std::string failure;
};

std::unique_ptr<Operation> DeviceChannel::prepare(CollectiveCall call,
                                                  Counters &counters,
                                                  Transfers &transfers) {
  return std::make_unique<DeviceMessage>(std::move(call), *this, counters,
                                         transfers);
}

void DeviceChannel::abort() {
  std::lock_guard lock(mutex);
  isAborted = true;
  changed.notify_all();
}
