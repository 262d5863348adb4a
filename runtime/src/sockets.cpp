// Implements non-blocking sockets.

#include "sockets.h"

#include "error.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace cleave;

namespace {
using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo *)>;

Addresses resolve(const std::string &host, int port, std::string &reason) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  int status =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status)
    reason = gai_strerror(status);
  return {found, [](addrinfo *all) {
            if (all)
              freeaddrinfo(all);
          }};
}

Socket open(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Enables TCP keep-alive, so that the loss of a machine or network is detected
// within a minute or two, even if the peer sends nothing.
void configure(const Socket &socket) {
  auto set = [&](int level, int name, int value) {
    setsockopt(socket.file, level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 120'000);
}

constexpr std::chrono::seconds mostPerAddress{10};

int millisecondsTo(Socket::Clock::time_point deadline) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - Socket::Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1000));
}

bool tryListen(const Socket &made, const sockaddr *at, socklen_t size) {
  int on = 1;
  setsockopt(made.file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  return made && bind(made.file, at, size) == 0 && listen(made.file, 4096) == 0;
}

int64_t moved(ssize_t bytes) {
  if (bytes > 0)
    return bytes;
  bool isLater = bytes < 0 && (errno == EAGAIN || errno == EINTR);
  return isLater ? 0 : -1;
}
} // namespace

Socket::~Socket() {
  if (file >= 0)
    close(file);
}

int64_t Socket::send(const void *data, int64_t bytes) const {
  return moved(::send(file, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
}

int64_t Socket::receive(void *data, int64_t bytes) const {
  return moved(::recv(file, data, bytes, MSG_DONTWAIT));
}

int64_t Socket::peek(void *data, int64_t bytes) const {
  return moved(::recv(file, data, bytes, MSG_DONTWAIT | MSG_PEEK));
}

bool Socket::await(int milliseconds) const {
  pollfd watched{file, POLLIN, 0};
  return ::poll(&watched, 1, milliseconds) > 0;
}

bool Socket::receiveAll(void *data, int64_t bytes,
                        Clock::time_point deadline) const {
  auto *at = static_cast<char *>(data);
  while (bytes > 0) {
    int64_t got = receive(at, bytes);
    if (got < 0 || (got == 0 && Clock::now() > deadline))
      return false;
    if (got == 0)
      await(millisecondsTo(deadline));
    at += got;
    bytes -= got;
  }
  return true;
}

Socket cleave::listenAt(const std::string &host, int port) {
  std::string reason;
  Socket made;
  bool isLocal =
      host == "localhost" || host == "::1" || host.starts_with("127.");
  if (isLocal) {
    Addresses found =
        resolve(host == "localhost" ? "127.0.0.1" : host, port, reason);
    if (found) {
      made = open(found->ai_family);
      if (tryListen(made, found->ai_addr, found->ai_addrlen))
        return made;
    }
  } else {
    sockaddr_in6 all{};
    all.sin6_family = AF_INET6;
    all.sin6_port = htons(static_cast<uint16_t>(port));
    made = open(AF_INET6);
    int off = 0;
    setsockopt(made.file, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (tryListen(made, reinterpret_cast<sockaddr *>(&all), sizeof(all)))
      return made;
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<uint16_t>(port));
    made = open(AF_INET);
    if (tryListen(made, reinterpret_cast<sockaddr *>(&four), sizeof(four)))
      return made;
  }
  if (reason.empty())
    reason = std::strerror(errno);
  fail(CLEAVE_UNSUPPORTED, "the other processes cannot be awaited at port " +
                               std::to_string(port) + ": " + reason +
                               "; choose another with CLEAVE_PORT, the same "
                               "for all processes");
}

Socket cleave::acceptFrom(const Socket &listener) {
  Socket made(
      accept4(listener.file, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (made)
    configure(made);
  return made;
}

Socket cleave::reach(const std::string &host, int port,
                     Socket::Clock::time_point deadline, std::string &reason) {
  Addresses found = resolve(host, port, reason);
  for (addrinfo *one = found.get(); one; one = one->ai_next) {
    Socket made = open(one->ai_family);
    if (!made)
      continue;
    // Limits the wait for an address that does not respond, so that the next
    // address and the next attempt get time.
    auto until = std::min(deadline, Socket::Clock::now() + mostPerAddress);
    int error = connect(made.file, one->ai_addr, one->ai_addrlen) ? errno : 0;
    if (error == EINPROGRESS) {
      pollfd watched{made.file, POLLOUT, 0};
      while (::poll(&watched, 1, millisecondsTo(until)) <= 0 &&
             Socket::Clock::now() < until) {
      }
      socklen_t size = sizeof(error);
      error = ETIMEDOUT;
      if (watched.revents)
        getsockopt(made.file, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      configure(made);
      return made;
    }
    reason = std::strerror(error);
  }
  return Socket();
}
