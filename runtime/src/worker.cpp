// A worker process serves one rank: it executes the host's requests until the
// host dismisses it.

#include "cleave/io/Escape.h"
#include "cleave/launcher.h"
#include "host_watch.h"
#include "rendezvous.h"
#include "session.h"
#include "session_options.h"
#include "tcp_wire.h"
#include "tiles.h"
#include "world.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

using namespace cleave;

namespace {
// Returns the name of the command that the user has started, for messages.
const char *speaker() { return program_invocation_short_name; }

class Worker {
public:
  explicit Worker(World &world) : world(world) {}

  int serve() {
    Packet packet;
    Patience fresh(false, 1000), patience = fresh;
    while (true) {
      // hasEnded() must be called before poll(), so that the host's last
      // message is read even if the host ends between the two calls.
      bool isGone = world.hasEnded(host);
      if (world.poll(host, World::Command, packet)) {
        if (!obey(packet))
          return code;
        patience = fresh;
        continue;
      }
      if (isGone)
        hostIsGone();
      world.needHost();
      patience.wait();
    }
  }

private:
  static constexpr int host = 0;

  struct Entry {
    std::unique_ptr<cleave_program> program;
    std::unique_ptr<cleave_session> session;
    int kernels = -1; // descriptor of memory with kernels.so

    ~Entry() {
      // If a rank's thread did not respond, it still uses the program and the
      // session, so neither is freed.
      if (session && session->lost()) {
        session.release();
        program.release();
      }
      session.reset();
      program.reset();
      if (kernels >= 0)
        close(kernels);
    }
  };

  // Executes a request of the host. Returns false for the last one, Quit.
  bool obey(Packet &packet) {
    auto request = packet.take<Request>();
    if (request == Request::Quit) {
      quit(packet);
      return false;
    }
    auto id = packet.take<int32_t>();
    if (request == Request::Create) {
      create(id, packet);
      return true;
    }
    if (request == Request::Free) {
      sessions.erase(id);
      return true;
    }
    cleave_session *session = sessions[id].session.get();
    if (!session)
      fail(CLEAVE_INTERNAL, "the host speaks of a session that is not there");
    switch (request) {
    case Request::Run: {
      std::string action = packet.takeText();
      if (packet.take<bool>())
        session->resetCounters();
      Failure failure;
      bool isOwn = true;
      try {
        session->run(action);
      } catch (const RuntimeError &) {
        failure = session->failure;
        isOwn = failure.rank >= 0;
      }
      answer(failure, isOwn, session);
      break;
    }
    case Request::Inject: {
      auto rank = packet.take<int>();
      auto run = packet.take<int64_t>();
      auto command = packet.take<int>();
      session->injectFailure(rank, run, command, packet.take<bool>());
      break;
    }
    case Request::Trace:
      session->trace(packet.take<bool>());
      break;
    case Request::Traced: {
      std::vector<TraceEvent> &events = session->traced(world.rank());
      Packet reply;
      reply.add(traceClock()).add(events.size());
      reply.append(events.data(), events.size() * sizeof(TraceEvent));
      events.clear();
      world.send(host, World::Data, reply);
      break;
    }
    default:
      touch(request, *session, packet.take<int64_t>());
    }
    return true;
  }

  void touch(Request request, cleave_session &session, int64_t index) {
    const program::Boundary &entry = session.program.data.boundary.at(index);
    if (request == Request::Zero) {
      session.zero(world.rank(), entry);
      return;
    }
    auto [storage, at] = session.place(world.rank(), entry);
    int64_t bytes =
        elementCount(entry.localShape) * program::sizeOf(entry.dtype);
    std::vector<char> staging(storage->isHost() ? 0 : bytes);
    char *tile = storage->isHost() ? storage->data() + at : staging.data();
    if (request == Request::Write) {
      world.receive(host, World::Data, tile, bytes);
      if (!storage->isHost())
        storage->write(at, tile, bytes);
      return;
    }
    if (!storage->isHost())
      storage->read(at, tile, bytes);
    world.send(host, World::Data, tile, bytes);
  }

  void create(int32_t id, Packet &packet) {
    cleave_session_options options{};
    options.version = CLEAVE_RUNTIME_VERSION;
    options.threads_per_rank = packet.take<int32_t>();
    options.watchdog_seconds = packet.take<double>();
    options.poison = packet.take<int32_t>();
    // From now on the host may be silent for the watchdog's time, because it
    // may itself wait for ranks that long; at least for five seconds.
    world.needHostWithin(std::max(watchdogOf(options), 5.0));
    std::string transport = packet.takeText();
    options.transport = transport.c_str();
    Entry &entry = sessions[id];
    Failure failure;
    try {
      entry.program = parseProgram(packet.takeText());
      for (auto files = packet.take<size_t>(); files > 0; --files) {
        std::string name = packet.takeText(), bytes = packet.takeText();
        if (name == "kernels.so")
          entry.program->libraryPath = libraryOf(bytes, entry.kernels);
        else
          entry.program->images[name] = std::move(bytes);
      }
      WorkerPart part{id, [this] { listen(); }};
      entry.session =
          std::make_unique<cleave_session>(*entry.program, options, &part);
    } catch (const RuntimeError &error) {
      failure.status = error.status;
      failure.rank = world.rank();
      failure.message =
          "rank " + std::to_string(world.rank()) + ": " + error.what();
    }
    answer(failure, /*isOwn=*/true, entry.session.get());
  }

