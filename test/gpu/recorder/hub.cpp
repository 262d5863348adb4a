// The hub of a communicator: matches the calls that members in several
// processes make, checks that they agree, and sends each member its result.

#include "hub.h"

#include <arpa/inet.h>
#include <cstring>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace recorder;

namespace {
bool sendAll(int file, const void *data, size_t size) {
  auto *at = static_cast<const char *>(data);
  while (size > 0) {
    ssize_t sent = ::send(file, at, size, MSG_NOSIGNAL);
    if (sent <= 0)
      return false;
    at += sent;
    size -= size_t(sent);
  }
  return true;
}
bool receiveAll(int file, void *data, size_t size) {
  return size == 0 || ::recv(file, data, size, MSG_WAITALL) == ssize_t(size);
}

void sendAtOnce(int file) {
  int on = 1;
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

struct Message {
  Notice notice;
  std::string text;
  std::vector<char> data;

  bool receive(int file) {
    if (!receiveAll(file, &notice, sizeof(notice)))
      return false;
    text.resize(notice.textBytes);
    data.resize(notice.bytes);
    return receiveAll(file, text.data(), text.size()) &&
           receiveAll(file, data.data(), data.size());
  }
};

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(uint16_t(port));
  return address;
}

// The hub object is never destroyed, because its threads may still use it while
// the process exits.
class Hub {
public:
  static Hub &get() {
    static auto *hub = new Hub;
    return *hub;
  }

  int port = 0;

private:
  static constexpr int notJoined = -1, gone = -2;
  struct Meeting {
    std::vector<std::optional<Message>> offers; // by member; sender, receiver
    size_t come = 0;
  };
  struct Hall {
    std::vector<int> files; // sockets by member; or notJoined, gone
    std::vector<int64_t> processes;
    std::map<Notice::Key, Meeting> meetings;
  };

  Hub() {
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    auto *at = reinterpret_cast<sockaddr *>(&address);
    if (listener < 0 || bind(listener, at, size) || listen(listener, 256))
      return; // members cannot connect
    getsockname(listener, at, &size);
    port = ntohs(address.sin_port);
    std::thread([this] {
      while (true) {
        int file = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (file >= 0)
          std::thread([this, file] { serve(file); }).detach();
      }
    }).detach();
  }

  void serve(int file) {
    sendAtOnce(file);
    Message message;
    if (!message.receive(file) || message.notice.kind != Notice::Join)
      return;
    const int rank = message.notice.from, size = message.notice.to;
    Hall *hall = nullptr;
    {
      std::lock_guard lock(mutex);
      hall = &halls[message.notice.number];
      if (hall->files.empty()) {
        hall->files.assign(size, notJoined);
        hall->processes.assign(size, 0);
      }
      if (int(hall->files.size()) != size || hall->files[rank] != notJoined)
        return;
      hall->files[rank] = file;
      hall->processes[rank] = message.notice.process;
      if (std::find(hall->files.begin(), hall->files.end(), notJoined) ==
          hall->files.end()) {
        Notice joined;
        joined.kind = Notice::Joined;
        for (int64_t process : hall->processes)
          joined.process |= process != hall->processes[0];
        for (int other : hall->files)
          sendAll(other, &joined, sizeof(joined));
      }
    }
    while (message.receive(file)) {
      std::lock_guard lock(mutex);
      if (message.notice.kind == Notice::Came)
        sendAll(hall->files[message.notice.to], &message.notice,
                sizeof(Notice));
      else
        take(*hall, rank, std::move(message));
    }
    std::lock_guard lock(mutex);
    hall->files[rank] = gone;
    close(file);
  }

  // Receives the message that one member sends for a collective, or for its
  // side of a send and receive: its operands and parameters. When the messages
  // of all members that take part are here, the hub computes the results and
  // sends them to these members.
  void take(Hall &hall, int rank, Message message) {
    Notice::Side side = message.notice.side;
    Notice::Key key = message.notice.key();
    std::get<0>(key) = side == Notice::All; // both sides of a message
    Meeting &meeting = hall.meetings[key];
    meeting.offers.resize(side == Notice::All ? hall.files.size() : 2);
    size_t self = side == Notice::All ? rank : side == Notice::Receiver;
    meeting.offers[self] = std::move(message);
    if (++meeting.come < meeting.offers.size())
      return;
    answer(hall, meeting);
    hall.meetings.erase(key);
  }

