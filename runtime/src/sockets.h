// Sockets of processes that find each other without MPI.
#ifndef CLEAVE_RUNTIME_SOCKETS_H
#define CLEAVE_RUNTIME_SOCKETS_H

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace cleave {

// Owns a file.
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

  // Without waiting: bytes moved, 0 where none can be now, -1 where the other
  // side is gone.
  int64_t send(const void *data, int64_t bytes) const;
  int64_t receive(void *data, int64_t bytes) const;
  // All of it by then; false where that is not to be.
  using Clock = std::chrono::steady_clock;
  bool receiveAll(void *data, int64_t bytes, Clock::time_point deadline) const;
  // As bytes that stay: how many are there, of at most so many; -1: gone.
  int64_t peek(void *data, int64_t bytes) const;
  // Returns after `milliseconds` at most; true where something is there, or
  // the other side is gone.
  bool await(int milliseconds) const;

  int file;
};

// On all networks, or on this machine only where `host` is a name of itself
// alone. Throws Error where the port is taken.
Socket listenAt(const std::string &host, int port);
Socket acceptFrom(const Socket &listener); // empty where nobody is there
// Empty where it is not reached by then, with the reason.
Socket reach(const std::string &host, int port,
             Socket::Clock::time_point deadline, std::string &reason);

} // namespace cleave

#endif // CLEAVE_RUNTIME_SOCKETS_H
