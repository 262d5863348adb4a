// Sockets for processes that connect without MPI.
#ifndef CLEAVE_RUNTIME_SOCKETS_H
#define CLEAVE_RUNTIME_SOCKETS_H

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace cleave {

// Owns the file descriptor of a socket.
class Socket {
public:
  explicit Socket(int file = -1) : file(file) {}
  Socket(Socket &&other) noexcept : file(std::exchange(other.file, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(file, other.file);
    return *this;
  }
  ~Socket();
  explicit operator bool() const { return file >= 0; }

  // Send or receive without blocking. Return the number of bytes moved, 0 if
  // none can be moved now, or -1 if the peer is gone.
  int64_t send(const void *data, int64_t bytes) const;
  int64_t receive(void *data, int64_t bytes) const;
  // Receives all bytes. Returns false if the deadline passes first, or if the
  // peer is gone.
  using Clock = std::chrono::steady_clock;
  bool receiveAll(void *data, int64_t bytes, Clock::time_point deadline) const;
  // Reads available bytes without consuming them. Returns their number, at most
  // `bytes`, or -1 if the peer is gone.
  int64_t peek(void *data, int64_t bytes) const;
  // Waits at most `milliseconds`. Returns true if data is available or the peer
  // is gone.
  bool await(int milliseconds) const;

  int file;
};

// Listens on all networks, or on this machine only if `host` is a loopback
// name. Throws Error if the port is taken.
Socket listenAt(const std::string &host, int port);
Socket acceptFrom(const Socket &listener); // empty: none waits
// Tries to connect until the deadline. On failure returns an empty socket, with
// the reason in `reason`.
Socket reach(const std::string &host, int port,
             Socket::Clock::time_point deadline, std::string &reason);

} // namespace cleave

#endif // CLEAVE_RUNTIME_SOCKETS_H
