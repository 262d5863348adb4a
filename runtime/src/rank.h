// One rank: its memory and its commands, ready to run. Everything that can be
// found out before a step (addresses, library primitives, peers) is found out
// by prepare(), which also is the check that no command leaves its arena.
#ifndef CLEAVE_RUNTIME_RANK_H
#define CLEAVE_RUNTIME_RANK_H

#include "cleave/runtime.h"
#include "loaded_program.h"
#include "memory.h"
#include "transport.h"

#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace cleave {

struct PreparedAction;

struct PreparedCommand {
  std::function<void()> run;
  const PreparedAction *called = nullptr; // instead of `run`: a Call
  const program::Command *command = nullptr;
};

struct PreparedAction {
  const program::Action *action = nullptr;
  std::vector<PreparedCommand> commands;
  // Poison mode: after command i, ranges that hold nothing live.
  struct Range {
    int32_t arena;
    int64_t begin, end;
  };
  std::vector<std::vector<Range>> dead;
};

class Rank {
public:
  Rank(cleave_program &program, int rank, int threads, bool poison);

  // On the rank's own thread: libraries keep state per thread.
  void prepare(Endpoint &endpoint, Counters &counters);

  // Ends what other threads do for the rank: nothing runs afterwards.
  void drop() { operations.clear(); }

  // Address of a buffer whose elements lie in [low, high) bytes from it.
  char *resolve(const program::BufferRef &ref, int64_t low, int64_t high) const;

  // Of the arenas that ranks of this class have.
  int64_t arenaBytes() const;

  const PreparedAction *find(std::string_view action) const;

  // Poison mode.
  void beforeAction();
  void aroundCall();
  void afterCommand(const PreparedAction &prepared, size_t command);
  void afterAction();

  const int rank, threads;
  const bool poison;
  int64_t touchedBytes = -1, scratchBytes = 0, unplannedBytes = 0;

private:
  // The rank's index on a part of a mesh axis.
  int64_t indexOn(const program::SubAxis &on) const;

  using Run = std::function<void()>;
  Run prepare(const program::Launch &launch);
  Run prepare(const program::Gemm &gemm);
  Run prepare(const program::Attention &attention);
  Run prepare(const program::GroupedGemm &grouped);
  Run prepare(const program::PlanRows &plan);
  Run prepare(const program::SortRows &sort);
  Run prepare(const program::PositionInExpert &order);
  Run prepare(const program::Copy &copy);
  Run prepare(const program::Fill &fill);
  void prepareAction(const program::Action &action, PreparedAction &prepared,
                     Endpoint &endpoint, const Counters &counters);
  const PreparedAction *prepareCall(const program::Call &call,
                                    Endpoint &endpoint,
                                    const Counters &counters);
  // The members of a collective, and which of them this rank is.
  std::pair<std::vector<int>, int>
  membersOf(const program::Collective &collective) const;
  std::vector<std::vector<int>> groupsOf(uint32_t ownClass) const;
  CollectiveCall makeCall(const program::Collective &collective,
                          const program::Command &command,
                          const Counters &counters) const;
  void *workspace(const program::BufferRef &planned, int64_t plannedBytes,
                  int64_t neededBytes);
  void planPoison(PreparedAction &prepared) const;
  void noteTouched(size_t arena, int64_t end);

  cleave_program &program;
  const program::Program &data;
  std::vector<int64_t> axisIndex, axisSize;
  cleave_ctx ctx;
  std::vector<Memory> arenas;
  std::vector<int64_t> touchedHigh; // per arena, in this action
  std::vector<PreparedAction> actions;
  // What is called, once for each set of slots: action, then bytes per arena.
  std::map<std::pair<uint32_t, std::vector<int64_t>>,
           std::unique_ptr<PreparedAction>>
      variants;
  std::vector<int64_t> moved; // bytes per arena, of the call being prepared
  std::vector<std::unique_ptr<Operation>> operations;
  // One buffer serves all commands: they run one after the other.
  Memory unplanned;
  int64_t unplannedNeed = 0;
  std::atomic<int64_t> *attentionFlops = nullptr; // in the session's counters
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_RANK_H
