// Sends the host's requests to workers, and handles their answers.

#include "remote.h"

#include "cleave/program_io.h"
#include "session_options.h"
#include "tiles.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

using namespace cleave;

namespace {
std::atomic<int32_t> sessions{0};
}

void Failure::write(Packet &packet) const {
  packet.add(status).add(rank).add(command);
  packet.add(action).add(source).add(message);
}

Failure Failure::read(Packet &packet) {
  Failure found;
  found.status = packet.take<cleave_status>();
  found.rank = packet.take<int>();
  found.command = packet.take<int>();
  found.action = packet.takeText();
  found.source = packet.takeText();
  found.message = packet.takeText();
  return found;
}

Remote::Remote(World &world, const cleave_program &program,
               const cleave_session_options &options, Counters &counters)
    : world(world), program(program), counters(counters), session(++sessions),
      timeoutSeconds(watchdogOf(options)), waiting(world.size(), false),
      memories(world.size()), waits(world.size(), -1) {
  world.awaitAtMost(std::max(timeoutSeconds, 5.0)); // machines may be busy
  world.beat();
  // Workers may not see the host's files, so the program and its kernels are
  // sent as bytes.
  std::map<std::string, std::string> kernels = kernelFiles(program);
  Packet packet = request(Request::Create);
  packet.add(options.threads_per_rank).add(options.watchdog_seconds);
  packet.add(options.poison).add(std::string(options.transport));
  packet.add(program::serialize(program.data)).add(kernels.size());
  for (const auto &[name, bytes] : kernels)
    packet.add(name).add(bytes);
  tellAll(packet);
  waiting.assign(world.size(), true);
  waiting[world.rank()] = false;
}

Remote::~Remote() {
  try {
    // Outstanding answers are received and dropped, so that they are not
    // mistaken for answers to later requests.
    if (!world.lost())
      collect([](const Failure &) {}, [] { return true; });
    tellAll(request(Request::Free));
  } catch (const RuntimeError &) {
    // The other processes have ended already.
  }
}

Packet Remote::request(Request kind) const {
  Packet packet;
  packet.add(kind).add(session);
  return packet;
}

void Remote::tellAll(const Packet &packet) {
  for (int rank = 0; rank < world.size(); ++rank)
    if (rank != world.rank() && !world.hasEnded(rank))
      world.send(rank, World::Command, packet);
}

int64_t Remote::indexOf(const program::Boundary &entry) const {
  return &entry - program.data.boundary.data();
}

void Remote::write(int rank, const program::Boundary &entry, const void *data,
                   int64_t bytes) {
  Packet packet = request(Request::Write);
  world.send(rank, World::Command, packet.add(indexOf(entry)));
  world.send(rank, World::Data, data, bytes);
}

void Remote::read(const program::Boundary &entry,
                  std::vector<std::pair<int, std::vector<char>>> &tiles) {
  Packet packet = request(Request::Read);
  packet.add(indexOf(entry));
  for (auto &[rank, bytes] : tiles)
    world.send(rank, World::Command, packet);
  for (auto &[rank, bytes] : tiles)
    world.receive(rank, World::Data, bytes.data(),
                  static_cast<int64_t>(bytes.size()));
}

void Remote::zero(int rank, const program::Boundary &entry) {
  Packet packet = request(Request::Zero);
  world.send(rank, World::Command, packet.add(indexOf(entry)));
}

void Remote::injectFailure(int rank, int64_t run, int command, bool hang) {
  Packet packet = request(Request::Inject);
  tellAll(packet.add(rank).add(run).add(command).add(hang));
}

void Remote::trace(bool enabled) {
  Packet packet = request(Request::Trace);
  tellAll(packet.add(enabled));
}

std::vector<TraceEvent> Remote::traced(int rank) {
  int64_t asked = traceClock();
  world.send(rank, World::Command, request(Request::Traced));
  Packet answer = world.receive(rank, World::Data);
  int64_t answered = traceClock();
  // Clocks of one machine agree. The clock of another machine is aligned to the
  // middle of the round trip; the error is at most half the round trip.
  int64_t offset = (asked + answered) / 2 - answer.take<int64_t>();
  if (std::abs(offset) <= answered - asked)
    offset = 0;
  std::vector<TraceEvent> events(answer.take<size_t>());
  for (TraceEvent &event : events) {
    event = answer.take<TraceEvent>();
    event.begin += offset;
    event.end += offset;
  }
  return events;
}

void Remote::run(const std::string &action) {
  Packet packet = request(Request::Run);
  packet.add(action).add(toReset);
  toReset = false;
  tellAll(packet);
  waiting.assign(world.size(), true);
  waiting[world.rank()] = false;
}

void Remote::look(const OnFailure &onFailure) {
  for (int rank = 0; rank < world.size(); ++rank) {
    Packet answer;
    if (!waiting[rank])
      continue;
    bool isGone = world.hasEnded(rank); // its last answer is still read
    if (!world.poll(rank, World::Reply, answer)) {
      if (isGone)
        hasGone(rank, onFailure);
      continue;
    }
    waiting[rank] = false;
    Failure failure = Failure::read(answer);
    auto isDone = answer.take<bool>();
    waits[rank] = answer.take<int>();
    memories[rank] = answer.take<cleave_memory>();
    auto purposes = answer.take<size_t>();
    for (size_t purpose = 0; purpose < purposes; ++purpose) {
      Counters::Entry &entry = counters.at(rank, static_cast<int>(purpose));
      entry.sent = answer.take<int64_t>();
      entry.received = answer.take<int64_t>();
      entry.calls = answer.take<int64_t>();
    }
    counters.attentionFlops(rank) = answer.take<int64_t>();
    // A rank that stopped only because another rank failed has nothing to
    // report.
    if (failure.status != CLEAVE_OK && isDone)
      onFailure(failure);
  }
}

// Records the failure of a rank whose process has ended and so cannot answer.
void Remote::hasGone(int rank, const OnFailure &onFailure) {
  waiting[rank] = false;
  world.lose();
  Failure failure;
  failure.status = CLEAVE_RANK_FAILED;
  failure.rank = rank;
  failure.message = world.describe(rank) + " has ended";
  onFailure(failure);
}

void Remote::collect(const OnFailure &onFailure,
                     const std::function<bool()> &hasFailed) {
  Patience patience(false, 500);
  World::Clock::time_point failedAt{};
  auto deadline =
      World::Clock::now() +
      std::chrono::duration_cast<World::Clock::duration>(
          std::chrono::duration<double>(callersWatchdogOf(timeoutSeconds)));
  auto isWaiting = [&] {
    return std::find(waiting.begin(), waiting.end(), true) != waiting.end();
  };
  while (true) {
    look(onFailure);
    if (!isWaiting())
      return;
    if (hasFailed()) {
      World::Clock::time_point now = World::Clock::now();
      if (failedAt == World::Clock::time_point())
        failedAt = now;
      if (now - failedAt > std::chrono::seconds(1)) {
        world.lose();
        return;
      }
    } else if (World::Clock::now() > deadline) {
      Failure failure;
      failure.status = CLEAVE_TIMEOUT;
      for (size_t rank = waiting.size(); rank-- > 0;)
        if (waiting[rank])
          failure.rank = static_cast<int>(rank);
      failure.message = "the others have been ready for longer than the "
                        "watchdog's time";
      onFailure(failure);
    }
    patience.wait();
  }
}