  // Returns a path from which dlopen can load the bytes.
  static std::string libraryOf(const std::string &bytes, int &file) {
    file = memfd_create("cleave-kernels", MFD_CLOEXEC);
    for (size_t at = 0; file >= 0 && at < bytes.size();) {
      ssize_t written = ::write(file, bytes.data() + at, bytes.size() - at);
      if (written <= 0)
        break;
      at += static_cast<size_t>(written);
    }
    return "/proc/self/fd/" + std::to_string(file);
  }

  void answer(const Failure &failure, bool isOwn, cleave_session *session) {
    Packet packet;
    failure.write(packet);
    packet.add(isOwn);
    packet.add(session ? session->waitedFor[world.rank()] : -1);
    packet.add(session ? session->memory(world.rank()) : cleave_memory{});
    size_t purposes = session ? session->counters.purposes.size() : 0;
    packet.add(purposes);
    for (size_t i = 0; i < purposes; ++i) {
      Counters::Entry &entry =
          session->counters.at(world.rank(), static_cast<int>(i));
      packet.add(entry.sent.load()).add(entry.received.load());
      packet.add(entry.calls.load());
    }
    packet.add(session ? session->counters.attentionFlops(world.rank()).load()
                       : int64_t(0));
    world.send(host, World::Reply, packet);
  }

  // Ends the process if the host requests it while the rank runs.
  void listen() {
    bool isGone = world.hasEnded(host);
    Packet packet;
    if (world.poll(host, World::Command, packet) &&
        packet.take<Request>() == Request::Quit)
      world.leave(packet.take<int32_t>(), /*isLost=*/true);
    if (isGone)
      hostIsGone();
    world.needHost();
  }

  void quit(Packet &packet) {
    code = packet.take<int32_t>();
    auto isLost = packet.take<bool>();
    if (!isLost)
      sessions.clear();
    world.leave(code, isLost);
  }

  [[noreturn]] void hostIsGone() {
    if (world.rank() == 1) // only one worker reports it
      printEscaped(stderr, "%s: error: the process of rank 0 has ended\n",
                   speaker());
    _exit(3);
  }

  World &world;
  std::map<int32_t, Entry> sessions;
  int code = 0;
};
} // namespace

int32_t cleave_is_worker(void) {
  std::optional<Launcher> found = launcher();
  return found && (found->hasMpi || found->hasAddress) && found->size > 1 &&
         found->rank > 0;
}

cleave_status cleave_await_workers(void) {
  return guarded([] { awaitCallers(); });
}

int32_t cleave_serve(void) {
  try {
    std::optional<HostWatch> watch;
    if (std::optional<Launcher> found = launcher(); found && found->hasMpi)
      watch.emplace(static_cast<int>(found->rank), joinSeconds());
    World &world = World::get();
    watch.reset();
    // After one of these signals the host finishes its step and saves. It needs
    // all ranks until then, so workers ignore the signals.
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU})
      std::signal(number, SIG_IGN);
    return Worker(world).serve();
  } catch (const Dismissed &word) {
    return word.code;
  } catch (const RuntimeError &error) {
    // Only the worker of rank 1 reports that the host has ended.
    World *world = World::joined();
    // Rank 1 also reports a host that does not respond. The other workers wait
    // before they end, because launchers end the job when the first process
    // fails.
    if (world && error.status == CLEAVE_TIMEOUT && error.rank == 0 &&
        world->rank() > 1) {
      usleep(500'000);
      _exit(3);
    }
    bool hostHasGone =
        world ? world->hasEnded(0)
              : error.status == CLEAVE_RANK_FAILED && error.rank == 0;
    if (!hostHasGone || launcher()->rank == 1)
      printEscaped(stderr, "%s: error: %s\n", speaker(), error.what());
    if (World::joined())
      World::joined()->leave(3, /*isLost=*/true);
    return error.status == CLEAVE_BAD_ARGUMENT ||
                   error.status == CLEAVE_UNSUPPORTED
               ? 2
               : 3;
  } catch (const std::exception &error) {
    printEscaped(stderr, "%s: error: %s\n", speaker(), error.what());
    return 3;
  }
}

int32_t cleave_finish(int32_t code) {
  if (!World::joined()) {
    std::optional<Launcher> found = launcher();
    if (!found || found->size <= 1)
      return code;
    try {
      if (!found->hasMpi) {
        dismissCallers(code);
        return code;
      }
      World::get(); // the workers wait there
    } catch (const RuntimeError &) {
      return code;
    }
  }
  World::get().finish(code);
  return code;
}
