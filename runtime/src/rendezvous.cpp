// Connects the processes of a job without MPI; see rendezvous.h.

#include "rendezvous.h"

#include "error.h"
#include "quiet_thread.h"
#include "transport.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

using namespace cleave;

namespace {
using Clock = Socket::Clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t magic = 0x31656c6576616c63; // both ends have the same build
constexpr const char *inherited = "CLEAVE_RENDEZVOUS_FILE";

// The interval at which the host signals that it is alive.
constexpr milliseconds beatEvery{1000};

// The number of seconds that an executable may take, after the host has
// replaced itself by exec, until it listens again.
constexpr double starting = 60;

// The messages of a connection, in this order: Greeting from the host, Call
// from the worker, and one or more Welcome from the host.
struct Greeting {
  uint64_t magic = ::magic;
};
struct Call {
  uint64_t magic = ::magic, job = 0;
  int64_t rank = 0, size = 0;
};
struct Welcome {
  uint64_t magic = ::magic;
  int32_t isNeeded = 0, code = 0;
  int32_t isSignOfLife = 0; // if 1: another Welcome follows
  char refusal[240] = {};
};

// Returns a name for the job, by which processes of other jobs are rejected.
// TORCHELASTIC_RESTART_COUNT is not part of it, because each machine counts its
// own failures.
uint64_t nameOfJob() {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char *name : {"MASTER_PORT", "TORCHELASTIC_RUN_ID"}) {
    const char *text = std::getenv(name);
    for (text = text ? text : ""; *text; ++text)
      hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3;
    hash = (hash ^ 0x100) * 0x100000001b3;
  }
  return hash;
}

Clock::time_point in(double given) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(given));
}

std::string inSeconds(double given) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", given);
  return text;
}

// Returns the listening socket, if this executable has replaced another one by
// exec and inherited the socket; otherwise an empty socket.
Socket inheritedListener() {
  const char *text = std::getenv(inherited);
  int file = -1, process = 0;
  if (!text || std::sscanf(text, "%d:%d", &file, &process) != 2 ||
      process != getpid() || fcntl(file, F_GETFD) < 0)
    return Socket();
  return Socket(file);
}
} // namespace

Address cleave::rendezvousAddress() {
  constexpr int64_t mostProcesses = 1 << 20;
  std::optional<Launcher> job = launcher();
  if (job && job->size > mostProcesses)
    fail(CLEAVE_BAD_ARGUMENT,
         job->variable + " is " + std::to_string(job->size) +
             ", expected at most " + std::to_string(mostProcesses));
  if (job && job->rank >= job->size)
    fail(CLEAVE_BAD_ARGUMENT,
         "RANK is " + std::to_string(job->rank) + ", expected at most " +
             std::to_string(job->size - 1) + ", as " + job->variable + " is " +
             std::to_string(job->size));
  Address address;
  const char *host = std::getenv("MASTER_ADDR");
  address.host = host ? host : "";
  auto portIn = [](const char *name, long last) {
    const char *text = std::getenv(name);
    char *end = nullptr;
    long port = text ? std::strtol(text, &end, 10) : 0;
    if (!text || *end || port < 1 || port > last)
      fail(CLEAVE_BAD_ARGUMENT, std::string(name) + " is \"" +
                                    (text ? text : "") + "\", expected 1 to " +
                                    std::to_string(last));
    return static_cast<int>(port);
  };
  address.port = std::getenv("CLEAVE_PORT") ? portIn("CLEAVE_PORT", 65535)
                                            : portIn("MASTER_PORT", 65534) + 1;
  if (address.host.empty())
    fail(CLEAVE_BAD_ARGUMENT, "MASTER_ADDR is empty, expected the machine of "
                              "rank 0");
  return address;
}

