// Handles failures of a session: records which rank failed and where, finds the
// rank that caused the failure if ranks wait for each other, implements the
// watchdog of the thread that waits for an action, and injects failures for
// tests.

#include "session.h"
#include "session_options.h"

#include <algorithm>
#include <chrono>

using namespace cleave;
using namespace cleave::program;

// The watchdog of the caller, the thread that waits for an action. In a
// collective, the waiting ranks detect ranks that do not arrive. In an action
// without collectives, or after the last collective, no rank waits, so only the
// caller can detect a rank that does not end.
void cleave_session::watchTheLast() {
  Failure found;
  {
    std::lock_guard lock(mutex);
    auto last = std::find(isWorking.begin(), isWorking.end(), true);
    bool isPart = busy > 0 && busy < static_cast<int>(threads.size());
    if (!isPart || failure.status != CLEAVE_OK || last == isWorking.end() ||
        std::chrono::steady_clock::now() - firstDone <
            std::chrono::duration<double>(callersWatchdogOf(timeoutSeconds)))
      return;
    found.status = CLEAVE_TIMEOUT;
    found.rank = static_cast<int>(last - isWorking.begin());
    found.action = action;
    found.command = -1;
    found.message = "the others have been ready for longer than the "
                    "watchdog's time";
  }
  recordFailure(found);
}

// Describes the collective in which the other ranks will wait for a failed
// rank: the next collective in the failed rank's commands.
std::string cleave_session::nextCollective(const Place &place) const {
  auto search = [&](const PreparedAction *action, int from) -> std::string {
    for (size_t i = std::max(from, 0); action && i < action->commands.size();
         ++i) {
      const Command &command = *action->commands[i].command;
      if (auto *collective = std::get_if<Collective>(&command.op))
        return std::string("; the others wait for it in ") +
               nameOf(collective->kind) + " \"" +
               program.data.strings[collective->purpose] + "\" (" +
               program.data.strings[command.source] + ")";
    }
    return "";
  };
  std::string found;
  if (place.inner >= 0)
    found = search(place.called, place.inner);
  return found.empty() ? search(place.action, place.command) : found;
}

// Returns the message of a failure. If it occurred in a called action, the
// label of the Call and the command are added before `what`.
std::string cleave_session::describe(const Place &place,
                                     const std::string &what) const {
  if (place.inner < 0)
    return what;
  auto &call =
      std::get<Call>(place.action->commands[place.command].command->op);
  const std::string &label = program.data.strings[call.label];
  return "in command " + std::to_string(place.inner) + " of \"" +
         place.called->action->name + "\"" +
         (label.empty() ? "" : " (" + label + ")") + ": " + what;
}

void cleave_session::recordFailure(cleave_status status, int rank,
                                   const std::string &message,
                                   const Place &place) {
  const Command *command = place.at();
  Failure found;
  found.status = status;
  found.rank = rank;
  found.action = action;
  found.command = place.command;
  found.source = command ? program.data.strings[command->source] : "";
  found.message = message;
  recordFailure(found);
}

void cleave_session::recordFailure(const Failure &found) {
  {
    std::lock_guard lock(mutex);
    if (failure.status == CLEAVE_OK)
      failure = found;
    wakeRanks.notify_all();
    wakeCaller.notify_all();
  }
  transport->abort();
}

// If ranks wait for each other in a chain, names the last rank of the chain as
// the one that caused the failure.
void cleave_session::blameTheLast() {
  std::lock_guard lock(mutex);
  std::vector<bool> seen(ranks.size());
  std::string chain;
  int rank = failure.rank;
  while (rank >= 0 && !seen[rank] && waitedFor[rank] >= 0) {
    seen[rank] = true;
    chain += (chain.empty() ? "; rank " : ", which waits for rank ") +
             std::to_string(rank);
    rank = waitedFor[rank];
  }
  if (chain.empty())
    return;
  failure.message +=
      chain + (seen[rank] ? ", which waits for rank " + std::to_string(rank) +
                                ": all wait for each other"
                          : ", which waits for rank " + std::to_string(rank) +
                                ": it is the one that is missing");
  failure.rank = rank;
}

void cleave_session::injectFailure(int rank, int64_t run, int command,
                                   bool hang) {
  checkRank(rank);
  if (run < 0 || command < 0)
    fail(CLEAVE_BAD_ARGUMENT, "negative run or command");
  injection = {rank, command, runs + run, hang}; // in every process
  if (remote)
    remote->injectFailure(rank, run, command, hang);
}

void cleave_session::injected(Rank &rank, int command) {
  if (!injection.hang)
    fail(CLEAVE_RANK_FAILED,
         "failure injected before command " + std::to_string(command));
  // The rank does not respond until the other ranks have given up.
  std::unique_lock lock(mutex);
  wakeRanks.wait(lock, [&] { return failure.status != CLEAVE_OK; });
  throw Aborted();
}