  static Call callOf(const Message &offer) {
    const Notice &notice = offer.notice;
    return {.kind = notice.call,
            .src = offer.data.data(),
            .count = notice.count,
            .type = notice.type,
            .op = notice.op,
            .peer = notice.peer};
  }

  void answer(Hall &hall, Meeting &meeting) {
    Exchange exchange;
    exchange.members.resize(meeting.offers.size());
    std::vector<std::vector<char>> results(meeting.offers.size());
    std::string error;
    const Message &first = *meeting.offers[0];
    for (size_t i = 0; i < results.size(); ++i) {
      const Message &offer = *meeting.offers[i];
      Call &call = exchange.members[i].call = callOf(offer);
      results[i].resize(call.count * sizeOf(call.type) *
                        (call.kind == Call::AllGather ? results.size() : 1));
      call.dst = results[i].data();
      if (error.empty() && !agree(exchange.members[0].call, call))
        error = "members of a communicator differ: " + offer.text + " is " +
                call.text() + ", " + first.text + " is " +
                exchange.members[0].call.text();
    }
    if (error.empty())
      exchange.run();
    for (size_t i = 0; i < results.size(); ++i) {
      Notice done = meeting.offers[i]->notice;
      bool hasResult = error.empty() && done.side != Notice::Sender;
      done.kind = Notice::Done;
      done.textBytes = int32_t(error.size());
      done.bytes = hasResult ? int64_t(results[i].size()) : 0;
      int member = done.side == Notice::Sender     ? done.from
                   : done.side == Notice::Receiver ? done.to
                                                   : int(i);
      int file = hall.files[member];
      (void)(sendAll(file, &done, sizeof(done)) &&
             sendAll(file, error.data(), error.size()) &&
             sendAll(file, results[i].data(), size_t(done.bytes)));
    }
  }

  int listener = -1;
  std::mutex mutex;
  std::map<int64_t, Hall> halls;
};

//--- Members -----------------------------------------------------------------

class Elsewhere : public Meeting {
public:
  struct Part {
    Call call;
    Notice notice;
    std::shared_ptr<Line::Reply> reply;
  };
  std::vector<Part> parts;
  std::shared_ptr<const Who> who;

  void arrive(const Clock &) override {
    for (Part &part : parts)
      part.reply = part.call.communicator->line->offer(part.notice, who->text(),
                                                       part.call.src);
  }
  bool isDone() const override {
    for (const Part &part : parts)
      if (!part.reply->isDone && !part.call.communicator->isAborted)
        return false;
    return true;
  }
  // Vector clocks find data races between operations. The clocks of members in
  // other processes are not joined with this process's clock, because the
  // operations of other processes access other memory.
  void leave(Clock &) override {
    for (Part &part : parts) {
      --part.call.communicator->pending;
      if (!part.reply->error.empty())
        Recorder::get().report.error(part.reply->error);
      else if (part.reply->isDone && part.notice.side != Notice::Sender)
        std::memcpy(part.call.dst, part.reply->result.data(),
                    part.reply->result.size());
    }
  }
  std::string missing() const override { return "a member elsewhere"; }
};
} // namespace

void recorder::nameId(ncclUniqueId &out) {
  static std::atomic<int> made{0};
  std::memset(&out, 0, sizeof(out));
  std::snprintf(out.internal, sizeof(out.internal), "recorder %d %d %d",
                Hub::get().port, ++made, int(getpid()));
}