double cleave::joinSeconds() {
  const char *text = std::getenv("CLEAVE_JOIN_TIMEOUT");
  if (!text || !*text)
    return 300;
  char *end = nullptr;
  double given = std::strtod(text, &end);
  if (*end || !(given > 0 && given <= 1e6))
    fail(CLEAVE_BAD_ARGUMENT, std::string("CLEAVE_JOIN_TIMEOUT is \"") + text +
                                  "\", expected seconds, above 0 and at most "
                                  "1000000");
  return given;
}

//--- The host ----------------------------------------------------------------

Rendezvous::Rendezvous(const Launcher &job, Address given)
    : job(job), address(std::move(given)), listener(inheritedListener()),
      come(job.size) {
  if (!listener) {
    listener = listenAt(address.host, address.port);
    fcntl(listener.file, F_SETFD, 0); // survives exec
    std::string text =
        std::to_string(listener.file) + ":" + std::to_string(getpid());
    setenv(inherited, text.c_str(), 1);
  }
  thread = startQuietThread([this] { answer(); });
}

Rendezvous::~Rendezvous() {
  {
    std::lock_guard lock(mutex);
    isEnding = true;
  }
  thread.join();
  unsetenv(inherited);
}

void Rendezvous::answer() {
  while (true) {
    std::vector<pollfd> watched;
    {
      std::lock_guard lock(mutex);
      if (isEnding)
        return;
      look();
      watched.push_back({listener.file, POLLIN, 0});
      for (const std::vector<Socket> *some : {&callers, &come})
        for (const Socket &socket : *some)
          if (socket)
            watched.push_back({socket.file, POLLIN, 0});
    }
    ::poll(watched.data(), watched.size(), 20);
    // Without this pause, an incomplete greeting from an unknown process would
    // keep a core busy.
    std::this_thread::sleep_for(milliseconds(5));
  }
}

void Rendezvous::look() {
  while (Socket caller = acceptFrom(listener)) {
    Greeting greeting;
    if (caller.send(&greeting, sizeof(greeting)) == sizeof(greeting))
      callers.push_back(std::move(caller));
  }
  char ignored = 0;
  for (Socket &socket : come)
    if (socket && socket.peek(&ignored, 1) < 0)
      socket = Socket(); // the worker may connect again
  if (Clock::now() - beaten > beatEvery) {
    beaten = Clock::now();
    Welcome word;
    word.isSignOfLife = 1;
    for (Socket &socket : come)
      if (socket && socket.send(&word, sizeof(word)) !=
                        static_cast<int64_t>(sizeof(word)))
        socket = Socket(); // it does not read; it may connect again
  }
  std::erase_if(callers, [&](Socket &caller) {
    Call call;
    int64_t there = caller.peek(&call, sizeof(call));
    if (there < static_cast<int64_t>(sizeof(call)))
      return there < 0;
    caller.receive(&call, sizeof(call));
    if (call.magic != magic)
      return true;
    std::string rank = std::to_string(call.rank);
    if (call.job != nameOfJob())
      welcome(caller, false, 3, "another job has this port");
    else if (call.size != job.size || call.rank < 1 || call.rank >= job.size)
      welcome(caller, false, 2,
              "rank " + rank + " of " + std::to_string(call.size) +
                  " does not belong to the " + std::to_string(job.size) +
                  " processes of rank 0");
    else if (come[call.rank])
      welcome(caller, false, 2, "there is another process with RANK = " + rank);
    else
      come[call.rank] = std::move(caller);
    return true;
  });
}

void Rendezvous::welcome(const Socket &socket, bool isNeeded, int code,
                         const std::string &refusal) const {
  Welcome word;
  word.isNeeded = isNeeded;
  word.code = code;
  refusal.copy(word.refusal, sizeof(word.refusal) - 1);
  (void)socket.send(&word, sizeof(word));
}

std::vector<int> Rendezvous::missing() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < static_cast<int>(come.size()); ++rank)
    if (!come[rank])
      ranks.push_back(rank);
  return ranks;
}

