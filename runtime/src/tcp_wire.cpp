// Implements Wire over TCP.

#include "tcp_wire.h"

#include "error.h"
#include "quiet_thread.h"
#include "rendezvous.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

using namespace cleave;

namespace {
using Clock = Socket::Clock;
constexpr int host = 0;

struct Header {
  int32_t from = 0, to = 0, channel = 0, tag = 0;
  int64_t bytes = 0;
};
// If a header has this value as its channel, the message is a notice that the
// process of the rank in the field `tag` has ended.
constexpr int32_t goneNotice = -1;

// If more than this number of bytes has arrived that no receive has asked for,
// the wire stops reading from its connections.
constexpr int64_t mostUnread = int64_t(256) << 20;
// The time for which processes wait for each other to disconnect when they end.
constexpr std::chrono::seconds closeTimeout{10};

struct Outgoing {
  Header header;
  const char *data = nullptr;
  std::unique_ptr<char[]> owned; // copy, for forwarded messages
  uint64_t ticket = 0;           // 0: no request waits for it
  int64_t done = 0;              // sent bytes, including the header
};

struct Incoming {
  Header header;
  std::unique_ptr<char[]> data;
  int64_t done = 0;
};

struct Line {
  Socket socket;
  int peer = -1;
  bool isGone = false;
  std::deque<Outgoing> out;
  Incoming in;
};

// A request for which test() has not returned true yet.
struct Ticket {
  bool isReceive = false, isDone = false;
  int channel = 0, from = 0, tag = 0;
  char *data = nullptr;
  int64_t bytes = 0; // size of `data`; later of the message
  std::string error;
};

class TcpWire : public Wire {
public:
  TcpWire(int rank, int size, std::vector<Socket> sockets)
      : ownRank(rank), worldSize(size), gone(size, false),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    for (int i = 0; i < static_cast<int>(sockets.size()); ++i)
      if (sockets[i]) {
        Line &line = lines.emplace_back();
        line.socket = std::move(sockets[i]);
        line.peer = rank == host ? i : host;
      }
    thread = startQuietThread([this] { move(); });
  }
  ~TcpWire() override { end(); }

  int rank() const override { return ownRank; }
  int size() const override { return worldSize; }
  bool hasGone(int rank) const override {
    std::lock_guard lock(mutex);
    return gone[rank];
  }

  bool seesEnds() const override { return true; }

  int openChannel() override {
    std::lock_guard lock(mutex);
    return ++opened;
  }
  bool channelReady(int) override { return true; }
  void closeChannel(int channel) override {
    std::lock_guard lock(mutex);
    std::erase_if(unread, [&](const Incoming &message) {
      if (message.header.channel == channel)
        unreadBytes -= message.header.bytes;
      return message.header.channel == channel;
    });
    closed.push_back(channel);
  }

  void send(Request &request, int channel, int to, int tag, const void *data,
            int64_t bytes) override {
    std::lock_guard lock(mutex);
    Ticket &ticket = open(request);
    Outgoing message;
    message.header = {ownRank, to, channel, tag, bytes};
    message.data = static_cast<const char *>(data);
    message.ticket = request.handle;
    Line *line = lineTo(to);
    if (line && !line->isGone)
      line->out.push_back(std::move(message));
    else // it has ended; waiting code detects this
      ticket.isDone = true;
    wakeThread();
  }

  void receive(Request &request, int channel, int from, int tag, void *data,
               int64_t bytes) override {
    std::lock_guard lock(mutex);
    Ticket &ticket = open(request);
    ticket.isReceive = true;
    ticket.channel = channel;
    ticket.from = from;
    ticket.tag = tag;
    ticket.data = static_cast<char *>(data);
    ticket.bytes = bytes;
    auto found = find(channel, from, tag);
    if (found == unread.end()) {
      posted.push_back(request.handle);
    } else {
      unreadBytes -= found->header.bytes;
      take(ticket, *found);
      unread.erase(found);
    }
    wakeThread();
  }

  bool test(Request &request, int64_t *bytes) override {
    std::lock_guard lock(mutex);
    auto found = tickets.find(request.handle);
    if (!request.active || found == tickets.end())
      fail(CLEAVE_INTERNAL, "a message is tested that is not under way");
    Ticket &ticket = found->second;
    if (!ticket.isDone) {
      if (ticket.isReceive)
        askForMore();
      return false;
    }
    std::string error = std::move(ticket.error);
    if (bytes)
      *bytes = ticket.bytes;
    tickets.erase(found);
    request.active = false;
    if (!error.empty())
      fail(CLEAVE_INTERNAL, error);
    return true;
  }

  void drop(Request &request, bool) override {
    std::lock_guard lock(mutex);
    if (!request.active)
      return;
    request.active = false;
    std::erase(posted, request.handle);
    tickets.erase(request.handle);
    // The sender may free the memory of a message that is given up, so a
    // message that is partly sent continues from a copy.
    for (Line &line : lines)
      for (Outgoing &message : line.out)
        if (message.ticket == request.handle) {
          message.ticket = 0;
          message.owned.reset(new char[message.header.bytes]);
          if (message.header.bytes)
            std::memcpy(message.owned.get(), message.data,
                        message.header.bytes);
          message.data = message.owned.get();
        }
  }

