// Messages between the processes of a job: the few calls that the `mpi`
// transport and the control of workers need. One implementation is
// lib/libcleave-mpi.so (runtime/mpi). It is loaded only in processes that a
// launcher started, so that everything else runs without MPI. The other
// implementation is TCP, for launchers without MPI (tcp_wire.h).
#ifndef CLEAVE_RUNTIME_WIRE_H
#define CLEAVE_RUNTIME_WIRE_H

#include <cstdint>
#include <string>

namespace cleave {

class Wire {
public:
  static constexpr int anyone = -1;
  // Tags are in [0, lastTag], the range that every MPI supports.
  static constexpr int lastTag = 32767;
  // Larger messages must be sent in pieces.
  static constexpr int64_t longestMessage = int64_t(1) << 29;

  // A message that is being sent or received.
  struct Request {
    uint64_t handle = 0;
    bool active = false;
  };

  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns whether the process of the rank has ended. Only wires with
  // seesEnds() can tell.
  virtual bool hasGone(int rank) const {
    (void)rank;
    return false;
  }
  virtual bool seesEnds() const { return false; }

  // Opens a channel, which separates its messages from those of other channels.
  // All processes must open channels in the same order. A channel is usable
  // once channelReady() returns true.
  virtual int openChannel() = 0;
  virtual bool channelReady(int channel) = 0;
  virtual void closeChannel(int channel) = 0;

  // Start to send or receive a message. Messages from one sender with one tag
  // arrive in the order of sending. The memory `data` must not be used until
  // test() returns true.
  virtual void send(Request &, int channel, int to, int tag, const void *data,
                    int64_t bytes) = 0;
  virtual void receive(Request &, int channel, int from, int tag, void *data,
                       int64_t bytes) = 0;
  // Returns true if the message has been received or sent, so that its memory
  // may be used again. `bytes` (may be NULL) receives the length of a received
  // message.
  virtual bool test(Request &, int64_t *bytes) = 0;
  // Gives up a message that no code waits for any more.
  virtual void drop(Request &, bool isReceive) = 0;
  // Returns whether a message with this tag can be received.
  virtual bool probe(int channel, int from, int tag, int64_t &bytes) = 0;

  // Called by all processes together. No other function may be called
  // afterwards.
  virtual void close() = 0;
};

// The function of the library that starts MPI. Throws Error.
using OpenWire = Wire *(*)();
inline constexpr const char *openWireSymbol = "cleaveOpenMpiWire";

} // namespace cleave

#endif // CLEAVE_RUNTIME_WIRE_H
