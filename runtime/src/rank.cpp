// Prepares the commands of one rank.

#include "rank.h"

#include "error.h"
#include "exchange.h"
#include "positions.h"
#include "span.h"
#include "tiles.h"

#include <algorithm>
#include <tuple>

using namespace cleave;
using namespace cleave::program;

Rank::Rank(cleave_program &program, int rank, std::unique_ptr<Backend> owned,
           bool poison)
    : rank(rank), poison(poison), backend(std::move(owned)), program(program),
      data(program.data), axisIndex(axisIndices(data, rank)) {
  for (const MeshAxis &axis : data.mesh)
    axisSize.push_back(axis.size);
  moved.resize(data.arenas.size());
  for (const Arena &arena : data.arenas) {
    // Arenas of other classes of ranks (that is, of other stages of a pipeline)
    // get no memory; in a pipeline these are most arenas.
    bool isHere = arena.rankClass < 0 ||
                  static_cast<uint32_t>(arena.rankClass) == data.classOf(rank);
    arenas.push_back(backend->allocate(isHere ? arena.size : 0,
                                       "arena \"" + arena.name + "\" of rank " +
                                           std::to_string(rank)));
    scratchBytes += arenas.back()->slack();
    if (poison)
      arenas.back()->guard();
  }
}

int64_t Rank::arenaBytes() const {
  int64_t bytes = 0;
  for (const std::unique_ptr<Storage> &arena : arenas)
    bytes += arena->size();
  return bytes;
}

int64_t Rank::indexOn(const SubAxis &on) const {
  if (on.axis < 0 || size_t(on.axis) >= axisIndex.size() || on.pre < 1 ||
      on.size < 1 || axisSize[on.axis] % (on.pre * on.size) != 0)
    bad("an address depends on part (" + std::to_string(on.pre) + ")" +
        std::to_string(on.size) + " of mesh axis " + std::to_string(on.axis) +
        ", which there is not");
  int64_t minor = axisSize[on.axis] / (on.pre * on.size);
  return axisIndex[on.axis] / minor % on.size;
}

int64_t Rank::indexOf(const AxisTerm &term) const {
  if (!term.dependsOnTrip())
    return indexOn(term.on);
  if (static_cast<size_t>(term.depth()) >= trips.size() || term.period() < 1)
    bad("an address depends on trip " + std::to_string(term.depth()) +
        " modulo " + std::to_string(term.period()) + " inside of " +
        std::to_string(trips.size()) + " loops");
  return trips[term.depth()] % term.period();
}

char *Rank::resolve(const BufferRef &ref, int64_t low, int64_t high) const {
  if (ref.arena < 0 || static_cast<size_t>(ref.arena) >= arenas.size())
    bad("arena " + std::to_string(ref.arena) + " does not exist");
  __int128 offset = __int128(ref.offset) + moved[ref.arena];
  for (const AxisTerm &term : ref.terms)
    offset += __int128(term.coef) * indexOf(term);
  const Storage &arena = *arenas[ref.arena];
  if (int32_t owner = data.arenas[ref.arena].rankClass;
      owner >= 0 && static_cast<uint32_t>(owner) != data.classOf(rank))
    bad("arena \"" + data.arenas[ref.arena].name + "\" is that of class " +
        std::to_string(owner) + ", but rank " + std::to_string(rank) +
        " is of class " + std::to_string(data.classOf(rank)));
  if (offset + low < 0 || offset + high > arena.size())
    bad("bytes [" + std::to_string(int64_t(offset + low)) + ", " +
        std::to_string(int64_t(offset + high)) + ") of rank " +
        std::to_string(rank) + " leave arena \"" + data.arenas[ref.arena].name +
        "\" of " + std::to_string(arena.size()) + " bytes");
  return arena.data() + int64_t(offset);
}

char *Rank::use(const Operand &operand) {
  int64_t bytes = spanOf(operand);
  char *at = resolve(operand.buffer, 0, bytes);
  if (bytes > 0)
    accesses.push_back({at, bytes, operand.isWritten});
  return at;
}

