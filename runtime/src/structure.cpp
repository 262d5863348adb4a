// Checks a program before memory is allocated for it.

#include "boundary.h"
#include "error.h"
#include "loaded_program.h"

#include <map>
#include <set>

using namespace cleave;
using namespace cleave::program;

namespace {
// More ranks than any host can run in one process. The limit bounds what a
// damaged file can request.
constexpr int64_t maxRanks = 1 << 16;

[[noreturn]] void bad(const std::string &message) {
  fail(CLEAVE_BAD_PROGRAM, message);
}

void checkMesh(const Program &program) {
  int64_t ranks = 1;
  for (const MeshAxis &axis : program.mesh) {
    if (axis.size < 1 || axis.size > maxRanks)
      bad("mesh axis \"" + axis.name + "\" has size " +
          std::to_string(axis.size));
    ranks *= axis.size;
    if (ranks > maxRanks)
      bad("the mesh has more than " + std::to_string(maxRanks) + " ranks");
  }
  if (!program.rankClass.empty() &&
      program.rankClass.size() != static_cast<size_t>(ranks))
    bad("classes of " + std::to_string(program.rankClass.size()) +
        " ranks, expected " + std::to_string(ranks));
}

void checkCall(const Program &program, const Action &caller, const Call &call,
               const std::string &where) {
  if (call.action >= program.actions.size())
    bad(where + ": calls action " + std::to_string(call.action) + " of " +
        std::to_string(program.actions.size()));
  const Action &callee = program.actions[call.action];
  if (callee.rankClass != caller.rankClass)
    bad(where + " of class " + std::to_string(caller.rankClass) + " calls \"" +
        callee.name + "\" of class " + std::to_string(callee.rankClass));
  for (const Command &command : callee.commands)
    if (std::holds_alternative<Call>(command.op))
      bad(where + ": calls \"" + callee.name +
          "\", which itself calls; calls go one level deep");
  if (call.label >= program.strings.size())
    bad(where + ": label string is out of range");
  std::set<int32_t> moved;
  for (const Rebase &rebase : call.rebase) {
    if (rebase.arena < 0 ||
        static_cast<size_t>(rebase.arena) >= program.arenas.size())
      bad(where + ": moves arena " + std::to_string(rebase.arena) +
          ", which does not exist");
    if (!moved.insert(rebase.arena).second)
      bad(where + ": moves arena \"" + program.arenas[rebase.arena].name +
          "\" twice");
  }
}

void checkRepeat(const Program &program, const Action &caller,
                 const Repeat &repeat, const std::string &where) {
  // The body of a loop precedes the loop in the program, so no loop contains
  // itself.
  if (repeat.action >= size_t(&caller - program.actions.data()))
    bad(where + ": repeats action " + std::to_string(repeat.action) +
        ", expected one before its own");
  const Action &body = program.actions[repeat.action];
  if (body.rankClass != caller.rankClass || !body.isOnlyCalled())
    bad(where + " of class " + std::to_string(caller.rankClass) +
        " repeats \"" + body.name + "\" of class " +
        std::to_string(body.rankClass) + ", which is no body of a loop of it");
  if (repeat.trips < 1)
    bad(where + ": repeats \"" + body.name + "\" " +
        std::to_string(repeat.trips) + " times");
  for (const Command &command : body.commands)
    if (std::holds_alternative<Call>(command.op) ||
        std::holds_alternative<Collective>(command.op) ||
        std::holds_alternative<Wait>(command.op))
      bad(where + ": repeats \"" + body.name +
          "\", which calls or transfers; a body only computes");
}

void checkCollective(const Program &program, const Collective &collective,
                     const std::string &where) {
  if (collective.purpose >= program.strings.size())
    bad(where + ": purpose string is out of range");
  std::set<int32_t> seen;
  for (int32_t position : collective.positions)
    if (position < 0 || !seen.insert(position).second)
      bad(where + ": position " + std::to_string(position) +
          (position < 0 ? " of a group" : " takes part twice"));
  if (collective.kind != CollectiveKind::SendRecv)
    return;
  if (collective.positions.size() != 2)
    bad(where + ": a transfer from one rank to another has " +
        std::to_string(collective.positions.size()) + " positions, expected 2");
  if (collective.token < 0)
    bad(where + ": a transfer from one rank to another has no token");
}

void checkAction(const Program &program, const Action &action) {
  std::set<int32_t> started;
  for (size_t i = 0; i < action.commands.size(); ++i) {
    const Command &command = action.commands[i];
    std::string where =
        "command " + std::to_string(i) + " of action \"" + action.name + "\"";
    if (command.source >= program.strings.size())
      bad(where + ": source string is out of range");
    if (auto *launch = std::get_if<Launch>(&command.op)) {
      if (launch->kernel >= program.kernels.size())
        bad(where + ": kernel index " + std::to_string(launch->kernel) +
            " is out of range");
      const Kernel &kernel = program.kernels[launch->kernel];
      if (launch->args.size() != static_cast<size_t>(kernel.numArgs))
        bad(where + ": kernel " + kernel.symbol + " takes " +
            std::to_string(kernel.numArgs) + " buffers, found " +
            std::to_string(launch->args.size()));
    }
    if (auto *collective = std::get_if<Collective>(&command.op)) {
      checkCollective(program, *collective, where);
      if (collective->token >= 0 && !started.insert(collective->token).second)
        bad(where + ": token " + std::to_string(collective->token) +
            " is started twice");
    }
    if (auto *call = std::get_if<Call>(&command.op))
      checkCall(program, action, *call, where);
    if (auto *repeat = std::get_if<Repeat>(&command.op))
      checkRepeat(program, action, *repeat, where);
    if (auto *wait = std::get_if<Wait>(&command.op))
      if (!started.erase(wait->token))
        bad(where + ": wait for token " + std::to_string(wait->token) +
            ", which has not been started");
  }
  if (!started.empty())
    bad("action \"" + action.name + "\" never waits for token " +
        std::to_string(*started.begin()));
  auto isElsewhere = [&](const Arena &arena) {
    return arena.rankClass >= 0 &&
           static_cast<uint32_t>(arena.rankClass) != action.rankClass;
  };
  for (const Lifetime &life : action.lifetimes)
    if (life.name >= program.strings.size() || life.arena < 0 ||
        static_cast<size_t>(life.arena) >= program.arenas.size() ||
        isElsewhere(program.arenas[life.arena]) || life.offset < 0 ||
        life.size < 0 ||
        life.size > program.arenas[life.arena].size - life.offset ||
        life.first < 0 || life.last < life.first)
      bad("a lifetime of action \"" + action.name + "\" is out of range");
}

// Checks the buffer names of the boundary table. A name may have one entry for
// each class of ranks that holds the buffer, or several if several pipeline
// stages of the class hold it.
void checkBuffers(const Program &program) {
  Classes classes(program);
  std::map<std::string_view, std::vector<const Boundary *>> known;
  for (const Boundary &entry : program.boundary) {
    checkBoundary(program, classes, entry);
    std::vector<const Boundary *> &others = known[entry.name];
    for (const Boundary *other : others) {
      std::string both = "buffer \"" + entry.name +
                         "\": its entries for class " +
                         std::to_string(other->rankClass) + " and class " +
                         std::to_string(entry.rankClass);
      if (entry.rankClass < 0 || other->rankClass < 0)
        bad("two buffers are named \"" + entry.name + "\"");
      if (entry.dtype != other->dtype ||
          entry.globalShape != other->globalShape)
        bad(both + " differ in type or shape");
      if (entry.role != other->role)
        bad(both + " have roles \"" + other->role + "\" and \"" + entry.role +
            "\"");
    }
    others.push_back(&entry);
  }
  for (const Boundary &entry : program.boundary)
    if (!entry.tie.empty() && !known.count(entry.tie))
      bad("buffer \"" + entry.name + "\" is tied to \"" + entry.tie +
          "\", which does not exist");
}
} // namespace

void cleave::checkStructure(const Program &program) {
  if (program.strings.empty())
    bad("the string table is empty");
  checkMesh(program);
  for (const Arena &arena : program.arenas)
    if (arena.size < 0)
      bad("arena \"" + arena.name + "\" has size " +
          std::to_string(arena.size));
  for (const Kernel &kernel : program.kernels)
    if (kernel.numArgs < 0)
      bad("kernel \"" + kernel.symbol + "\" takes " +
          std::to_string(kernel.numArgs) + " buffers");
  checkBuffers(program);
  std::set<std::pair<std::string_view, uint32_t>> actions;
  for (const Action &action : program.actions) {
    if (!actions.insert({action.name, action.rankClass}).second)
      bad("two actions are named \"" + action.name + "\"");
    checkAction(program, action);
  }
}