  bool probe(int channel, int from, int tag, int64_t &bytes) override {
    std::lock_guard lock(mutex);
    auto found = find(channel, from, tag);
    if (found == unread.end()) {
      askForMore();
      return false;
    }
    bytes = found->header.bytes;
    return true;
  }

  // Workers send what they have and disconnect; the host disconnects last.
  void close() override {
    Clock::time_point deadline = Clock::now() + closeTimeout;
    auto areAll = [&](auto holds) {
      std::lock_guard lock(mutex);
      return std::all_of(lines.begin(), lines.end(), holds);
    };
    auto await = [&](auto holds) {
      while (!areAll(holds) && Clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    await([](const Line &line) { return line.isGone || line.out.empty(); });
    if (ownRank == host)
      await([](const Line &line) { return line.isGone; });
    end();
  }

private:
  Ticket &open(Request &request) {
    request.handle = ++made;
    request.active = true;
    return tickets[request.handle];
  }

  Line *lineTo(int rank) {
    for (Line &line : lines)
      if (ownRank != host || line.peer == rank)
        return &line;
    return nullptr;
  }

  static bool matches(const Header &header, int channel, int from, int tag) {
    return header.channel == channel && header.tag == tag &&
           (from == anyone || header.from == from);
  }

  std::list<Incoming>::iterator find(int channel, int from, int tag) {
    return std::find_if(unread.begin(), unread.end(),
                        [&](const Incoming &message) {
                          return matches(message.header, channel, from, tag);
                        });
  }

  static void take(Ticket &ticket, Incoming &message) {
    int64_t bytes = message.header.bytes;
    if (bytes > ticket.bytes)
      ticket.error = "a message of " + std::to_string(bytes) +
                     " bytes came, expected at most " +
                     std::to_string(ticket.bytes);
    else if (bytes > 0)
      std::memcpy(ticket.data, message.data.get(), bytes);
    ticket.bytes = bytes;
    ticket.isDone = true;
  }

  // Called if a receive waits for data that has not arrived. Reading from the
  // connections resumes if it had stopped because more than `mostUnread` bytes
  // had arrived that no receive has asked for.
  void askForMore() {
    if (unreadBytes <= mostUnread || isHungry)
      return;
    isHungry = true;
    wakeThread();
  }

  void wakeThread() {
    uint64_t one = 1;
    (void)!::write(wake.file, &one, sizeof(one));
  }

  void end() {
    if (!thread.joinable())
      return;
    {
      std::lock_guard lock(mutex);
      isEnding = true;
      wakeThread();
    }
    thread.join();
    lines.clear();
  }

  //--- The thread ------------------------------------------------------------

  void move() {
    std::vector<pollfd> watched;
    while (true) {
      watched.assign(1, {wake.file, POLLIN, 0});
      {
        std::lock_guard lock(mutex);
        if (isEnding)
          return;
        bool reads = unreadBytes <= mostUnread || isHungry;
        for (Line &line : lines) {
          short events = reads ? POLLIN | POLLRDHUP : POLLRDHUP;
          if (!line.out.empty())
            events |= POLLOUT;
          watched.push_back({line.isGone ? -1 : line.socket.file, events, 0});
        }
      }
      ::poll(watched.data(), watched.size(), -1);
      uint64_t ignored = 0;
      (void)!::read(wake.file, &ignored, sizeof(ignored));
      std::lock_guard lock(mutex);
      size_t i = 0;
      for (Line &line : lines) {
        short seen = watched[++i].revents;
        if (!line.isGone && (seen & POLLOUT))
          write(line);
        // Data that still arrives is read before the connection is given up.
        try {
          if (!line.isGone && (seen & ~POLLOUT))
            read(line);
        } catch (const std::exception &) { // no memory
          lose(line);
        }
      }
    }
  }

  void write(Line &line) {
    constexpr int64_t headerBytes = sizeof(Header);
    while (!line.out.empty()) {
      Outgoing &message = line.out.front();
      bool isHeader = message.done < headerBytes;
      const char *at =
          isHeader
              ? reinterpret_cast<const char *>(&message.header) + message.done
              : message.data + (message.done - headerBytes);
      int64_t end = isHeader ? headerBytes : headerBytes + message.header.bytes;
      if (message.done < end) {
        int64_t sent = line.socket.send(at, end - message.done);
        if (sent < 0)
          return lose(line);
        if (sent == 0)
          return;
        message.done += sent;
      }
      if (message.done < headerBytes + message.header.bytes)
        continue;
      finish(message);
      line.out.pop_front();
    }
  }

  void finish(const Outgoing &message) {
    if (auto found = tickets.find(message.ticket); found != tickets.end())
      found->second.isDone = true;
  }

  // Reads at most `most` bytes, so that other connections are served, too.
  void read(Line &line) {
    constexpr int64_t headerBytes = sizeof(Header), most = 4 << 20;
    int64_t taken = 0;
    while (taken < most) {
      Incoming &message = line.in;
      bool isHeader = message.done < headerBytes;
      char *at = isHeader
                     ? reinterpret_cast<char *>(&message.header) + message.done
                     : message.data.get() + (message.done - headerBytes);
      int64_t end = isHeader ? headerBytes : headerBytes + message.header.bytes;
      int64_t got = line.socket.receive(at, end - message.done);
      if (got < 0)
        return lose(line);
      if (got == 0)
        return;
      message.done += got;
      taken += got;
      if (message.done == headerBytes) {
        const Header &header = message.header;
        if (header.bytes < 0 || header.bytes > longestMessage ||
            header.to < 0 || header.to >= worldSize || header.from < 0 ||
            header.from >= worldSize)
          return lose(line); // not a message of this job
        message.data.reset(new char[header.bytes]);
      }
      if (message.done < headerBytes + message.header.bytes)
        continue;
      deliver(std::exchange(message, Incoming()));
    }
  }

  void deliver(Incoming message) {
    const Header &header = message.header;
    if (header.to != ownRank) {
      Line *line = ownRank == host ? lineTo(header.to) : nullptr;
      if (!line || line->isGone)
        return;
      Outgoing further;
      further.header = header;
      further.owned = std::move(message.data);
      further.data = further.owned.get();
      line->out.push_back(std::move(further));
      wakeThread();
      return;
    }
    if (header.channel == goneNotice) {
      if (header.tag >= 0 && header.tag < worldSize)
        gone[header.tag] = true;
      return;
    }
    if (std::find(closed.begin(), closed.end(), header.channel) != closed.end())
      return;
    for (auto handle = posted.begin(); handle != posted.end(); ++handle) {
      Ticket &ticket = tickets.at(*handle);
      if (!matches(header, ticket.channel, ticket.from, ticket.tag))
        continue;
      take(ticket, message);
      posted.erase(handle);
      return;
    }
    isHungry = false;
    unreadBytes += header.bytes;
    unread.push_back(std::move(message));
  }

  // Records that the process at the other end of the connection has ended.
  void lose(Line &line) {
    line.isGone = true;
    gone[line.peer] = true;
    for (const Outgoing &message : line.out)
      finish(message);
    line.out.clear();
    line.in = Incoming();
    line.socket = Socket();
    if (ownRank != host)
      return;
    for (Line &other : lines) {
      if (other.isGone)
        continue;
      Outgoing notice;
      notice.header = {host, other.peer, goneNotice, line.peer, 0};
      other.out.push_back(std::move(notice));
    }
    wakeThread();
  }

  const int ownRank, worldSize;
  mutable std::mutex mutex;
  std::list<Line> lines;
  std::vector<bool> gone; // by rank
  std::map<uint64_t, Ticket> tickets;
  std::deque<uint64_t> posted; // receives without data, in order
  std::list<Incoming> unread;  // messages without a receive, in order
  std::vector<int> closed;
  int64_t unreadBytes = 0;
  bool isHungry = false; // a receive waits for data
  uint64_t made = 0;
  int opened = 0;
  bool isEnding = false;
  const Socket wake; // an eventfd
  std::thread thread;
};

//--- Joining -----------------------------------------------------------------

std::unique_ptr<Rendezvous> rendezvous;
bool isOver = false; // waiting for the other processes has ended
} // namespace

std::unique_ptr<Wire> cleave::makeTcpWire(int rank, int size,
                                          std::vector<Socket> lines) {
  return std::make_unique<TcpWire>(rank, size, std::move(lines));
}

bool cleave::awaitCallers() {
  std::optional<Launcher> job = launcher();
  if (!job || job->hasMpi || !job->hasAddress || job->size < 2 || job->rank > 0)
    return false;
  (void)joinSeconds(); // which must make sense
  if (!rendezvous && !isOver)
    rendezvous = std::make_unique<Rendezvous>(*job, rendezvousAddress());
  return true;
}

std::unique_ptr<Wire> cleave::openTcpWire() {
  Launcher job = *launcher();
  auto rank = static_cast<int>(job.rank), size = static_cast<int>(job.size);
  std::vector<Socket> lines;
  if (rank != host) {
    lines.push_back(reachHost(job, rendezvousAddress(), joinSeconds()));
  } else if (size > 1) {
    awaitCallers();
    isOver = true;
    std::unique_ptr<Rendezvous> here = std::move(rendezvous);
    if (!here)
      fail(CLEAVE_RANK_FAILED, "the other processes have been given up");
    lines = here->gather(joinSeconds());
  }
  return makeTcpWire(rank, size, std::move(lines));
}

void cleave::dismissCallers(int code) {
  if (isOver || !awaitCallers())
    return;
  isOver = true;
  std::unique_ptr<Rendezvous> here = std::move(rendezvous);
  here->dismiss(code, std::min(joinSeconds(), 10.0), /*alone=*/2);
}