std::pair<Storage *, int64_t> Rank::find(const Boundary &entry) const {
  char *at = resolve(entry.buffer, 0,
                     elementCount(entry.localShape) * sizeOf(entry.dtype));
  Storage &arena = *arenas[entry.buffer.arena];
  return {&arena, at - arena.data()};
}

const PreparedAction *Rank::find(std::string_view action) const {
  for (const PreparedAction &prepared : actions)
    if (prepared.action->name == action)
      return &prepared;
  return nullptr;
}

void Rank::prepare(Endpoint &endpoint, Counters &counters) {
  backend->attach([&endpoint] { endpoint.progress(); });
  uint32_t ownClass = data.classOf(rank);
  // Finds the largest workspace among the library calls whose planned workspace
  // is missing or too small, because the program was compiled for another
  // machine or number of threads. These calls share one buffer of this size. It
  // is allocated before addresses are computed, because it must not move
  // afterwards.
  auto plan = [&](const auto &op) {
    if constexpr (requires { op.workspace; }) {
      std::string error;
      int64_t need = backend->workspace(op, error);
      if (need > (op.workspace.present() ? op.workspaceSize : 0))
        unplannedNeed = std::max(unplannedNeed, need);
    }
  };
  for (const Action &action : data.actions)
    if (action.rankClass == ownClass)
      for (const Command &command : action.commands)
        std::visit(plan, command.op);
  unplanned = backend->allocate(unplannedNeed, "scratch memory of rank " +
                                                   std::to_string(rank));
  unplannedBytes = unplannedNeed;
  endpoint.announce(groupsOf(ownClass));
  for (const Action &action : data.actions)
    if (action.rankClass == ownClass && !action.isOnlyCalled())
      prepareAction(action, actions.emplace_back(), endpoint, counters);
  endpoint.connect();
}

std::vector<std::vector<int>> Rank::groupsOf(uint32_t ownClass) const {
  std::vector<std::vector<int>> groups;
  for (const Action &action : data.actions)
    for (const Command &command : action.commands)
      if (auto *collective = std::get_if<Collective>(&command.op);
          collective && action.rankClass == ownClass &&
          collective->kind != CollectiveKind::SendRecv)
        try {
          groups.push_back(membersOf(*collective).first);
        } catch (const RuntimeError &) {
          // The error is ignored here. It occurs again when the command is
          // prepared, and is then reported with the command's position.
        }
  return groups;
}

const PreparedAction *Rank::prepareCall(const Call &call, Endpoint &endpoint,
                                        const Counters &counters) {
  std::vector<int64_t> bytes(data.arenas.size());
  for (const Rebase &rebase : call.rebase) // see checkStructure()
    bytes[rebase.arena] = rebase.offset;
  std::unique_ptr<PreparedAction> &variant = variants[{call.action, bytes}];
  if (!variant) {
    variant = std::make_unique<PreparedAction>();
    std::swap(moved, bytes);
    prepareAction(data.actions[call.action], *variant, endpoint, counters);
    std::swap(moved, bytes);
  }
  return variant.get();
}

// Returns whether on any rank an action of this name needs the host while it
// runs. Such an action cannot be recorded and replayed as a CUDA graph. All
// ranks must decide in the same way, because a transfer must be replayed by all
// its ranks or by none.
static bool needsHost(const Program &program, const Action &action) {
  for (const Action &other : program.actions) {
    if (other.name != action.name)
      continue;
    for (const Command &command : other.commands) {
      auto *collective = std::get_if<Collective>(&command.op);
      auto *call = std::get_if<Call>(&command.op);
      if (command.when.present() ||
          (collective && collective->kind == CollectiveKind::AllToAllV) ||
          (call && needsHost(program, program.actions[call->action])))
        return true;
      if (auto *repeat = std::get_if<Repeat>(&command.op);
          repeat && needsHost(program, program.actions[repeat->action]))
        return true;
    }
  }
  return false;
}

