// Streams of the simulated driver: run the enqueued operations and check which
// memory they access.

#include "queue.h"

#include <cstdlib>

using namespace recorder;

thread_local Device *recorder::currentDevice = nullptr;

namespace {
double number(const char *variable, double otherwise) {
  const char *text = std::getenv(variable);
  return text ? std::atof(text) : otherwise;
}

void printSummary() {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  std::fprintf(stderr, "recorder: %s\n", all.report.summary().c_str());
}
} // namespace

// The recorder object is never destroyed, because threads may still use it
// while the process exits.
Recorder &Recorder::get() {
  static Recorder *all = [] {
    auto *made = new Recorder;
    if (const char *on = std::getenv("CLEAVE_RECORDER_SUMMARY");
        on && *on == '1')
      std::atexit(printSummary);
    return made;
  }();
  return *all;
}

Recorder::Recorder() {
  timeout = number("CLEAVE_RECORDER_TIMEOUT", timeout);
  isLazy = number("CLEAVE_RECORDER_LAZY", 0) != 0;
  int count = int(number("CLEAVE_RECORDER_DEVICES", 1));
  for (int i = 0; i < count; ++i) {
    auto device = std::make_unique<Device>();
    device->number = i;
    device->defaultStream.lane = madeLanes++;
    device->defaultStream.device = i;
    device->defaultStream.number = madeStreams++;
    device->defaultStream.isDefault = true;
    streams.insert(&device->defaultStream);
    devices.push_back(std::move(device));
  }
}

//--- Handles -----------------------------------------------------------------

Stream *Recorder::makeStream(int device) {
  auto *made = new Stream;
  made->device = device;
  made->number = madeStreams++;
  if (freeLanes.empty()) {
    made->lane = madeLanes++;
  } else {
    std::tie(made->lane, made->tick) = freeLanes.back();
    freeLanes.pop_back();
  }
  streams.insert(made);
  return made;
}

void Recorder::destroyStream(Stream *stream) {
  if (!stream->queue.empty())
    report.error("stream " + std::to_string(stream->number) +
                 " is destroyed while it waits for " + stuck(*stream));
  // The lane of the destroyed stream (its component in vector clocks) may be
  // given to another stream only if the host has seen all operations of the
  // destroyed one.
  if (host->at(stream->lane) >= stream->tick)
    freeLanes.emplace_back(stream->lane, stream->tick);
  streams.erase(stream);
  delete stream;
}

Stream *Recorder::stream(CUstream handle) {
  if (!handle)
    return currentDevice ? &currentDevice->defaultStream : nullptr;
  auto *stream = reinterpret_cast<Stream *>(handle);
  return streams.count(stream) ? stream : nullptr;
}

Event *Recorder::event(CUevent handle) {
  auto *event = reinterpret_cast<Event *>(handle);
  return events.count(event) ? event : nullptr;
}

std::shared_ptr<Who> Recorder::name(Stream &stream, const std::string &what) {
  auto who = std::make_shared<Who>();
  who->what = what;
  who->note = stream.note;
  who->stream = stream.number;
  who->device = stream.device;
  return who;
}

//--- Running -----------------------------------------------------------------

void Recorder::enqueue(Stream &stream, Operation operation) {
  if (stream.capture)
    return append(stream, std::move(operation));
  operation.host = host;
  if (operation.meet)
    operation.meeting = operation.meet();
  stream.queue.push_back(std::move(operation));
  if (!isLazy)
    advance();
}

void Recorder::advance() {
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (Stream *stream : streams)
      while (!stream->queue.empty() && step(*stream))
        moved = any = true;
  }
  if (any)
    changed.notify_all();
}

