// Chooses the transport that connects the ranks of a program, by the launcher
// of this process.

#include "cleave/io/Error.h"
#include "cleave/launcher.h"
#include "cleave/trainer/Settings.h"
#include "cleave/trainer/Train.h"

namespace cleave {

static void compareRanks(const std::string &what, int64_t count,
                         int64_t ranks) {
  if (count != ranks)
    throw InputError(what + " is " + std::to_string(count) +
                     ", but the program was compiled for a mesh of " +
                     std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
                     "; compile it for " + std::to_string(count));
}

std::string checkRanks(const Manifest &manifest, std::optional<int64_t> ranks) {
  if (ranks)
    compareRanks("--ranks", *ranks, manifest.ranks);
  Settings settings = settingsOf(manifest);
  return chooseTransport(settings.transport, manifest.ranks, settings.device);
}

std::string chooseTransport(const std::string &key, int64_t ranks,
                            const std::string &device) {
  std::string quoted = "target.transport = \"" + key + "\"";
  // The transport between processes.
  std::string between = device == "cuda" ? "nccl" : "mpi";
  if (key != "auto" && key != "local" && key != between)
    throw InputError(quoted + " does not connect ranks of target.kind = \"" +
                     device + "\"; expected auto, local or " + between);
  std::optional<Launcher> found = launcher();
  std::string count = std::to_string(found ? found->size : ranks);
  if (!found) {
    if (key == "mpi")
      throw InputError(quoted + " needs a launcher: start with mpirun -n " +
                       count);
    // Each rank needs at least one thread. A mesh with more ranks than this is
    // a mistake, or was meant for another machine.
    constexpr int64_t kMostThreads = 4096;
    if (ranks > kMostThreads)
      throw InputError(
          "the mesh has " + count +
          " ranks, but without a launcher all run as threads of this process, "
          "at most " +
          std::to_string(kMostThreads) +
          "; make the mesh smaller, or start with mpirun -n " + count +
          " (explain and compile take any mesh)");
    return device == "cuda" ? key : "local"; // by what devices there are
  }
  compareRanks(found->variable, found->size, ranks);
  if (found->size == 1 && key != "mpi")
    return device == "cuda" ? key : "local";
  if (key == "local")
    throw InputError(quoted +
                     " runs all ranks in one process, but the "
                     "launcher started " +
                     count + "; start without it, or leave the key out");
  if (between == "mpi" && !found->hasMpi)
    throw InputError(found->variable + " is " + count +
                     ", but the launcher brings no MPI; start with mpirun -n " +
                     count);
  if (!found->hasMpi && !found->hasAddress)
    throw InputError(found->variable + " is " + count +
                     ", but MASTER_ADDR and MASTER_PORT, where the processes "
                     "find each other, are not set; start with torchrun "
                     "--nproc-per-node, or with mpirun -n " +
                     count);
  return between;
}

} // namespace cleave
