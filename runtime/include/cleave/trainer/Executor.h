//===- Executor.h - what the training loop needs of a running program -----===//
//
// The loop works against this interface; SessionExecutor serves it through the
// runtime's C ABI, and tests serve it with a model of a few lines.
//
//===----------------------------------------------------------------------===//
#ifndef CLEAVE_TRAINER_EXECUTOR_H
#define CLEAVE_TRAINER_EXECUTOR_H

#include "cleave/io/Array.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cleave {

/// An entry of the boundary table. The shape is that of the whole array.
struct BufferInfo {
  std::string name;
  std::string tie;  ///< the buffer whose storage it shares, or empty
  std::string role; ///< parameter, state, gradient, input, loss, metric, ...
  std::string of;   ///< the parameter that state or a gradient belongs to
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
  int64_t poolBytes = 0;      ///< of the whole process
};

/// One command of an action on one rank.
struct RankEvent {
  std::string name, kind; ///< "0F3", "call"
  int64_t beginNs = 0, endNs = 0;
  bool transfers = false; ///< on the stream of what ranks send each other
  /// Where a message starts or arrives: its ends, and its number among theirs.
  int64_t from = -1, to = -1, message = 0;
  std::string kernel = {}; ///< the symbol of a launched kernel
  int64_t bytes = 0;       ///< of its operands and results; 0: not known
  int64_t flops = 0;
};

class StepExecutor {
public:
  virtual ~StepExecutor() = default;

  virtual int64_t ranks() const = 0;
  virtual bool hasAction(const std::string &action) const = 0;
  virtual const std::vector<BufferInfo> &buffers() const = 0;

  /// A whole array to the ranks' tiles. Floating types are converted. What
  /// tiles have beyond the array is zero, or `*padding`: an element of the
  /// buffer's type.
  virtual void scatter(const std::string &buffer, const ArrayView &array,
                       const void *padding = nullptr) = 0;
  /// The inverse, in type `dtype`; partial values are reduced.
  virtual Array gather(const std::string &buffer, const std::string &dtype) = 0;
  /// Zeros in the tiles of all ranks.
  virtual void zero(const std::string &buffer) = 0;
  virtual void setScalar(const std::string &buffer, double value) = 0;
  virtual void setInteger(const std::string &buffer, int64_t value) = 0;

  /// Runs an action on all ranks. Throws RunError naming rank and command.
  virtual void run(const std::string &action) = 0;

  virtual std::vector<RankTraffic> traffic(int64_t rank) = 0;
  /// Floating-point operations of attention, of blocks that were computed.
  virtual int64_t attentionFlops(int64_t rank) { return 0; }
  virtual RankMemory memory(int64_t rank) = 0;
  virtual void resetCounters() = 0;

  /// Records from now on what ranks do, and when.
  virtual void startTrace() {}
  virtual void stopTrace() {}
  /// What has been recorded of a rank since the last call.
  virtual std::vector<RankEvent> takeTrace(int64_t rank) { return {}; }

  const BufferInfo *find(const std::string &buffer) const;
  /// Throws InputError if the program has no such buffer.
  const BufferInfo &need(const std::string &buffer) const;
};

struct ExecutorOptions {
  std::string transport = "local"; ///< or mpi; see chooseTransport
  int threadsPerRank = 0;          ///< 0: cores / ranks
  double watchdogSeconds = 0;      ///< 0: the runtime's default
  bool poison = false;
  /// Latency in us and GB/s of the links that ranks of this process are to
  /// behave as if after; empty: none.
  std::vector<double> link;
  /// Tests: rank, run, command (and silence instead of an error) of a failure.
  std::vector<int64_t> failure;
};

/// Loads FOLDER/program.bin and starts its ranks. Throws InputError
/// if the program cannot be used.
std::unique_ptr<StepExecutor> makeSessionExecutor(const std::string &folder,
                                                  const ExecutorOptions &);

} // namespace cleave

#endif // CLEAVE_TRAINER_EXECUTOR_H
