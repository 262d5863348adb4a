// Messages between the processes of a job: the few calls that the `mpi`
// transport and control need. It is implemented by lib/libcleave-mpi.so
// (runtime/mpi), loaded only in a process that a launcher started, so that
// nothing else needs MPI; or TCP, where the launcher brings no MPI
// (tcp_wire.h).
#ifndef CLEAVE_RUNTIME_WIRE_H
#define CLEAVE_RUNTIME_WIRE_H

#include <cstdint>
#include <string>

namespace cleave {

class Wire {
public:
  static constexpr int anyone = -1;
  // Tags are in [0, lastTag]: what every MPI allows.
  static constexpr int lastTag = 32767;
  // Larger ones are sent in pieces.
  static constexpr int64_t longestMessage = int64_t(1) << 29;

  // A message on its way.
  struct Request {
    uint64_t handle = 0;
    bool active = false;
  };

  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Whether the process of the rank has ended, where the wire can tell, which
  // seesEnds() says.
  virtual bool hasGone(int rank) const {
    (void)rank;
    return false;
  }
  virtual bool seesEnds() const { return false; }

  // A set of messages apart from all others. All processes open theirs in the
  // same order; it can be used once channelReady() says so.
  virtual int openChannel() = 0;
  virtual bool channelReady(int channel) = 0;
  virtual void closeChannel(int channel) = 0;

  // Messages from one sender with one tag arrive in the order in which they
  // were sent. The memory belongs to the message until test() says true.
  virtual void send(Request &, int channel, int to, int tag, const void *data,
                    int64_t bytes) = 0;
  virtual void receive(Request &, int channel, int from, int tag, void *data,
                       int64_t bytes) = 0;
  // True when the message has arrived, or its memory is free again; `bytes`
  // (may be NULL) is how long a received one was.
  virtual bool test(Request &, int64_t *bytes) = 0;
  // Gives up on a message that nobody waits for any more.
  virtual void drop(Request &, bool isReceive) = 0;
  // Whether a message with this tag is there to be received.
  virtual bool probe(int channel, int from, int tag, int64_t &bytes) = 0;

  // All processes together; nothing may be called afterwards.
  virtual void close() = 0;
};

// In the library: starts MPI. Throws Error.
using OpenWire = Wire *(*)();
inline constexpr const char *openWireSymbol = "cleaveOpenMpiWire";

} // namespace cleave

#endif // CLEAVE_RUNTIME_WIRE_H
