// One rank: its memory and its commands, ready to run. prepare() computes
// everything that is known before a step (addresses, library primitives,
// peers), and checks that no command accesses memory outside its arena.
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
  const PreparedAction *called = nullptr; // for a Call, which has no `run`
  const program::Command *command = nullptr;
};

struct PreparedAction {
  const program::Action *action = nullptr;
  std::vector<PreparedCommand> commands;
  // True if no command of the action waits for the host, so that the action may
  // be recorded once and then replayed (CUDA graphs). `operations` are its
  // transfers.
  bool mayReplay = true;
  std::vector<Operation *> operations;
  // For the poison mode: for each command, the byte ranges that are poisoned
  // after it, because their values are not used any more.
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

  // Must run on the rank's own thread, because libraries keep state per thread.
  void prepare(Endpoint &endpoint, Counters &counters);

  // Destroys the rank's operations. Afterwards no thread runs one of them.
  void drop() {
    backend->forget();
    operations.clear();
  }

  // Returns the memory of an address. The caller will access the bytes from
  // `low` to `high` relative to the address; throws unless all of them are in
  // the arena.
  char *resolve(const program::BufferRef &ref, int64_t low, int64_t high) const;

  // Returns the total size of the arenas that this rank has.
  int64_t arenaBytes() const;

  const PreparedAction *find(std::string_view action) const;

  // Returns the location of the rank's tile of a buffer: its arena, and its
  // first byte.
  std::pair<Storage *, int64_t> find(const program::Boundary &entry) const;

  // Counts the bytes of the transfers of an action that the backend has
  // replayed.
  static void bookReplay(const PreparedAction &action);

  // For the poison mode.
  void beforeAction();
  void aroundCall();
  void afterCommand(const PreparedAction &prepared, size_t command);
  void afterAction();

  const int rank;
  const bool poison;
  const std::unique_ptr<Backend> backend; // outlives the memory
  int64_t touchedBytes = -1, scratchBytes = 0, unplannedBytes = 0;

private:
  // Returns the rank's index on a sub-axis.
  int64_t indexOn(const program::SubAxis &on) const;
  // Returns the index by which the `coef` of an address term is multiplied: the
  // rank's index on a sub-axis, or an iteration number modulo the term's
  // period.
  int64_t indexOf(const program::AxisTerm &term) const;

  using Run = Backend::Run;
  // Returns the memory of an operand of the command that is being prepared, and
  // records how the command accesses it.
  char *use(const Operand &operand);
  // Returns the memory of all operands of a command. A workspace that was not
  // planned stays null; see workspace().
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
  // Prepares a command that is neither a transfer nor a Call.
  Run prepareComputation(const program::Command &command, Endpoint &endpoint);
  // Returns the call of a command, extended by the command's condition and its
  // position in the program.
  Run placed(const program::Action &action, size_t index, Run run);
  Run prepareRepeat(const program::Repeat &repeat, Endpoint &endpoint);
  void prepareAction(const program::Action &action, PreparedAction &prepared,
                     Endpoint &endpoint, const Counters &counters);
  const PreparedAction *prepareCall(const program::Call &call,
                                    Endpoint &endpoint,
                                    const Counters &counters);
  // Returns the members of a collective, and the index of this rank among them.
  std::pair<std::vector<int>, int>
  membersOf(const program::Collective &collective) const;
  std::vector<std::vector<int>> groupsOf(uint32_t ownClass) const;
  CollectiveCall makeCall(const program::Collective &collective,
                          const program::Command &command,
                          const Counters &counters) const;
  // For a library command: needOf() returns the bytes of scratch memory that it
  // needs, workspace() the address of this memory.
  template <class Op> int64_t needOf(const Op &op) const;
  template <class Op> void *workspace(const Op &op, int64_t neededBytes);
  void planPoison(PreparedAction &prepared) const;
  void noteTouched(size_t arena, int64_t begin, int64_t end);

  cleave_program &program;
  const program::Program &data;
  std::vector<int64_t> axisIndex, axisSize;
  std::vector<std::unique_ptr<Storage>> arenas;
  std::vector<Access> accesses;     // of the command that is being prepared
  std::vector<int64_t> touchedHigh; // by arena: highest used byte, this action
  std::vector<PreparedAction> actions;
  // An arena may consist of equal slots, one for each microbatch in flight. A
  // Call may run its action on any slot of an arena, by adding an offset to all
  // addresses in the arena. The action is prepared once for each combination of
  // offsets. The key is the action and the offset in bytes for each arena.
  std::map<std::pair<uint32_t, std::vector<int64_t>>,
           std::unique_ptr<PreparedAction>>
      variants;
  std::vector<int64_t> moved; // by arena: offset of the Call being prepared
  // For each loop around the command that is being prepared: the number of the
  // iteration for which it is prepared. The outermost loop comes first.
  std::vector<int64_t> trips;
  std::vector<std::unique_ptr<PreparedAction>> bodies; // of loops
  int64_t callsInLoops = 0; // prepared calls of their commands
  std::vector<std::unique_ptr<Operation>> operations;
  // The workspace of library commands whose own workspace was not planned. One
  // buffer serves all of them, because they run one after the other.
  std::unique_ptr<Storage> unplanned;
  int64_t unplannedNeed = 0;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_RANK_H
