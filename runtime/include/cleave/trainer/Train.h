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

/// Starts the ranks of a program; tests put their own in its place.
using ExecutorFactory = std::function<std::unique_ptr<StepExecutor>()>;

struct TrainOptions {
  std::string data;             ///< empty: data.path of the configuration
  std::optional<int64_t> steps; ///< how far to go; default: train.steps
  /// train.steps; default: that of the checkpoint, --steps, or the program.
  std::optional<int64_t> horizon;
  /// Keys that a resume may change although they change the mathematics.
  std::vector<std::string> accepted;
  std::string out;       ///< empty: runs/<model>-<n>
  int64_t saveEvery = 0; ///< 0: at the end only
  std::string resume;    ///< a checkpoint, "latest", or empty
  std::string weights; ///< a checkpoint or .safetensors to begin with; or empty
  bool dryRun = false;
  std::string trace;        ///< a file for what ranks did when; empty: none
  int64_t evalEvery = -1;   ///< -1: ten times a run; 0: at the end only
  int64_t evalSamples = -1; ///< -1: by the length of the run; 0: all
  std::optional<bool> progressBar; ///< default: where output is a terminal
  /// Calls of malloc so far, if someone counts them.
  std::function<int64_t()> allocations;
};

/// Trains; returns after the last step, or after SIGINT or SIGTERM have let a
/// step finish and be saved. Throws Error.
void train(const Manifest &manifest, const TrainOptions &options,
           const ExecutorFactory &start);

struct InferOptions {
  std::string inputs;  ///< .npz
  std::string outputs; ///< .npz
  std::string weights; ///< a checkpoint or .safetensors; empty: the model's own
};

/// Runs action "forward" on whole arrays. Throws Error.
void infer(const Manifest &manifest, const InferOptions &options,
           const ExecutorFactory &start);

/// Refuses a number of ranks (--ranks, or a launcher's WORLD_SIZE) that is not
/// the mesh's. Returns the transport to use: local | mpi | nccl.
std::string checkRanks(const Manifest &manifest, std::optional<int64_t> ranks);

/// The launcher's part of checkRanks, for a mesh of `ranks` and the key
/// target.transport: auto | local | mpi | nccl. `device`: target.kind.
std::string chooseTransport(const std::string &key, int64_t ranks,
                            const std::string &device = "cpu");

} // namespace cleave

#endif // CLEAVE_TRAINER_TRAIN_H
