// Executes actions: each rank's thread runs the commands of the action in
// order.

#include "session.h"

#include "backends.h"
#include "cleave/launcher.h"
#include "quiet_thread.h"
#include "session_options.h"
#include "step_pool.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

using namespace cleave;
using namespace cleave::program;

namespace {
std::vector<std::string> purposesOf(const Program &program) {
  std::vector<std::string> purposes;
  for (const Action &action : program.actions)
    for (const Command &command : action.commands)
      if (auto *collective = std::get_if<Collective>(&command.op)) {
        const std::string &name = program.strings[collective->purpose];
        if (std::find(purposes.begin(), purposes.end(), name) == purposes.end())
          purposes.push_back(name);
      }
  std::sort(purposes.begin(), purposes.end());
  return purposes;
}
} // namespace

// Returns the means by which the processes of a session exchange information
// about their devices while the session is created.
Neighbours cleave_session::neighboursOf(const WorkerPart *part) {
  if (!world)
    return {};
  if (part)
    return {world, "session " + std::to_string(part->session), part->meanwhile};
  auto listen = [this] {
    if (remote)
      remote->look([](const Failure &found) {
        throw RuntimeError(found.status, found.message, found.rank);
      });
  };
  return {world, "session " + std::to_string(remote ? remote->id() : 0),
          listen};
}

cleave_session::cleave_session(cleave_program &program,
                               const cleave_session_options &options,
                               const WorkerPart *part)
    : program(program), counters(static_cast<int>(program.data.numRanks()),
                                 purposesOf(program.data)),
      timeoutSeconds(watchdogOf(options)), poison(options.poison != 0),
      world(options.transport && usesProcesses(options.transport)
                ? &World::get()
                : nullptr) {
  if (part)
    meanwhile = part->meanwhile;
  int size = static_cast<int>(program.data.numRanks());
  if (world && world->size() != size)
    fail(CLEAVE_BAD_ARGUMENT,
         "the launcher started " + std::to_string(world->size()) +
             " processes, but the mesh has " + std::to_string(size) +
             (size == 1 ? " rank" : " ranks"));
  int perRank = threadsPerRank(options, size, world);
  TransportOptions transportOptions =
      transportOptionsOf(program.data, options, perRank, timeoutSeconds, world);
  if (!world || world->rank() == 0)
    program.bindKernels(); // may throw; workers are not asked then
  if (world && world->rank() == 0 && size > 1)
    remote = std::make_unique<Remote>(*world, program, options, counters);
  int here = world ? 1 : size;
  program.bindKernels();
  int first = world ? world->rank() : 0;
  int device = world ? world->localRank() : 0;
  SessionShape shape{first, here, device, perRank, poison};
  std::vector<std::unique_ptr<Backend>> backends =
      makeBackends(program, shape, counters);
  transport = makeTransport(program, options.transport, transportOptions, shape,
                            counters, neighboursOf(part), backends);
  ranks.resize(size);
  traces.resize(size);
  for (int rank = 0; rank < size; ++rank)
    traceReaders.emplace_back(program.data, rank);
  waitedFor.assign(size, -1);
  endpoints.resize(size);
  for (int rank = first; rank < first + here; ++rank) {
    ranks[rank] = std::make_unique<Rank>(
        program, rank, std::move(backends[rank - first]), poison);
    endpoints[rank] = transport->connect(rank);
    for (const Boundary &entry : program.data.boundary)
      try {
        if (holds(rank, entry))
          ranks[rank]->find(entry);
      } catch (const RuntimeError &error) {
        throw RuntimeError(error.status,
                           "buffer \"" + entry.name + "\": " + error.what());
      }
  }
  try {
    for (int rank = first; rank < first + here; ++rank)
      threads.push_back(startQuietThread([this, rank] { threadMain(rank); }));
    requireThreads(here * (perRank - 1));
  } catch (const std::exception &error) {
    recordFailure(CLEAVE_OUT_OF_MEMORY, -1,
                  "cannot start " + std::to_string(here) +
                      (here == 1 ? " rank" : " ranks") + " of " +
                      std::to_string(perRank) +
                      " threads each: " + error.what() +
                      "; lower target.threads_per_rank, or raise the limits of "
                      "processes and memory (ulimit)",
                  Place());
  }
  if (failure.status == CLEAVE_OK)
    dispatch(Job::Prepare);
  if (remote)
    remote->collect([this](const Failure &found) { recordFailure(found); },
                    [this] { return failure.status != CLEAVE_OK; });
  if (failure.status != CLEAVE_OK) {
    quit();
    throw RuntimeError(failure.status, failure.message);
  }
}

