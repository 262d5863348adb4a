// Stores: in this process, and over TCP.

#include "store.h"

#include "error.h"

#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace cleave;
using namespace cleave::cuda;

namespace {
class LocalStore : public Store {
public:
  void set(const std::string &key, const std::string &value) override {
    std::lock_guard lock(mutex);
    values[key] = value;
  }
  std::optional<std::string> get(const std::string &key) override {
    std::lock_guard lock(mutex);
    auto found = values.find(key);
    if (found == values.end())
      return std::nullopt;
    return found->second;
  }

private:
  std::mutex mutex;
  std::map<std::string, std::string> values;
};

//--- Over TCP ----------------------------------------------------------------

// A request is a letter, 'S'et or 'G'et, a key and, to set, a value; the answer
// to a get is a flag and a value. Texts are preceded by their length.
constexpr uint32_t longestText = 1 << 20;

class Socket {
public:
  explicit Socket(int file = -1) : file(file) {}
  Socket(Socket &&other) noexcept : file(std::exchange(other.file, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(file, other.file);
    return *this;
  }
  ~Socket() {
    if (file >= 0)
      close(file);
  }

  // False where the other side is gone.
  bool send(const void *data, size_t size) const {
    auto *at = static_cast<const char *>(data);
    while (size > 0) {
      ssize_t sent = ::send(file, at, size, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR)
        continue;
      if (sent <= 0)
        return false;
      at += sent;
      size -= size_t(sent);
    }
    return true;
  }
  bool receive(void *data, size_t size) const {
    auto *at = static_cast<char *>(data);
    while (size > 0) {
      ssize_t got = ::recv(file, at, size, 0);
      if (got < 0 && errno == EINTR)
        continue;
      if (got <= 0)
        return false;
      at += got;
      size -= size_t(got);
    }
    return true;
  }
  bool sendText(const std::string &text) const {
    auto size = static_cast<uint32_t>(text.size());
    return send(&size, sizeof(size)) && send(text.data(), size);
  }
  bool receiveText(std::string &text) const {
    uint32_t size = 0;
    if (!receive(&size, sizeof(size)) || size > longestText)
      return false;
    text.resize(size);
    return receive(text.data(), size);
  }

  int file;
};

class Server {
public:
  explicit Server(int port) {
    listener = Socket(socket(AF_INET, SOCK_STREAM, 0));
    int on = 1;
    setsockopt(listener.file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(static_cast<uint16_t>(port));
    socklen_t size = sizeof(address);
    if (listener.file < 0 ||
        bind(listener.file, reinterpret_cast<sockaddr *>(&address), size) ||
        listen(listener.file, 256))
      fail(CLEAVE_UNSUPPORTED, "cannot serve the ranks at port " +
                                   std::to_string(port) + ": " +
                                   std::strerror(errno));
    getsockname(listener.file, reinterpret_cast<sockaddr *>(&address), &size);
    this->port = ntohs(address.sin_port);
    acceptor = std::thread([this] { accept(); });
  }

  ~Server() {
    isEnding = true;
    shutdown(listener.file, SHUT_RDWR);
    acceptor.join();
    {
      std::lock_guard lock(mutex);
      for (const std::unique_ptr<Socket> &client : clients)
        shutdown(client->file, SHUT_RDWR);
    }
    for (std::thread &thread : threads)
      thread.join();
  }

  int port = 0;

private:
  void accept() {
    while (!isEnding) {
      Socket client(::accept(listener.file, nullptr, nullptr));
      if (client.file < 0)
        continue;
      std::lock_guard lock(mutex);
      clients.push_back(std::make_unique<Socket>(std::move(client)));
      threads.emplace_back([this, one = clients.back().get()] { serve(*one); });
    }
  }

  void serve(const Socket &client) {
    char kind = 0;
    std::string key, value;
    while (client.receive(&kind, 1) && client.receiveText(key)) {
      if (kind == 'S') {
        if (!client.receiveText(value))
          return;
        values.set(key, value);
        continue;
      }
      std::optional<std::string> found = values.get(key);
      char flag = found ? 1 : 0;
      if (!client.send(&flag, 1) || !client.sendText(found.value_or("")))
        return;
    }
  }

  LocalStore values;
  Socket listener;
  std::atomic<bool> isEnding{false};
  std::thread acceptor;
  std::mutex mutex;
  std::vector<std::unique_ptr<Socket>> clients;
  std::vector<std::thread> threads;
};

Socket reach(const std::string &host, int port, double seconds) {
  std::string where = host + ":" + std::to_string(port), reason;
  auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  do {
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    if (int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(),
                                 &hints, &found)) {
      reason = gai_strerror(status);
    } else {
      Socket out(socket(AF_INET, SOCK_STREAM, 0));
      bool isReached =
          connect(out.file, found->ai_addr, found->ai_addrlen) == 0;
      reason = std::strerror(errno);
      freeaddrinfo(found);
      if (isReached) {
        int on = 1;
        setsockopt(out.file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return out;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (std::chrono::steady_clock::now() < deadline);
  fail(CLEAVE_TIMEOUT, "cannot reach rank 0 at " + where + ": " + reason);
}

class TcpStore : public Store {
public:
  TcpStore(const std::string &host, int port, bool serves, double seconds)
      : server(serves ? std::make_unique<Server>(port) : nullptr),
        where(host + ":" + std::to_string(server ? server->port : port)),
        link(reach(host, server ? server->port : port, seconds)) {}

  void set(const std::string &key, const std::string &value) override {
    std::lock_guard lock(mutex);
    need(link.send("S", 1) && link.sendText(key) && link.sendText(value));
  }
  std::optional<std::string> get(const std::string &key) override {
    std::lock_guard lock(mutex);
    char flag = 0;
    std::string value;
    need(link.send("G", 1) && link.sendText(key) && link.receive(&flag, 1) &&
         link.receiveText(value));
    if (!flag)
      return std::nullopt;
    return value;
  }

  const std::unique_ptr<Server> server;

private:
  void need(bool isGood) const {
    if (!isGood)
      fail(CLEAVE_RANK_FAILED,
           "rank 0, which served the ranks at " + where + ", is gone");
  }

  const std::string where;
  std::mutex mutex;
  Socket link;
};
} // namespace

std::unique_ptr<Store> cuda::makeLocalStore() {
  return std::make_unique<LocalStore>();
}

std::unique_ptr<Store> cuda::makeTcpStore(const std::string &host, int port,
                                          bool serves, double seconds) {
  return std::make_unique<TcpStore>(host, port, serves, seconds);
}

int cuda::portOf(const Store &store) {
  auto *tcp = dynamic_cast<const TcpStore *>(&store);
  return tcp && tcp->server ? tcp->server->port : 0;
}

std::unique_ptr<Store> cuda::makeLauncherStore(int rank, double seconds) {
  const char *host = std::getenv("MASTER_ADDR");
  const char *port = std::getenv("MASTER_PORT");
  if (!host || !port)
    fail(CLEAVE_BAD_ARGUMENT,
         "transport \"nccl\" over several processes finds "
         "the others at MASTER_ADDR and MASTER_PORT, which "
         "are not set; start it with torchrun, or set "
         "both");
  char *end = nullptr;
  long number = std::strtol(port, &end, 10);
  if (*end || number < 1 || number > 65535)
    fail(CLEAVE_BAD_ARGUMENT,
         std::string("MASTER_PORT is \"") + port + "\", expected 1 to 65535");
  return makeTcpStore(host, int(number), rank == 0, seconds);
}