Rank::Run Rank::prepareComputation(const Command &command, Endpoint &endpoint) {
  if (auto *repeat = std::get_if<Repeat>(&command.op))
    return prepareRepeat(*repeat, endpoint);
  Run run;
  std::visit(
      [&](const auto &op) {
        if constexpr (requires { prepare(op); })
          run = prepare(op);
      },
      command.op);
  return run;
}

Rank::Run Rank::placed(const Action &action, size_t index, Run run) {
  const Command &command = action.commands[index];
  if (command.when.present()) {
    if (!run || std::holds_alternative<Wait>(command.op) ||
        (std::holds_alternative<Collective>(command.op) &&
         std::get<Collective>(command.op).token >= 0))
      bad("a transfer that starts or ends cannot depend on a condition");
    run = [this, flag = use(conditionOf(command)), run = std::move(run)] {
      // A byte other than 0 and 1 means that another value has reused the
      // memory of the condition.
      char value = backend->flag(flag);
      if (value != 0 && value != 1)
        bad("its condition holds byte " +
            std::to_string(static_cast<unsigned char>(value)) +
            ", expected 0 or 1");
      if (value)
        run();
    };
  }
  if (!run)
    return run;
  return backend->at(
      {&action, static_cast<int>(index), &command, std::move(accesses)},
      std::move(run));
}

// Returns for how many iterations of a loop a command in the loop's body must
// be prepared separately. `depth` is the nesting depth of the loop, `trips` its
// number of iterations. The result is 1 if no address of the command depends on
// the iteration, 2 if addresses alternate between even and odd iterations, and
// otherwise `trips`.
static int64_t differentTrips(const Program &program, const Command &command,
                              int32_t depth, int64_t trips) {
  int64_t count = 1;
  auto note = [&](const auto &operand) {
    if (operand.isUsed())
      for (const AxisTerm &term : operand.buffer.terms)
        if (term.dependsOnTrip() && term.depth() == depth)
          count = std::max(count, term.period() <= 2 ? term.period() : trips);
  };
  accesses(program.kernels, command, note);
  if (auto *repeat = std::get_if<Repeat>(&command.op))
    for (const Command &inner : program.actions[repeat->action].commands)
      count = std::max(count, differentTrips(program, inner, depth, trips));
  return std::min(count, trips);
}

// Each prepared call takes a few hundred bytes of memory, so this many take a
// few GiB.
constexpr int64_t kMaxCallsInLoops = int64_t(1) << 23;

Rank::Run Rank::prepareRepeat(const Repeat &repeat, Endpoint &endpoint) {
  const Action &body = data.actions[repeat.action];
  auto depth = static_cast<int32_t>(trips.size());
  // For each command of the body: its prepared calls, one for each iteration in
  // which its addresses differ (see differentTrips()).
  std::vector<std::vector<Run>> runs;
  for (size_t i = 0; i < body.commands.size(); ++i) {
    int64_t count = differentTrips(data, body.commands[i], depth, repeat.trips);
    if (count > kMaxCallsInLoops - callsInLoops)
      bad("the loops of rank " + std::to_string(rank) + " need more than " +
          std::to_string(kMaxCallsInLoops) + " prepared calls: those of \"" +
          body.name + "\" have " + std::to_string(repeat.trips) +
          " iterations; use shorter sequences, or fewer nested loops");
    callsInLoops += count;
    std::vector<Run> &all = runs.emplace_back();
    for (int64_t trip = 0; trip < count; ++trip) {
      trips.push_back(trip);
      accesses.clear();
      try {
        all.push_back(
            placed(body, i, prepareComputation(body.commands[i], endpoint)));
      } catch (const RuntimeError &error) {
        throw RuntimeError(error.status,
                           "trip " + std::to_string(trip) + ", command " +
                               std::to_string(i) + " of \"" + body.name +
                               "\" (" + data.strings[body.commands[i].source] +
                               "): " + error.what());
      }
      trips.pop_back();
    }
  }
  PreparedAction *prepared =
      bodies.emplace_back(std::make_unique<PreparedAction>()).get();
  prepared->action = &body;
  prepared->commands.resize(body.commands.size());
  if (poison)
    planPoison(*prepared);
  accesses.clear();
  return [this, prepared, runs = std::move(runs), trips = repeat.trips,
          &endpoint] {
    for (int64_t trip = 0; trip < trips; ++trip) {
      for (size_t i = 0; i < runs.size(); ++i)
        try {
          runs[i][trip % runs[i].size()]();
          if (poison)
            afterCommand(*prepared, i);
        } catch (const RuntimeError &error) {
          const Action &body = *prepared->action;
          throw RuntimeError(
              error.status, "in trip " + std::to_string(trip) + ", command " +
                                std::to_string(i) + " of \"" + body.name +
                                "\" (" + data.strings[body.commands[i].source] +
                                "): " + error.what());
        }
      endpoint.progress();
    }
  };
}

