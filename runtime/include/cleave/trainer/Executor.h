//===- Executor.h - what the training loop needs of a running program -----===//
//
// The training loop runs programs only through this interface. SessionExecutor
// implements it by the runtime's C ABI. Tests implement it by a small language
// model that needs no runtime.
//
//===----------------------------------------------------------------------===//
#ifndef CLEAVE_TRAINER_EXECUTOR_H
#define CLEAVE_TRAINER_EXECUTOR_H

#include "cleave/io/Array.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cleave {

/// Roles of buffers in program.bin that the training loop looks for.
namespace role {
inline constexpr std::string_view gradient = "gradient",
                                  accumulator = "accumulator", loss = "loss",
                                  weight = "weight", metric = "metric";
} // namespace role

/// A named buffer of the program (an entry of the boundary table in
/// program.bin). The shape is that of the whole array, not of a rank's tile.
struct BufferInfo {
  std::string name;
  std::string tie;  ///< the buffer whose storage it shares, or empty
  std::string role; ///< parameter, state, gradient, input, loss, metric, ...
  std::string of;   ///< of a state or gradient: its parameter
  std::string dtype;
  std::vector<int64_t> shape;
};

struct RankTraffic {
  std::string purpose;
  int64_t sentBytes = 0, receivedBytes = 0, calls = 0;
};

struct RankMemory {
  int64_t arenaBytes = 0;
  int64_t touchedBytes = -1;  ///< measured only in the poison mode
  int64_t scratchBytes = 0;   ///< rounding of the arenas to pages
  int64_t unplannedBytes = 0; ///< library workspace beyond the plan
  int64_t poolBytes = 0;      ///< memory pool of the whole process
};

/// One command of an action on one rank.
struct RankEvent {
  std::string name, kind; ///< "0F3", "call"
  int64_t beginNs = 0, endNs = 0;
  bool transfers = false; ///< it runs on the stream of transfers
  /// If a message starts or arrives at this command: its sender, its receiver,
  /// and its number among the messages from one to the other.
  int64_t from = -1, to = -1, message = 0;
  std::string kernel = {}; ///< the symbol of a launched kernel
  int64_t bytes = 0;       ///< of its operands and results; 0: unknown
  int64_t flops = 0;
};

class StepExecutor {
public:
  virtual ~StepExecutor() = default;

  virtual int64_t ranks() const = 0;
  virtual bool hasAction(const std::string &action) const = 0;
  virtual const std::vector<BufferInfo> &buffers() const = 0;

  /// Scatters a whole array to the tiles of all ranks, converting floating
  /// types. The padding of tiles (elements beyond the array) becomes zero or,
  /// if `padding` is given, the element of the buffer's type to which it
  /// points.
  virtual void scatter(const std::string &buffer, const ArrayView &array,
                       const void *padding = nullptr) = 0;
  /// Gathers the tiles of all ranks into an array of type `dtype`; partial sums
  /// are reduced.
  virtual Array gather(const std::string &buffer, const std::string &dtype) = 0;
  /// Writes zeros to the tiles of all ranks.
  virtual void zero(const std::string &buffer) = 0;
  virtual void setScalar(const std::string &buffer, double value) = 0;
  virtual void setInteger(const std::string &buffer, int64_t value) = 0;

  /// Runs an action on all ranks. Throws RunError naming rank and command.
  virtual void run(const std::string &action) = 0;

  virtual std::vector<RankTraffic> traffic(int64_t rank) = 0;
  /// Returns the number of floating-point operations of attention on this rank.
  /// Blocks of scores that are masked entirely are not computed and not
  /// counted.
  virtual int64_t attentionFlops(int64_t rank) { return 0; }
  virtual RankMemory memory(int64_t rank) = 0;
  virtual void resetCounters() = 0;

  /// Starts recording the events of all ranks with their times.
  virtual void startTrace() {}
  virtual void stopTrace() {}
  /// Returns the events of a rank that were recorded since the last call.
  virtual std::vector<RankEvent> takeTrace(int64_t rank) { return {}; }

  const BufferInfo *find(const std::string &buffer) const;
  /// Returns information about a buffer. Throws InputError if the program has
  /// no such buffer.
  const BufferInfo &need(const std::string &buffer) const;
};

struct ExecutorOptions {
  std::string transport = "local"; ///< local | mpi | nccl; see chooseTransport
  int threadsPerRank = 0;          ///< 0: cores / ranks
  double watchdogSeconds = 0;      ///< 0: the runtime's default
  bool poison = false;
  /// The latency in us and the bandwidth in GB/s of the links that are emulated
  /// between ranks of this process. Empty if links are not emulated.
  std::vector<double> link;
  /// For tests: the rank, run and command at which a failure is injected. The
  /// optional fourth number is 1 if the rank should stop responding there
  /// instead of reporting an error.
  std::vector<int64_t> failure;
};

/// Loads FOLDER/program.bin and starts its ranks. Throws InputError if the
/// program is unusable.
std::unique_ptr<StepExecutor> makeSessionExecutor(const std::string &folder,
                                                  const ExecutorOptions &);

} // namespace cleave

#endif // CLEAVE_TRAINER_EXECUTOR_H