std::shared_ptr<Line> Line::reach(const ncclUniqueId &id, int rank, int size,
                                  std::shared_ptr<Group> group) {
  int port = 0, number = 0;
  if (std::sscanf(id.internal, "recorder %d %d", &port, &number) != 2)
    return nullptr;
  auto line =
      std::make_shared<Line>(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(port);
  if (connect(line->file, reinterpret_cast<sockaddr *>(&address),
              sizeof(address)))
    return nullptr;
  sendAtOnce(line->file);
  line->group = std::move(group);
  Notice join;
  join.from = rank;
  join.to = size;
  join.number = number;
  join.process = getpid();
  line->send(join, "", nullptr);
  std::thread([line] { line->read(); }).detach();
  std::thread([line] { line->write(); }).detach();
  return line;
}

Line::~Line() { ::close(file); }

void Line::close() {
  std::lock_guard lock(mutex);
  isClosed = true;
  shutdown(file, SHUT_RD); // messages in the outbox are still sent
  changed.notify_all();
}

void Line::send(Notice notice, const std::string &text, const char *data) {
  notice.textBytes = int32_t(text.size());
  std::lock_guard lock(mutex);
  outbox.push_back(
      {notice, text, std::vector<char>(data, data + notice.bytes)});
  changed.notify_all();
}

std::shared_ptr<Line::Reply> Line::offer(Notice notice, const std::string &text,
                                         const char *data) {
  auto reply = waiting[notice.key()] = std::make_shared<Reply>();
  send(notice, text, data);
  return reply;
}

// Sends the queued messages to the hub. It runs on a thread of its own, so that
// nothing is sent while the recorder's lock is held.
void Line::write() {
  while (true) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return isClosed || !outbox.empty(); });
    if (outbox.empty())
      return;
    Message message = std::move(outbox.front());
    outbox.pop_front();
    lock.unlock();
    if (!sendAll(file, &message.notice, sizeof(Notice)) ||
        !sendAll(file, message.text.data(), message.text.size()) ||
        !sendAll(file, message.data.data(), message.data.size()))
      return;
  }
}

// Receives messages from the hub, the server that matches the calls of members
// in several processes. If the process of the hub ends, this function reports
// no error and pending calls never finish, as with lost peers in NCCL.
void Line::read() {
  ::Message message;
  while (message.receive(file)) {
    Recorder &all = Recorder::get();
    auto lock = all.lock();
    const Notice &notice = message.notice;
    if (notice.kind == Notice::Joined) {
      isSpread = notice.process != 0;
      isJoined = true;
    } else if (notice.kind == Notice::Came) {
      group->came.insert({notice.from, notice.to});
    } else if (auto found = waiting.find(notice.key());
               found != waiting.end()) {
      found->second->error = message.text;
      found->second->result = std::move(message.data);
      found->second->isDone = true;
      waiting.erase(found);
      all.advance();
    }
    all.changed.notify_all();
  }
}

std::shared_ptr<Meeting>
recorder::meetElsewhere(const std::vector<Call> &calls,
                        const std::shared_ptr<const Who> &who) {
  auto all = std::make_shared<Elsewhere>();
  all->who = who;
  for (const Call &call : calls) {
    Communicator &mine = *call.communicator;
    Notice notice;
    notice.kind = Notice::Offer;
    notice.call = call.kind;
    notice.type = call.type;
    notice.op = call.op;
    notice.peer = call.peer;
    notice.count = call.count;
    notice.bytes = call.count * sizeOf(call.type);
    if (call.kind == Call::ReduceScatter)
      notice.bytes *= mine.group->size;
    if (call.kind == Call::Receive ||
        (call.kind == Call::Broadcast && call.peer != mine.rank))
      notice.bytes = 0;
    if (call.isMessage()) {
      bool sends = call.kind == Call::Send;
      notice.side = sends ? Notice::Sender : Notice::Receiver;
      notice.from = sends ? mine.rank : call.peer;
      notice.to = sends ? call.peer : mine.rank;
      notice.number = int64_t((sends ? mine.sent : mine.received)[call.peer]++);
    } else {
      notice.number = int64_t(mine.started++);
    }
    ++mine.pending;
    all->parts.push_back({call, notice, nullptr});
  }
  return all;
}