cleave_session::~cleave_session() { quit(); }

void cleave_session::quit() {
  if (transport && world && world->lost()) // other ranks do not respond
    transport->abort();
  dispatch(Job::Quit);
  for (std::thread &thread : threads)
    thread.join();
  // Ranks are dropped before memory is freed, because other threads may still
  // use it after a failure.
  for (std::unique_ptr<Rank> &rank : ranks)
    if (rank)
      rank->drop();
}

void cleave_session::dispatch(Job next) {
  std::unique_lock lock(mutex);
  job = next;
  ++turn;
  busy = static_cast<int>(threads.size());
  isWorking.assign(ranks.size(), false);
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    isWorking[rank] = isHere(static_cast<int>(rank));
  wakeRanks.notify_all();
  auto finished = [&] { return busy == 0; };
  auto decided = [&] {
    return finished() || (next == Job::Run && failure.status != CLEAVE_OK);
  };
  if (!meanwhile && !remote && next != Job::Run)
    wakeCaller.wait(lock, decided);
  while (!wakeCaller.wait_for(lock, std::chrono::milliseconds(20), decided)) {
    lock.unlock();
    if (meanwhile)
      meanwhile();
    if (remote && next != Job::Quit)
      remote->look([this](const Failure &found) { recordFailure(found); });
    if (next == Job::Run)
      watchTheLast();
    lock.lock();
  }
  // Ranks that wait for other ranks see the failure at once. A rank may compute
  // forever, so the caller waits for it only for a few seconds.
  std::chrono::duration<double> patience(std::min(timeoutSeconds, 4.0));
  if (!finished() && !wakeCaller.wait_for(lock, patience, finished))
    isLost = program.isLost = true;
}

void cleave_session::threadMain(int rank) {
  uint64_t seen = 0;
  while (true) {
    Job todo;
    {
      std::unique_lock lock(mutex);
      wakeRanks.wait(lock, [&] { return turn != seen; });
      seen = turn;
      todo = job;
    }
    if (todo == Job::Prepare) {
      try {
        ranks[rank]->prepare(*endpoints[rank], counters);
      } catch (const RuntimeError &error) {
        recordFailure(error.status, rank, error.what(), Place());
      } catch (const std::exception &error) {
        recordFailure(CLEAVE_INTERNAL, rank, error.what(), Place());
      }
    } else if (todo == Job::Run) {
      execute(*ranks[rank]);
    }
    {
      std::lock_guard lock(mutex);
      isWorking[rank] = false;
      if (busy == static_cast<int>(threads.size()))
        firstDone = std::chrono::steady_clock::now();
      if (--busy == 0)
        wakeCaller.notify_all();
    }
    if (todo == Job::Quit)
      return;
  }
}

const Command *cleave_session::Place::at() const {
  if (command < 0)
    return nullptr;
  return inner >= 0 ? called->commands[inner].command
                    : action->commands[command].command;
}

void cleave_session::execute(Rank &rank) {
  Place place;
  try {
    place.action = rank.find(action);
    if (place.action) // else: no action for ranks of this class
      walk(rank, place);
  } catch (const Aborted &aborted) {
    // The rank that failed reports the failure.
    std::lock_guard lock(mutex);
    isAborted = true;
    waitedFor[rank.rank] = aborted.waitedFor;
  } catch (const RuntimeError &error) {
    // A watchdog's message names the collective itself.
    bool late = error.status == CLEAVE_TIMEOUT;
    if (late) {
      std::lock_guard lock(mutex);
      waitedFor[rank.rank] = error.rank;
    }
    recordFailure(late ? CLEAVE_TIMEOUT : CLEAVE_RANK_FAILED,
                  error.rank >= 0 ? error.rank : rank.rank,
                  describe(place, error.what()) +
                      (late ? std::string() : nextCollective(place)),
                  place);
  } catch (const std::exception &error) {
    recordFailure(CLEAVE_RANK_FAILED, rank.rank,
                  describe(place, error.what()) + nextCollective(place), place);
  }
}

namespace {
// Cancels the capture of a CUDA graph if the action fails.
struct Capture {
  Backend *backend = nullptr; // NULL: none
  ~Capture() {
    if (backend)
      backend->cancelCapture();
  }
};
} // namespace

