// Transfers between two ranks of one process.

#include "channel.h"

#include "error.h"
#include "futex.h"

#include <chrono>
#include <cstring>

using namespace cleave;

namespace {
using Clock = std::chrono::steady_clock;
}

class cleave::Message : public Operation {
public:
  Message(CollectiveCall call, Channel &channel, Counters &counters)
      : call(std::move(call)), channel(channel), counters(counters) {
    for (const Part &part : this->call.parts)
      bytes += part.count * program::sizeOf(this->call.dtype);
  }
  ~Message() override { channel.withdraw(*this); }

  void start() override { channel.post(*this); }
  void finish() override {
    mine().calls.fetch_add(1, std::memory_order_relaxed);
    channel.complete(*this);
    sleepUntil(met, leastSeconds(channel.options, bytes > 0, bytes));
  }

  bool sends() const { return call.self == 0; }
  Counters::Entry &mine() {
    return counters.at(call.members[call.self], call.purpose);
  }

  // A message goes through the states Idle -> Posted -> Matched -> Copying ->
  // Done -> Idle. Only one of its two sides, sender or receiver, copies the
  // data.
  enum class State { Idle, Posted, Matched, Copying, Done, Failed };

  const CollectiveCall call;
  Channel &channel;
  Counters &counters;
  int64_t bytes = 0;
  State state = State::Idle;
  Message *peer = nullptr; // set when matched
  Message *next = nullptr; // in the channel's list, while posted
  std::string failure;     // of state Failed; "": the peer withdrew
  Clock::time_point met;   // time at which it was matched
};

using State = Message::State;

std::unique_ptr<Operation> Channel::prepare(CollectiveCall call,
                                            Counters &counters) {
  return std::make_unique<Message>(std::move(call), *this, counters);
}

void Channel::signal() {
  events.fetch_add(1, std::memory_order_release);
  futexWake(events);
}

void Channel::abort() {
  {
    std::lock_guard lock(mutex);
    isAborted = true;
  }
  signal();
}

// Matches the two sides of a message, and checks that they agree on type and
// size. Otherwise one side would access invalid memory.
void Channel::meet(Message &a, Message &b) {
  a.peer = &b;
  b.peer = &a;
  bool same = a.call.dtype == b.call.dtype &&
              a.call.parts.size() == b.call.parts.size();
  for (size_t i = 0; same && i < a.call.parts.size(); ++i)
    same = a.call.parts[i].count == b.call.parts[i].count;
  a.state = b.state = same ? State::Matched : State::Failed;
  a.met = b.met = Clock::now();
  if (!same)
    a.failure = b.failure =
        "ranks " + std::to_string(a.call.members[0]) + " and " +
        std::to_string(a.call.members[1]) +
        " meet in different transfers: " + (a.sends() ? a : b).call.name +
        " of " + std::to_string((a.sends() ? a : b).bytes) + " bytes and " +
        (a.sends() ? b : a).call.name + " of " +
        std::to_string((a.sends() ? b : a).bytes) + " bytes";
}

void Channel::post(Message &message) {
  {
    std::lock_guard lock(mutex);
    if (isAborted)
      throw Aborted();
    if (message.state != State::Idle)
      fail(CLEAVE_BAD_PROGRAM,
           "send_recv " + message.call.name + " is started twice");
    if (!first || first->sends() == message.sends()) {
      message.state = State::Posted;
      message.next = nullptr;
      (first ? last->next : first) = &message;
      last = &message;
      return;
    }
    Message &other = *first;
    first = other.next;
    meet(message, other);
  }
  signal();
}

void Channel::copy(Message &message) {
  Message &sender = message.sends() ? message : *message.peer;
  Message &receiver = message.sends() ? *message.peer : message;
  int64_t size = program::sizeOf(message.call.dtype);
  for (size_t i = 0; i < message.call.parts.size(); ++i)
    if (int64_t count = sender.call.parts[i].count)
      std::memcpy(receiver.call.parts[i].dst, sender.call.parts[i].src,
                  count * size);
  sender.mine().sent.fetch_add(message.bytes, std::memory_order_relaxed);
  receiver.mine().received.fetch_add(message.bytes, std::memory_order_relaxed);
}

void Channel::wait(uint32_t seen, double seconds) {
  for (int round = 0; options.spin && round < spinRounds; ++round) {
    if (events.load(std::memory_order_acquire) != seen)
      return;
    __builtin_ia32_pause();
  }
  futexWait(events, seen, seconds);
}

void Channel::complete(Message &message) {
  auto deadline =
      Clock::now() + std::chrono::duration<double>(options.timeoutSeconds);
  while (true) {
    uint32_t seen = events.load(std::memory_order_acquire);
    double left =
        std::chrono::duration<double>(deadline - Clock::now()).count();
    {
      std::unique_lock lock(mutex);
      switch (message.state) {
      case State::Done:
        message.state = State::Idle;
        return;
      case State::Matched:
        message.state = message.peer->state = State::Copying;
        lock.unlock();
        copy(message);
        lock.lock();
        message.peer->state = State::Done;
        message.state = State::Idle;
        lock.unlock();
        signal();
        return;
      case State::Failed:
        if (message.failure.empty())
          throw Aborted();
        fail(CLEAVE_BAD_PROGRAM, message.failure);
      case State::Idle:
        fail(CLEAVE_BAD_PROGRAM,
             "send_recv " + message.call.name + " has not been started");
      case State::Posted:
        if (isAborted)
          throw Aborted(message.call.members[1 - message.call.self]);
        if (left <= 0)
          throw lateness(message.call, options.timeoutSeconds,
                         {message.call.members[1 - message.call.self]});
        break;
      case State::Copying: // the other side copies and will finish
        left = 1;
        break;
      }
    }
    wait(seen, left);
  }
}

// Withdraws a message. After this call no thread reads or writes its memory.
void Channel::withdraw(Message &message) {
  while (true) {
    uint32_t seen = events.load(std::memory_order_acquire);
    {
      std::lock_guard lock(mutex);
      if (message.state == State::Posted) {
        Message **link = &first, *before = nullptr;
        for (; *link != &message; link = &(*link)->next)
          before = *link;
        *link = message.next;
        if (last == &message)
          last = before;
      }
      if (message.state == State::Matched) {
        message.peer->state = State::Failed;
        message.peer->failure.clear();
      }
      if (message.state != State::Copying)
        break;
    }
    wait(seen, 1);
  }
  signal();
}
