// Communicators whose members are in several processes. The process that made
// the id has a hub; every member has a line to it, over which its operands go
// and its results come back.
#ifndef CLEAVE_TEST_GPU_RECORDER_HUB_H
#define CLEAVE_TEST_GPU_RECORDER_HUB_H

#include "collective.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace recorder {

// What goes over a line: this, then `textBytes` and `bytes`.
struct Notice {
  enum Kind : int32_t { Join, Joined, Came, Offer, Done };
  Kind kind = Join;
  // A collective, or one side of a message.
  enum Side : int32_t { All, Sender, Receiver };
  Side side = All;
  int32_t from = 0, to = 0; // members; of Join the rank and the size
  int64_t number = 0;       // of Join that of the id
  int64_t process = 0;      // Joined: 0 where all are of one process
  Call::Kind call = Call::AllReduce;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int32_t peer = 0;
  int64_t count = 0, bytes = 0;
  int32_t textBytes = 0;

  using Key = std::tuple<int32_t, int32_t, int32_t, int64_t>;
  Key key() const { return {side, from, to, number}; }
};

// A line of a member. All but the constructor is called with the recorder's
// lock held.
class Line : public std::enable_shared_from_this<Line> {
public:
  struct Reply {
    bool isDone = false;
    std::string error; // members differ
    std::vector<char> result;
  };

  explicit Line(int file) : file(file) {}
  ~Line();
  // NULL where the hub is gone.
  static std::shared_ptr<Line> reach(const ncclUniqueId &id, int rank, int size,
                                     std::shared_ptr<Group> group);

  void send(Notice notice, const std::string &text, const char *data);
  std::shared_ptr<Reply> offer(Notice notice, const std::string &text,
                               const char *data);
  void close();

  bool isJoined = false, isSpread = false;

private:
  struct Message {
    Notice notice;
    std::string text;
    std::vector<char> data;
  };
  void read();
  void write();

  const int file;
  std::shared_ptr<Group> group;
  std::map<Notice::Key, std::shared_ptr<Reply>> waiting;
  std::mutex mutex; // of what follows
  std::condition_variable changed;
  std::deque<Message> outbox;
  bool isClosed = false;
};

// Starts this process's hub; an id names its port.
void nameId(ncclUniqueId &out);

// Calls of a communicator that has a line.
std::shared_ptr<Meeting> meetElsewhere(const std::vector<Call> &calls,
                                       const std::shared_ptr<const Who> &who);

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_HUB_H
