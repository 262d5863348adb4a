// Transfers between two ranks of one process. A channel connects a sending rank
// with a receiving rank; its k-th send matches its k-th receive. Once both
// sides have started, the side that calls finish() first copies the data, so
// each side waits only for the start of the other one.
#ifndef CLEAVE_RUNTIME_CHANNEL_H
#define CLEAVE_RUNTIME_CHANNEL_H

#include "transport.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace cleave {

class Message;

class Channel {
public:
  explicit Channel(const TransportOptions &options) : options(options) {}

  // Prepares one side of a message that is sent repeatedly.
  std::unique_ptr<Operation> prepare(CollectiveCall call, Counters &counters);
  void abort();

private:
  friend class Message;

  void post(Message &message);
  void complete(Message &message);
  void withdraw(Message &message);
  void copy(Message &message);
  void signal();
  void wait(uint32_t seen, double seconds);
  void meet(Message &a, Message &b);

  const TransportOptions &options;
  std::mutex mutex; // guards all fields but `events`
  // The started messages of one side that wait for the other side. Only one
  // side can have such messages.
  Message *first = nullptr, *last = nullptr;
  bool isAborted = false;
  std::atomic<uint32_t> events{0}; // counts changes; waiting ranks watch it
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_CHANNEL_H
