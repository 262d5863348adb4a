// Transfers between two ranks on devices of one process; see Channel. The side
// that starts second enqueues the copy, after the work of both sides.
#ifndef CLEAVE_RUNTIME_CUDA_DEVICE_CHANNEL_H
#define CLEAVE_RUNTIME_CUDA_DEVICE_CHANNEL_H

#include "device_moves.h"

#include <condition_variable>
#include <deque>
#include <mutex>

namespace cleave::cuda {

class DeviceMessage;

class DeviceChannel {
public:
  explicit DeviceChannel(const TransportOptions &options) : options(options) {}

  // Prepares one side of a message that is sent repeatedly.
  std::unique_ptr<Operation> prepare(CollectiveCall call, Counters &counters,
                                     Transfers &transfers);
  void abort();

private:
  friend class DeviceMessage;

  const TransportOptions &options;
  std::mutex mutex; // also guards the fields of messages
  std::condition_variable changed;
  std::deque<DeviceMessage *> waiting; // all sends or all receives
  bool isAborted = false;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_DEVICE_CHANNEL_H
