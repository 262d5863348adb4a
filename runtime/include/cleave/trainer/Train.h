//===- Train.h - cleave-run's two commands --------------------------------===//
#ifndef CLEAVE_TRAINER_TRAIN_H
#define CLEAVE_TRAINER_TRAIN_H

#include "cleave/manifest.h"
#include "cleave/trainer/Executor.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// Creates the executor, which starts the ranks of a program. Tests provide an
/// executor of their own.
using ExecutorFactory = std::function<std::unique_ptr<StepExecutor>()>;

struct TrainOptions {
  std::string data;             ///< empty: data.path of the configuration
  std::optional<int64_t> steps; ///< end of the run; default: train.steps
  /// train.steps, the end of the learning-rate schedule. Defaults to the
  /// checkpoint's value, then --steps, then the program's.
  std::optional<int64_t> horizon;
  /// Keys that a resume may change although they affect the mathematics.
  std::vector<std::string> accepted;
  std::string out;       ///< empty: runs/<model>-<n>
  int64_t saveEvery = 0; ///< 0: at the end only
  std::string resume;    ///< a checkpoint, "latest", or empty
  std::string weights; ///< a checkpoint or .safetensors to begin with; or empty
  bool dryRun = false;
  std::string trace;        ///< file for the time line of ranks; empty: none
  int64_t evalEvery = -1;   ///< -1: ten times a run; 0: at the end only
  int64_t evalSamples = -1; ///< -1: by the length of the run; 0: all
  std::optional<bool> progressBar; ///< default: where output is a terminal
  /// A function that returns how often malloc has been called so far. Unset if
  /// the caller does not count these calls.
  std::function<int64_t()> allocations;
};

/// Trains until the last step, or until SIGINT or SIGTERM. A signal ends
/// training after the current step, which is then saved. Throws Error.
void train(const Manifest &manifest, const TrainOptions &options,
           const ExecutorFactory &start);

struct InferOptions {
  std::string inputs;  ///< .npz
  std::string outputs; ///< .npz
  std::string weights; ///< a checkpoint or .safetensors; empty: the model's own
};

/// Runs the action "forward" on the arrays of a file, for all their samples.
/// Throws Error.
void infer(const Manifest &manifest, const InferOptions &options,
           const ExecutorFactory &start);

/// Throws InputError if the number of ranks (--ranks, or a launcher's
/// WORLD_SIZE) differs from that of the mesh. Returns the transport: local, mpi
/// or nccl.
std::string checkRanks(const Manifest &manifest, std::optional<int64_t> ranks);

/// Returns the transport for a mesh of `ranks` ranks under the launcher of this
/// process, if any. `key` is target.transport (auto, local, mpi, nccl), and
/// `device` is target.kind. Throws InputError if the launcher has started
/// another number of processes.
std::string chooseTransport(const std::string &key, int64_t ranks,
                            const std::string &device = "cpu");

} // namespace cleave

#endif // CLEAVE_TRAINER_TRAIN_H