// Runs the next operation of the stream. Returns false if the operation has to
// wait.
bool Recorder::step(Stream &stream) {
  Operation &next = stream.queue.front();
  if (!next.hasBegun) {
    if (next.waits && !next.waits->isDone)
      return false;
    stream.clock.join(*next.host);
    if (next.waits) {
      stream.clock.join(next.waits->clock);
      ++report.totals.edges;
    }
    next.hasBegun = true;
    if (next.who) {
      auto who = std::make_shared<Who>(*next.who); // a graph's, launched anew
      who->number = ++madeOperations;
      ++report.totals.operations;
      next.who = who;
      stream.clock.advance(stream.lane, ++stream.tick);
      if (enter(next, stream) && next.run)
        next.run();
      for (const Access &access : next.accesses)
        if (Allocation *holder = memory.find(access.at))
          if (int64_t at = holder->findOverrun()) {
            report.error(next.who->text() + " wrote outside " + holder->name() +
                         ", at byte " + std::to_string(at));
            holder->repairSlack();
          }
    }
    if (next.meeting)
      next.meeting->arrive(stream.clock);
  }
  if (next.meeting) {
    if (!next.meeting->isDone())
      return false;
    next.meeting->leave(stream.clock);
  }
  if (next.records) {
    next.records->clock = stream.clock;
    next.records->when = std::chrono::steady_clock::now();
    next.records->isDone = true;
  }
  stream.queue.pop_front();
  return true;
}

bool Recorder::enter(Operation &operation, Stream &stream) {
  bool isReported = false, isInBounds = true;
  std::vector<std::string> places;
  for (const Access &access : operation.accesses) {
    std::string verb = access.written ? " writes " : " reads ";
    if (report.isLogging())
      places.push_back("[\"" + memory.place(access.at) + "\", " +
                       std::to_string(access.bytes) + "]");
    if (access.bytes <= 0)
      continue;
    Allocation *holder = memory.find(access.at);
    if (!holder || access.at + access.bytes > holder->data + holder->bytes) {
      report.error(operation.who->text() + verb + std::to_string(access.bytes) +
                   " bytes at " + memory.place(access.at) + ": out of bounds");
      isInBounds = false;
      continue;
    }
    if (holder->device >= 0 && holder->device != stream.device &&
        !operation.crossesDevices &&
        !devices[stream.device]->peers.count(holder->device))
      report.error(operation.who->text() + verb + holder->name() +
                   ", but peer access to that device is not enabled");
    int64_t begin = access.at - holder->data;
    Epoch mine{stream.lane, stream.tick, operation.who};
    const Epoch *other = holder->enter(begin, begin + access.bytes,
                                       access.written, mine, stream.clock);
    if (other && !isReported) {
      isReported = true;
      report.error(operation.who->text() + verb + std::to_string(access.bytes) +
                   " bytes at " + memory.place(access.at) + ", which " +
                   other->who->text() + " touches: no event orders the two");
    }
  }
  if (report.isLogging())
    report.log(*operation.who, operation.accesses, places);
  return isInBounds;
}

//--- The host ----------------------------------------------------------------

void Recorder::hostJoins(const Clock &clock) {
  auto joined = std::make_shared<Clock>(*host);
  joined->join(clock);
  host = joined;
}

std::string Recorder::stuck(const Stream &stream) const {
  if (stream.queue.empty())
    return "nothing";
  const Operation &next = stream.queue.front();
  std::string out = next.who ? next.who->text() : "an event";
  if (next.meeting && next.hasBegun)
    out += ", for which is missing: " + next.meeting->missing();
  return out;
}

bool Recorder::wait(std::unique_lock<std::mutex> &lock, const std::string &what,
                    const std::function<bool()> &done) {
  auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout);
  advance();
  while (!done()) {
    if (changed.wait_until(lock, deadline) == std::cv_status::timeout &&
        !done()) {
      std::string text =
          what + " has waited for " + std::to_string(timeout) + " s";
      for (Stream *stream : streams)
        if (!stream->queue.empty())
          text += "; stream " + std::to_string(stream->number) + " is at " +
                  stuck(*stream);
      report.error(text);
      return false;
    }
    advance();
  }
  return true;
}