void Rank::prepareAction(const Action &action, PreparedAction &prepared,
                         Endpoint &endpoint, const Counters &counters) {
  prepared.action = &action;
  prepared.mayReplay = !needsHost(data, action);
  std::map<int32_t, Operation *> started;
  for (size_t i = 0; i < action.commands.size(); ++i) {
    const Command &command = action.commands[i];
    PreparedCommand &out = prepared.commands.emplace_back();
    out.command = &command;
    accesses.clear();
    try {
      if (auto *collective = std::get_if<Collective>(&command.op)) {
        operations.push_back(
            endpoint.prepare(makeCall(*collective, command, counters)));
        Operation *operation = operations.back().get();
        prepared.operations.push_back(operation);
        prepared.mayReplay &= operation->mayReplay();
        if (collective->token >= 0) {
          started[collective->token] = operation;
          out.run = [operation] { operation->start(); };
        } else {
          out.run = [operation] {
            operation->start();
            operation->finish();
          };
        }
      } else if (auto *wait = std::get_if<Wait>(&command.op)) {
        Operation *operation = started.at(wait->token); // see checkStructure()
        out.run = [operation] { operation->finish(); };
      } else if (auto *call = std::get_if<Call>(&command.op)) {
        out.called = prepareCall(*call, endpoint, counters);
        prepared.mayReplay &= out.called->mayReplay;
        prepared.operations.insert(prepared.operations.end(),
                                   out.called->operations.begin(),
                                   out.called->operations.end());
      } else {
        out.run = prepareComputation(command, endpoint);
      }
      out.run = placed(action, i, std::move(out.run));
    } catch (const RuntimeError &error) {
      throw RuntimeError(error.status, "action \"" + action.name +
                                           "\", command " + std::to_string(i) +
                                           " (" + data.strings[command.source] +
                                           "): " + error.what());
    }
  }
  if (poison)
    planPoison(prepared);
}

void Rank::bookReplay(const PreparedAction &action) {
  for (Operation *operation : action.operations)
    operation->replayed();
}

std::pair<std::vector<int>, int>
Rank::membersOf(const Collective &collective) const {
  int64_t members = 1;
  for (const SubAxis &sub : collective.group) {
    if (sub.axis < 0 || static_cast<size_t>(sub.axis) >= data.mesh.size() ||
        sub.pre < 1 || sub.size < 1 || sub.pre > axisSize[sub.axis] ||
        sub.size > axisSize[sub.axis] ||
        axisSize[sub.axis] % (sub.pre * sub.size) != 0)
      bad("a sub-axis of the group does not fit the mesh");
    members *= sub.size;
    if (members > data.numRanks())
      bad("a group with more members than ranks");
  }
  // The members of the group: ranks that differ from this one only along the
  // group's axes.
  std::vector<int> all(members);
  for (int64_t member = 0; member < members; ++member)
    all[member] = static_cast<int>(
        groupMember(data, axisIndex, collective.group, member));
  std::vector<int> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    bad("the group names a mesh axis twice");
  int64_t self = groupIndex(data, axisIndex, collective.group);
  if (collective.positions.empty())
    return {std::move(all), static_cast<int>(self)};
  std::vector<int> chosen;
  int own = -1;
  for (int32_t position : collective.positions) {
    if (position >= members)
      bad("position " + std::to_string(position) + " of a group of " +
          std::to_string(members));
    if (position == self)
      own = static_cast<int>(chosen.size());
    chosen.push_back(all[position]);
  }
  if (own < 0)
    bad("rank " + std::to_string(rank) +
        " is at none of the positions that take part");
  return {std::move(chosen), own};
}

