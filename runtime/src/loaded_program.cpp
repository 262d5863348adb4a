// Reading a program and its kernels, and checking what can be checked before
// memory exists.

#include "loaded_program.h"

#include "cleave/program_io.h"

#include "error.h"
#include "tiles.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <set>

using namespace cleave;
using namespace cleave::program;

namespace {
// Far above any host with ranks in one process; bounds what a damaged file
// can ask for.
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
      if (collective->purpose >= program.strings.size())
        bad(where + ": purpose string is out of range");
      if (collective->token >= 0 && !started.insert(collective->token).second)
        bad(where + ": token " + std::to_string(collective->token) +
            " is started twice");
    }
    if (auto *wait = std::get_if<Wait>(&command.op))
      if (!started.erase(wait->token))
        bad(where + ": wait for token " + std::to_string(wait->token) +
            ", which has not been started");
  }
  if (!started.empty())
    bad("action \"" + action.name + "\" never waits for token " +
        std::to_string(*started.begin()));
  for (const Lifetime &life : action.lifetimes)
    if (life.name >= program.strings.size() || life.arena < 0 ||
        static_cast<size_t>(life.arena) >= program.arenas.size() ||
        life.offset < 0 || life.size < 0 ||
        life.size > program.arenas[life.arena].size - life.offset ||
        life.first < 0 || life.last < life.first)
      bad("a lifetime of action \"" + action.name + "\" is out of range");
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
  std::set<std::string_view> names;
  for (const Boundary &entry : program.boundary) {
    if (!names.insert(entry.name).second)
      bad("two buffers are named \"" + entry.name + "\"");
    checkBoundary(program, entry);
  }
  for (const Boundary &entry : program.boundary)
    if (!entry.tie.empty() && !names.count(entry.tie))
      bad("buffer \"" + entry.name + "\" is tied to \"" + entry.tie +
          "\", which does not exist");
  std::set<std::pair<std::string_view, uint32_t>> actions;
  for (const Action &action : program.actions) {
    if (!actions.insert({action.name, action.rankClass}).second)
      bad("two actions are named \"" + action.name + "\"");
    checkAction(program, action);
  }
}

cleave_program::~cleave_program() {
  if (library)
    dlclose(library);
}

void cleave_program::bindKernels() {
  if (data.kernels.empty() || !kernels.empty())
    return;
  if (!libraryPath.empty() && !library) {
    library = dlopen(libraryPath.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      bad(std::string("cannot load the kernels: ") + dlerror());
  }
  std::vector<cleave_kernel> bound;
  std::string missing;
  for (const Kernel &kernel : data.kernels) {
    void *address = nullptr;
    if (auto it = added.find(kernel.symbol); it != added.end())
      address = reinterpret_cast<void *>(it->second);
    else if (library)
      address = dlsym(library, kernel.symbol.c_str());
    if (!address)
      missing += (missing.empty() ? "" : ", ") + kernel.symbol;
    bound.push_back(reinterpret_cast<cleave_kernel>(address));
  }
  if (!missing.empty())
    bad("kernels not found in " +
        (libraryPath.empty() ? "the process" : libraryPath) + ": " + missing);
  kernels = std::move(bound);
}

std::unique_ptr<cleave_program> cleave::parseProgram(std::string_view bytes) {
  auto program = std::make_unique<cleave_program>();
  std::string error;
  if (!deserialize(bytes, program->data, error))
    bad(error);
  checkStructure(program->data);
  return program;
}

std::unique_ptr<cleave_program> cleave::loadProgram(const std::string &dir) {
  std::string path = dir + "/program.bin";
  std::ifstream file(path, std::ios::binary);
  if (!file)
    bad(path + ": " + std::strerror(errno));
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (file.bad())
    bad(path + ": cannot be read");
  std::unique_ptr<cleave_program> program;
  try {
    program = parseProgram(bytes);
  } catch (const Error &error) {
    throw Error(error.status, path + ": " + error.what());
  }
  // A path with a slash keeps dlopen from searching the system's folders.
  program->libraryPath = (dir.empty() ? "." : dir) + "/kernels.so";
  return program;
}
