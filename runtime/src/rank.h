// One rank: its memory and its commands, ready to run. Everything that can be
// found out before a step (addresses, library primitives, peers) is found out
// by prepare(), which also is the check that no command leaves its arena.
#ifndef CLEAVE_RUNTIME_RANK_H
#define CLEAVE_RUNTIME_RANK_H

#include "backend.h"
#include "cleave/runtime.h"
#include "loaded_program.h"
#include "operands.h"
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
  // Nothing in it waits for the host; its transfers.
  bool mayReplay = true;
  std::vector<Operation *> operations;
  // Poison mode: after command i, ranges that hold nothing live.
  struct Range {
    int32_t arena;
    int64_t begin, end;
  };
  std::vector<std::vector<Range>> dead;
};

class Rank {
public:
  Rank(cleave_program &program, int rank, std::unique_ptr<Backend> backend,
       bool poison);

  // On the rank's own thread: libraries keep state per thread.
  void prepare(Endpoint &endpoint, Counters &counters);

  // Ends what other threads do for the rank: nothing runs afterwards.
  void drop() {
    backend->forget();
    operations.clear();
  }

  // Address of a buffer whose elements are in [low, high) bytes from it.
  char *resolve(const program::BufferRef &ref, int64_t low, int64_t high) const;

  // Of the arenas that ranks of this class have.
  int64_t arenaBytes() const;

  const PreparedAction *find(std::string_view action) const;

  // Where the rank's tile of a buffer is: its arena, and the first byte.
  std::pair<Storage *, int64_t> find(const program::Boundary &entry) const;

  // Counts the transfers of an action that the backend has replayed.
  static void bookReplay(const PreparedAction &action);

  // Poison mode.
  void beforeAction();
  void aroundCall();
  void afterCommand(const PreparedAction &prepared, size_t command);
  void afterAction();

  const int rank;
  const bool poison;
  const std::unique_ptr<Backend> backend; // outlives the memory
  int64_t touchedBytes = -1, scratchBytes = 0, unplannedBytes = 0;

private:
  // The rank's index on a part of a mesh axis.
  int64_t indexOn(const program::SubAxis &on) const;

  using Run = Backend::Run;
  // resolve(), for the command that is being prepared, which does that there.
  char *use(const Operand &operand);
  // Of all that the command uses, but for scratch memory that need not be
  // planned: see workspace().
  template <class Op> Addresses useAll(const Op &op);
  Run prepare(const program::Launch &launch);
  Run prepare(const program::Gemm &gemm);
  Run prepare(const program::Attention &attention);
  Run prepare(const program::GroupedGemm &grouped);
  Run prepare(const program::Convolution &convolution);
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
  // Of a library call: bytes of scratch memory, and where they are.
  template <class Op> int64_t needOf(const Op &op) const;
  template <class Op> void *workspace(const Op &op, int64_t neededBytes);
  void planPoison(PreparedAction &prepared) const;
  void noteTouched(size_t arena, int64_t begin, int64_t end);

  cleave_program &program;
  const program::Program &data;
  std::vector<int64_t> axisIndex, axisSize;
  std::vector<std::unique_ptr<Storage>> arenas;
  std::vector<Access> accesses;     // of the command that is being prepared
  std::vector<int64_t> touchedHigh; // per arena, in this action
  std::vector<PreparedAction> actions;
  // What is called, once for each set of slots: action, then bytes per arena.
  std::map<std::pair<uint32_t, std::vector<int64_t>>,
           std::unique_ptr<PreparedAction>>
      variants;
  std::vector<int64_t> moved; // bytes per arena, of the call being prepared
  std::vector<std::unique_ptr<Operation>> operations;
  // One buffer serves all commands: they run one after the other.
  std::unique_ptr<Storage> unplanned;
  int64_t unplannedNeed = 0;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_RANK_H