bool Rendezvous::await(double given) {
  Clock::time_point deadline = in(given);
  while (true) {
    {
      std::lock_guard lock(mutex);
      if (missing().empty())
        return true;
    }
    if (Clock::now() > deadline)
      return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
}

std::vector<Socket> Rendezvous::gather(double given) {
  bool areHere = await(given);
  std::lock_guard lock(mutex);
  isEnding = true;
  for (const Socket &socket : come)
    if (socket)
      welcome(socket, areHere, 3);
  if (!areHere)
    fail(CLEAVE_TIMEOUT,
         "missing ranks: " + print(missing()) +
             ": their processes have not come to " + address.text() +
             " within " + inSeconds(given) + "; start all " +
             std::to_string(job.size) +
             " with the same MASTER_ADDR and MASTER_PORT, and where they need "
             "longer set CLEAVE_JOIN_TIMEOUT");
  return std::move(come);
}

void Rendezvous::dismiss(int code, double given, double alone) {
  auto isAlone = [&] {
    std::lock_guard lock(mutex);
    return missing().size() + 1 == come.size();
  };
  if (!await(std::min(given, alone)) && !isAlone())
    await(given - alone);
  std::lock_guard lock(mutex);
  isEnding = true;
  for (const Socket &socket : come)
    if (socket)
      welcome(socket, false, code);
}

//--- The workers -------------------------------------------------------------

Socket cleave::reachHost(const Launcher &job, const Address &address,
                         double given) {
  Clock::time_point deadline = in(given);
  std::string reason = "it does not answer";
  bool wasGreeted = false;
  while (true) {
    Socket socket = reach(address.host, address.port, deadline, reason);
    Greeting greeting{0};
    // While the host replaces its executable by exec, a connection to it may
    // fail or stay unanswered. So a worker that was greeted before waits up to
    // `starting` seconds for the next greeting.
    if (socket && socket.receiveAll(&greeting, sizeof(greeting),
                                    wasGreeted ? in(starting) : deadline)) {
      if (greeting.magic != magic)
        fail(CLEAVE_BAD_ARGUMENT,
             "what listens at " + address.text() +
                 " is not the process of rank 0; choose another port with "
                 "CLEAVE_PORT, the same for all processes");
      Call call;
      call.job = nameOfJob();
      call.rank = job.rank;
      call.size = job.size;
      (void)socket.send(&call, sizeof(call));
      wasGreeted = true;
      // The host may compile first. Meanwhile it signals that it is alive.
      Welcome word;
      bool hasWord = false;
      do {
        hasWord = socket.receiveAll(&word, sizeof(word), in(given));
        if (!hasWord && socket.peek(&word, 1) >= 0)
          throw RuntimeError(
              CLEAVE_TIMEOUT,
              "rank 0 at " + address.text() +
                  " does not respond: it has given no sign of life "
                  "for " +
                  inSeconds(given),
              0);
      } while (hasWord && word.isSignOfLife);
      if (hasWord) {
        if (word.isNeeded)
          return socket;
        if (word.refusal[0])
          throw RuntimeError(
              word.code == 2 ? CLEAVE_BAD_ARGUMENT : CLEAVE_RANK_FAILED,
              std::string("rank 0 at ") + address.text() + ": " + word.refusal);
        throw Dismissed{word.code};
      }
      // The host's executable has ended. Another one may replace it and listen
      // again.
      deadline = Clock::now() + seconds(5);
      reason = "it has ended";
    }
    if (Clock::now() > deadline) {
      if (wasGreeted)
        throw RuntimeError(CLEAVE_RANK_FAILED,
                           "the process of rank 0 has ended", 0);
      throw RuntimeError(CLEAVE_TIMEOUT,
                         "rank " + std::to_string(job.rank) +
                             " has not reached rank 0 at " + address.text() +
                             " within " + inSeconds(given) + ": " + reason,
                         0);
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
}