void cleave_session::walk(Rank &rank, Place &place) {
  Endpoint &endpoint = *endpoints[rank.rank];
  Backend &backend = *rank.backend;
  const PreparedAction &action = *place.action;
  bool watched = injection.rank == rank.rank && injection.run == runs;
  // Either all ranks replay an action from a CUDA graph, or none does.
  bool isPlain = !poison && injection.rank < 0 && !isTracing;
  if (isPlain && action.mayReplay && backend.replay(*action.action)) {
    Rank::bookReplay(action);
    backend.finish();
    return;
  }
  Capture capture;
  if (isPlain && action.mayReplay && backend.beginCapture(*action.action))
    capture.backend = &backend;
  if (poison)
    rank.beforeAction();
  if (isTracing)
    backend.mark(0);
  for (const PreparedCommand &step : action.commands) {
    int index = ++place.command;
    if (watched && injection.command == index)
      injected(rank, index);
    if (!step.called) {
      step.run();
    } else {
      place.called = step.called;
      if (poison)
        rank.aroundCall();
      for (const PreparedCommand &inner : step.called->commands) {
        ++place.inner;
        inner.run();
        if (poison)
          rank.afterCommand(*step.called, place.inner);
        endpoint.progress();
      }
      if (poison)
        rank.aroundCall();
      place.inner = -1;
    }
    if (isTracing)
      backend.mark(index + 1);
    if (poison)
      rank.afterCommand(action, index);
    endpoint.progress();
  }
  if (std::exchange(capture.backend, nullptr))
    backend.endCapture(*action.action);
  backend.finish();
  if (isTracing)
    traces[rank.rank].add(
        static_cast<uint32_t>(action.action - program.data.actions.data()),
        action.commands.size(),
        [&](size_t number) { return backend.passed(number); });
  if (poison)
    rank.afterAction();
}

void cleave_session::run(std::string_view name) {
  if (failure.status != CLEAVE_OK)
    fail(CLEAVE_BAD_ARGUMENT,
         "the session has failed before: " + failure.message);
  if (std::none_of(program.data.actions.begin(), program.data.actions.end(),
                   [&](const Action &entry) {
                     return entry.name == name && !entry.isOnlyCalled();
                   }))
    fail(CLEAVE_BAD_ARGUMENT,
         "the program has no action \"" + std::string(name) + "\"");
  action = name;
  for (size_t rank = 0; isTracing && rank < ranks.size(); ++rank)
    if (const PreparedAction *own =
            ranks[rank] ? ranks[rank]->find(name) : nullptr) {
      traces[rank].makeRoom(own->commands.size());
      ranks[rank]->backend->makeMarks(own->commands.size() + 1);
    }
  {
    StepScope step;
    if (remote)
      remote->run(std::string(action));
    dispatch(Job::Run);
    if (remote) {
      remote->collect([this](const Failure &found) { recordFailure(found); },
                      [this] { return failure.status != CLEAVE_OK; });
      remote->takeWaits(waitedFor);
    }
  }
  ++runs;
  if (failure.status == CLEAVE_OK && isAborted) {
    failure.status = CLEAVE_RANK_FAILED;
    failure.action = name;
    failure.message = "another rank failed";
  }
  if (failure.status == CLEAVE_OK)
    return;
  if (failure.status == CLEAVE_TIMEOUT)
    blameTheLast();
  std::string where =
      failure.command < 0
          ? ""
          : ", command " + std::to_string(failure.command) +
                (failure.source.empty() ? "" : " (" + failure.source + ")");
  throw RuntimeError(failure.status,
                     "rank " + std::to_string(failure.rank) +
                         " failed in action \"" + failure.action + "\"" +
                         where + ": " + failure.message +
                         (isLost ? "; the rank does not respond" : ""));
}

void cleave_session::trace(bool enabled) {
  isTracing = enabled;
  if (remote)
    remote->trace(enabled);
}

std::vector<TraceEvent> &cleave_session::traced(int rank) {
  checkRank(rank);
  std::vector<TraceEvent> &events = traces[rank].events;
  if (!isHere(rank) && events.empty())
    events = remote->traced(rank);
  return events;
}

void cleave_session::checkRank(int rank) const {
  if (rank < 0 || static_cast<size_t>(rank) >= ranks.size())
    fail(CLEAVE_BAD_ARGUMENT, "rank " + std::to_string(rank) + " of " +
                                  std::to_string(ranks.size()));
}

void cleave_session::resetCounters() {
  counters.reset();
  if (remote)
    remote->resetCounters();
}

cleave_memory cleave_session::memory(int rank) const {
  if (!isHere(rank))
    return remote->memory(rank);
  cleave_memory out{};
  const Rank &entry = *ranks[rank];
  out.arena_bytes = entry.arenaBytes();
  out.touched_bytes = entry.touchedBytes;
  out.scratch_bytes = entry.scratchBytes + endpoints[rank]->bufferBytes();
  out.unplanned_bytes = entry.unplannedBytes;
  out.pool_bytes = stepPoolBytes();
  return out;
}
