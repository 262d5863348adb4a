// The host's side of a session with several processes: its requests to ranks in
// other processes. The workers' side is worker.cpp.
#ifndef CLEAVE_RUNTIME_REMOTE_H
#define CLEAVE_RUNTIME_REMOTE_H

#include "cleave/program.h"
#include "cleave/runtime.h"
#include "counters.h"
#include "error.h"
#include "loaded_program.h"
#include "packet.h"
#include "trace.h"
#include "world.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace cleave {

// The failure of a run; see cleave_failure.
struct Failure {
  cleave_status status = CLEAVE_OK;
  int rank = -1;
  std::string action, source, message;
  int command = -1;

  void write(Packet &packet) const;
  static Failure read(Packet &packet);
};

// The first number of a packet from the host, and what follows it. Workers
// answer the requests that are marked *.
enum class Request : int32_t {
  Quit,   // code, whether the run is lost
  Create, // * session, options, transport, program, kernels
  Free,   // session
  Write,  // session, buffer; the bytes follow as data
  Read,   // session, buffer; the bytes come back as data
  Zero,   // session, buffer
  Run,    // * session, action, whether to reset the counters
  Inject, // session, rank, run, command, hang
  Trace,  // session, whether to record events
  Traced, // session; clock, number and events come back as data
};

class Remote {
public:
  using OnFailure = std::function<void(const Failure &)>;

  // Asks the other processes to create the session, too; collect() receives
  // their answers.
  Remote(World &world, const cleave_program &program,
         const cleave_session_options &options, Counters &counters);
  ~Remote();

  void write(int rank, const program::Boundary &entry, const void *data,
             int64_t bytes);
  // Fills each vector with the tile of the rank to which it belongs.
  void read(const program::Boundary &entry,
            std::vector<std::pair<int, std::vector<char>>> &tiles);
  void zero(int rank, const program::Boundary &entry);
  void injectFailure(int rank, int64_t run, int command, bool hang);

  void trace(bool enabled);
  std::vector<TraceEvent> traced(int rank);

  // Starts the action on the ranks of other processes.
  void run(const std::string &action);
  // Reads the answers that have arrived.
  void look(const OnFailure &onFailure);
  // Waits for all answers: for the watchdog's time, but after a failure of the
  // run for only a second.
  void collect(const OnFailure &onFailure,
               const std::function<bool()> &hasFailed);

  // For each remote rank, stores the rank for which it waited in the last run,
  // if that is known.
  void takeWaits(std::vector<int> &waitedFor) const {
    for (size_t rank = 0; rank < waits.size(); ++rank)
      if (waits[rank] >= 0)
        waitedFor[rank] = waits[rank];
  }

  // The session's number, equal in all processes.
  int32_t id() const { return session; }

  void resetCounters() { toReset = true; }
  cleave_memory memory(int rank) const { return memories[rank]; }

private:
  Packet request(Request kind) const;
  void tellAll(const Packet &packet);
  void hasGone(int rank, const OnFailure &onFailure);
  int64_t indexOf(const program::Boundary &entry) const;

  World &world;
  const cleave_program &program;
  Counters &counters;
  const int32_t session;
  const double timeoutSeconds;
  bool toReset = false;      // counters, at the next run
  std::vector<bool> waiting; // by rank: its answer is outstanding
  std::vector<cleave_memory> memories;
  std::vector<int> waits;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_REMOTE_H
