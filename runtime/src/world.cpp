// Joins the processes of a job, watches whether they are alive, and leaves the
// job.

#include "world.h"

#include "cleave/launcher.h"
#include "tcp_wire.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace cleave;

namespace {
std::unique_ptr<World> world;

constexpr std::chrono::milliseconds lookEvery{20};

// Returns an identifier of the kernel and its process-id namespace. Processes
// with the same identifier can watch each other. The name of the machine would
// not distinguish containers.
std::string placeOfProcesses() {
  std::string place;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), place);
  std::error_code ignored;
  return place + " " +
         std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
}

std::string nameOfMachine() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

cpu_set_t affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return set;
}

Wire *openWire() {
  std::error_code error;
  std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  std::string path =
      (self.parent_path().parent_path() / "lib" / "libcleave-mpi.so").string();
  if (const char *given = std::getenv("CLEAVE_MPI_LIBRARY"))
    path = given;
  // Open MPI's plug-ins find its symbols only if the library is loaded with
  // RTLD_GLOBAL.
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    fail(CLEAVE_UNSUPPORTED,
         std::string("the mpi transport cannot be loaded (") + dlerror() +
             "); install libopenmpi-dev and build again");
  auto open = reinterpret_cast<OpenWire>(dlsym(library, openWireSymbol));
  if (!open)
    fail(CLEAVE_UNSUPPORTED, path + ": is not the mpi transport");
  return open();
}
} // namespace

void Patience::wait() {
  if (round < eager) {
    ++round;
    if (eager > 100)
      __builtin_ia32_pause();
    else
      sched_yield();
    return;
  }
  usleep(sleep);
  sleep = std::min(sleep * 2, longest);
}

World &World::get() {
  if (!world)
    world.reset(new World());
  return *world;
}

World *World::joined() { return world.get(); }

World::World() {
  std::optional<Launcher> found = launcher();
  if (!found)
    fail(CLEAVE_BAD_ARGUMENT,
         "the mpi transport needs a launcher: mpirun -n N");
  std::string size = std::to_string(found->size);
  if (!found->hasMpi && !found->hasAddress)
    fail(CLEAVE_BAD_ARGUMENT,
         found->variable + " is " + size +
             ", but the launcher brings neither MPI nor MASTER_ADDR and "
             "MASTER_PORT; start with mpirun -n " +
             size);
  link = found->hasMpi ? openWire() : openTcpWire().release();
  if (link->size() != found->size)
    fail(CLEAVE_BAD_ARGUMENT, found->variable + " is " + size +
                                  ", but MPI has started " +
                                  std::to_string(link->size()) + " processes");
  control = link->openChannel();
  Patience patience(false, 1000);
  while (!link->channelReady(control))
    patience.wait();
  meet();
  if (found->localRank)
    local = static_cast<int>(*found->localRank);
  notes = std::make_unique<Board>(*link, control, Note);
  if (link->rank() != 0)
    pulse = std::make_unique<Pulse>(*link, control, Beat);
}

void World::beat() {
  if (!heart)
    heart = std::make_unique<Heart>(*link, control, Beat);
}

// Tells all other processes the machine, the process id and the cores of this
// one, and receives theirs.
void World::meet() {
  cpu_set_t own = affinity();
  Packet packet;
  packet.add(placeOfProcesses()).add(nameOfMachine());
  packet.add(static_cast<int64_t>(getpid())).add(own);
  processes.resize(size());
  processes[rank()] = {nameOfMachine(), getpid()};
  std::vector<Wire::Request> sends(size());
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank())
      link->send(sends[peer], control, peer, Data, packet.bytes.data(),
                 packet.bytes.size());
  int sharers = 1; // ranks that run on the same cores
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank())
      continue;
    Packet theirs = receive(peer, Data);
    std::string place = theirs.takeText(), machine = theirs.takeText();
    Process &process = processes[peer];
    process.host = machine;
    process.pid = theirs.take<int64_t>();
    auto mask = theirs.take<cpu_set_t>();
    if (place != placeOfProcesses())
      continue;
    local += peer < rank();
    sharers += CPU_EQUAL(&mask, &own);
    process.watch = static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0));
  }
  cores = std::max(1, CPU_COUNT(&own) / sharers);
  isCrowded = CPU_COUNT(&own) < sharers;
  for (int peer = 0; peer < size(); ++peer)
    if (sends[peer].active)
      finishRequest(sends[peer], peer, false, 0);
}

bool World::hasEnded(int rank) const {
  if (link->hasGone(rank))
    return true;
  pollfd watched{processes[rank].watch, POLLIN, 0};
  return watched.fd >= 0 && ::poll(&watched, 1, 0) == 1;
}

std::string World::describe(int rank) const {
  if (!processes[rank].pid) // not known yet
    return "the process of rank " + std::to_string(rank);
  return "process " + std::to_string(processes[rank].pid) + " of rank " +
         std::to_string(rank) + " on " + processes[rank].host;
}

