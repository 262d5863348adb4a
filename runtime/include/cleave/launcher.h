// What a launcher (mpirun, srun, torchrun) has said about this process, read
// from the environment. Header-only: the configuration asks before anything is
// compiled, the runtime before MPI is started.
#ifndef CLEAVE_LAUNCHER_H
#define CLEAVE_LAUNCHER_H

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>

namespace cleave {

struct Launcher {
  std::string variable;  // that told the size
  int64_t size = 1;      // processes of the job
  int64_t rank = 0;      // this one
  int64_t localSize = 1; // processes of the job on this machine
  // False under torchrun, which starts processes but brings no MPI.
  bool hasMpi = false;
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

inline int64_t firstNumber(std::initializer_list<const char *> names,
                           int64_t otherwise) {
  for (const char *name : names)
    if (std::optional<int64_t> number = numberIn(name))
      return *number;
  return otherwise;
}
} // namespace detail

// Nothing where the process was started by hand.
inline std::optional<Launcher> launcher() {
  Launcher found;
  // torchrun; Open MPI's mpirun; MPICH's and Intel's.
  for (const char *name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                           "SLURM_STEP_NUM_TASKS"}) {
    // A batch script sees Slurm's counts too; only a step that srun started
    // has a process id.
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
  found.rank = detail::firstNumber(
      {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK", "SLURM_PROCID"},
      0);
  found.localSize = detail::firstNumber(
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"},
      found.size);
  for (const char *name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    found.hasMpi = found.hasMpi || std::getenv(name);
  return found;
}

} // namespace cleave

#endif // CLEAVE_LAUNCHER_H
