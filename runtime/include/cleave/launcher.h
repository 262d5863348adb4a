// Reads what a launcher (mpirun, srun, torchrun) tells this process in
// environment variables. This header includes no other header of cleave,
// because it is used early: by the compiler's configuration before it compiles
// a model, and by the runtime before MPI is initialized.
#ifndef CLEAVE_LAUNCHER_H
#define CLEAVE_LAUNCHER_H

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace cleave {

struct Launcher {
  std::string variable;             // environment variable with the size
  int64_t size = 1;                 // processes of the job
  int64_t rank = 0;                 // of this process
  int64_t localSize = 1;            // processes of the job on this machine
  std::optional<int64_t> localRank; // of this process on this machine
  // False under torchrun, which starts processes without MPI.
  bool hasMpi = false;
  // True if MASTER_ADDR and MASTER_PORT are set: the address at which processes
  // meet if there is no MPI.
  bool hasAddress = false;
};

namespace detail {
inline std::optional<int64_t> numberIn(const char *name) {
  const char *text = std::getenv(name);
  if (!text)
    return std::nullopt;
  char *end = nullptr;
  long long number = std::strtoll(text, &end, 10);
  if (end == text || *end != 0 || number < 0)
    return std::nullopt;
  return number;
}

inline std::optional<int64_t>
firstNumber(std::initializer_list<const char *> names) {
  for (const char *name : names)
    if (std::optional<int64_t> number = numberIn(name))
      return number;
  return std::nullopt;
}
} // namespace detail

// Returns nullopt if the process was started without a launcher.
inline std::optional<Launcher> launcher() {
  Launcher found;
  // The variables of torchrun, of Open MPI's mpirun, of the mpirun of MPICH and
  // Intel, and of Slurm.
  for (const char *name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                           "SLURM_STEP_NUM_TASKS"}) {
    // The variables with Slurm's counts are visible in a batch script, too;
    // only a process that srun started has a process id.
    if (std::string(name) == "SLURM_STEP_NUM_TASKS" &&
        !std::getenv("SLURM_PROCID"))
      continue;
    std::optional<int64_t> size = detail::numberIn(name);
    if (!size || *size < 1)
      continue;
    found.variable = name;
    found.size = *size;
    break;
  }
  if (found.variable.empty())
    return std::nullopt;
  found.localRank =
      detail::firstNumber({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                           "MPI_LOCALRANKID", "SLURM_LOCALID"});
  found.hasAddress = std::getenv("MASTER_ADDR") && std::getenv("MASTER_PORT");
  // torchrun may itself have been started by srun or mpirun.
  if (std::getenv("TORCHELASTIC_RUN_ID")) {
    found.rank = detail::firstNumber({"RANK"}).value_or(0);
    found.localSize =
        detail::firstNumber({"LOCAL_WORLD_SIZE"}).value_or(found.size);
    return found;
  }
  found.rank = detail::firstNumber({"OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                    "PMI_RANK", "RANK", "SLURM_PROCID"})
                   .value_or(0);
  found.localSize = detail::firstNumber({"OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"})
                        .value_or(found.size);
  for (const char *name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    found.hasMpi = found.hasMpi || std::getenv(name);
  return found;
}

// Returns whether `transport` runs one rank in each process of the launcher.
inline bool usesProcesses(std::string_view transport) {
  if (transport == "mpi")
    return true;
  std::optional<Launcher> found = launcher();
  return transport == "nccl" && found && found->size > 1;
}

} // namespace cleave

#endif // CLEAVE_LAUNCHER_H
