// Resolves the options of a session for this machine.

#include "session_options.h"

#include "error.h"
#include "world.h"

#include <thread>

using namespace cleave;
using namespace cleave::program;

static int coreCount() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int cleave::threadsPerRank(const cleave_session_options &options, int ranks,
                           World *world) {
  constexpr int most = 1024; // a larger number is a mistake
  if (options.threads_per_rank > most)
    fail(CLEAVE_BAD_ARGUMENT, std::to_string(options.threads_per_rank) +
                                  " threads per rank, expected at most " +
                                  std::to_string(most));
  if (options.threads_per_rank > 0)
    return options.threads_per_rank;
  return world ? world->coresPerRank() : std::max(1, coreCount() / ranks);
}

// Returns whether the program has asynchronous collectives, that is, computes
// while a collective is in flight (SendRecv aside).
static bool startsCollectives(const Program &program) {
  for (const Action &action : program.actions)
    for (const Command &command : action.commands) {
      auto *collective = std::get_if<Collective>(&command.op);
      if (collective && collective->token >= 0 &&
          collective->kind != CollectiveKind::SendRecv)
        return true;
    }
  return false;
}

TransportOptions cleave::transportOptionsOf(
    const Program &program, const cleave_session_options &options,
    int threadsPerRank, double timeoutSeconds, World *world) {
  TransportOptions result;
  result.ranks = static_cast<int>(program.numRanks());
  result.timeoutSeconds = timeoutSeconds;
  result.linkLatency = options.link_latency;
  result.linkBytesPerSecond = options.link_bytes_per_second;
  bool slowLinks =
      options.link_latency > 0 || options.link_bytes_per_second > 0;
  if (slowLinks && program.device == Device::Cuda)
    fail(CLEAVE_BAD_ARGUMENT, "links can be made slow only between ranks on "
                              "CPUs; this program is for CUDA devices");
  if (world) {
    if (slowLinks)
      fail(CLEAVE_BAD_ARGUMENT, "links can be made slow only between ranks of "
                                "one process (transport local)");
    result.spin =
        threadsPerRank <= world->coresPerRank() && world->hasOwnCore();
    return result;
  }
  int64_t ranks = result.ranks;
  result.spin = ranks * threadsPerRank <= coreCount();
  bool pays = slowLinks || ranks * (threadsPerRank + 1) <= coreCount();
  result.commThread = startsCollectives(program) &&
                      (options.comm_thread ? options.comm_thread > 0 : pays);
  return result;
}