void World::checkAlive() {
  Clock::duration now = Clock::now().time_since_epoch();
  if (now - Clock::duration(looked.load()) < lookEvery)
    return;
  looked = now.count();
  for (int peer = 0; peer < size(); ++peer)
    needAlive(peer);
}

void World::needAlive(int rank) {
  if (!hasEnded(rank))
    return;
  lose();
  throw RuntimeError(CLEAVE_RANK_FAILED, describe(rank) + " has ended", rank);
}

void World::needHost() {
  if (pulse->secondsOfSilence() <= hostPatience)
    return;
  lose();
  throw RuntimeError(CLEAVE_TIMEOUT,
                     "rank 0 does not respond: " + describe(0) +
                         " has given no sign of life for " +
                         std::to_string(static_cast<int>(hostPatience)) + " s",
                     0);
}

World::Clock::time_point World::limitOf(int64_t bytes) const {
  if (patience <= 0)
    return Clock::time_point::max();
  std::chrono::duration<double> all(patience + double(bytes) / 1e7);
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(all);
}

void World::needAnswer(int rank) {
  lose();
  throw RuntimeError(CLEAVE_TIMEOUT,
                     describe(rank) + " does not respond: for " +
                         std::to_string(static_cast<int>(patience)) +
                         " s it has neither taken nor sent anything",
                     rank);
}

void World::finishRequest(Wire::Request &request, int peer, bool isReceive,
                          int64_t most, int64_t *bytes) {
  Patience waiting(false, 500);
  Clock::time_point limit = limitOf(most);
  while (true) {
    bool isGone = hasEnded(peer); // its last message is still read
    if (link->test(request, bytes))
      return;
    if (isGone)
      needAlive(peer);
    if (waitsForHost(peer))
      needHost();
    if (Clock::now() > limit) {
      link->drop(request, isReceive);
      needAnswer(peer);
    }
    waiting.wait();
  }
}

void World::send(int to, Tag tag, const void *data, int64_t bytes) {
  auto *at = static_cast<const char *>(data);
  do {
    int64_t piece = std::min(bytes, Wire::longestMessage);
    Wire::Request request;
    link->send(request, control, to, tag, at, piece);
    finishRequest(request, to, false, piece);
    at += piece;
    bytes -= piece;
  } while (bytes > 0);
}

bool World::poll(int from, Tag tag, Packet &packet) {
  int64_t bytes = 0;
  if (!link->probe(control, from, tag, bytes))
    return false;
  packet = Packet();
  packet.bytes.resize(bytes);
  Wire::Request request;
  link->receive(request, control, from, tag, packet.bytes.data(), bytes);
  finishRequest(request, from, true, bytes);
  return true;
}

Packet World::receive(int from, Tag tag) {
  Packet packet;
  Patience waiting(false, 1000);
  Clock::time_point limit = limitOf(0);
  while (true) {
    bool isGone = hasEnded(from);
    if (poll(from, tag, packet))
      return packet;
    if (isGone)
      needAlive(from);
    if (waitsForHost(from))
      needHost();
    if (Clock::now() > limit)
      needAnswer(from);
    waiting.wait();
  }
}

void World::receive(int from, Tag tag, void *data, int64_t bytes) {
  auto *at = static_cast<char *>(data);
  do {
    int64_t piece = std::min(bytes, Wire::longestMessage), got = 0;
    Wire::Request request;
    link->receive(request, control, from, tag, at, piece);
    finishRequest(request, from, true, piece, &got);
    if (got != piece)
      fail(CLEAVE_INTERNAL, "a message of " + std::to_string(got) +
                                " bytes came, expected " +
                                std::to_string(piece));
    at += piece;
    bytes -= piece;
  } while (bytes > 0);
}

void World::leave(int code, bool isLost) {
  std::fflush(nullptr);
  heart.reset();
  if (isLost)
    _exit(code);
  notes->close();
  link->close();
}

void World::finish(int code) {
  std::fflush(nullptr);
  heart.reset();
  // The request Quit; see remote.h.
  Packet quit;
  for (int peer = 0; peer < size(); ++peer)
    if (hasEnded(peer))
      lose();
  quit.add(int32_t(0)).add(int32_t(code)).add(isLost.load());
  std::vector<Wire::Request> sends(size());
  try {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank() && !hasEnded(peer))
        link->send(sends[peer], control, peer, Command, quit.bytes.data(),
                   quit.bytes.size());
    // A process that does not respond within this time never will. The launcher
    // may be about to kill the remaining processes.
    Clock::time_point limit = Clock::now() + std::chrono::milliseconds(500);
    for (int peer = 0; peer < size(); ++peer) {
      Patience patience(false, 1000);
      auto isPending = [&] {
        return (sends[peer].active && !link->test(sends[peer], nullptr)) ||
               (isLost && (processes[peer].watch >= 0 || link->seesEnds()) &&
                !hasEnded(peer));
      };
      while (peer != rank() && isPending() && (!isLost || Clock::now() < limit))
        patience.wait();
    }
  } catch (const RuntimeError &) {
    isLost = true;
  }
  leave(code, isLost);
}