static void checkTiles(CollectiveKind kind, const Part &part) {
  bool swaps = kind == CollectiveKind::AllToAll;
  if ((swaps || kind == CollectiveKind::AllToAllV ||
       kind == CollectiveKind::AllGather ||
       kind == CollectiveKind::ReduceScatter) &&
      checkedProduct(part.outer, part.inner) != part.count)
    bad("a tile of " + std::to_string(part.outer) + " x " +
        std::to_string(part.inner) + " has not " + std::to_string(part.count) +
        " elements");
  if (swaps && checkedProduct(part.dstOuter, part.dstInner) != part.count)
    bad("a received tile of " + std::to_string(part.dstOuter) + " x " +
        std::to_string(part.dstInner) + " has not " +
        std::to_string(part.count) + " elements");
}

CollectiveCall Rank::makeCall(const Collective &collective,
                              const Command &command,
                              const Counters &counters) const {
  CollectiveCall call;
  call.onlyStarts = collective.token >= 0;
  call.kind = collective.kind;
  call.reduce = collective.reduce;
  call.dtype = collective.dtype;
  call.root = collective.root;
  call.sources = collective.sources;
  call.name = "\"" + data.strings[collective.purpose] + "\" (" +
              data.strings[command.source] + ")";
  const std::string &purpose = data.strings[collective.purpose];
  call.purpose = static_cast<int>(
      std::find(counters.purposes.begin(), counters.purposes.end(), purpose) -
      counters.purposes.begin());
  std::tie(call.members, call.self) = membersOf(collective);
  auto members = static_cast<int64_t>(call.members.size());
  if (call.kind == CollectiveKind::Broadcast &&
      (call.root < 0 || call.root >= members))
    bad("root " + std::to_string(call.root) + " of a group of " +
        std::to_string(members));
  if (call.kind == CollectiveKind::Permute) {
    if (call.sources.size() != static_cast<size_t>(members))
      bad("a permute of " + std::to_string(members) + " members has " +
          std::to_string(call.sources.size()) + " sources");
    for (int32_t from : call.sources)
      if (from < -1 || from >= members)
        bad("permute from member " + std::to_string(from) + " of " +
            std::to_string(members));
  }
  for (const Transfer &transfer : collective.parts) {
    Part &part = call.parts.emplace_back();
    part.count = transfer.count;
    part.outer = transfer.outer;
    part.inner = transfer.inner;
    part.dstOuter = transfer.dstOuter;
    part.dstInner = transfer.dstInner;
    checkTiles(call.kind, part);
    if (call.kind == CollectiveKind::Exchange) {
      size_t index = call.parts.size() - 1;
      if (index >= collective.exchanges.size())
        bad("an exchange of which nothing says how the tensor is placed");
      prepareExchange(data, collective.exchanges[index], call.members,
                      call.self, part);
    }
  }
  Addresses at;
  program::operands(data.kernels, collective, [&](const Operand &operand) {
    if (operand.isUsed() && isOfMember(collective, operand.kind, call.self))
      at.add(operand, resolve(operand.buffer, 0, spanOf(operand)));
  });
  for (size_t i = 0; i < call.parts.size(); ++i) {
    call.parts[i].src = at[collective.parts[i].src];
    call.parts[i].dst = at[collective.parts[i].dst];
  }
  call.sent = at[collective.sent];
  call.received = at[collective.received];
  return call;
}
