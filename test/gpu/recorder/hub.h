// Communicators whose members are in several processes. The process that made
// the unique id runs a hub. Every member has a connection to the hub, a line,
// which carries its operands to the hub and its results back.
#ifndef CLEAVE_TEST_GPU_RECORDER_HUB_H
#define CLEAVE_TEST_GPU_RECORDER_HUB_H

#include "collective.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace recorder {

// The header of a message on a line. `textBytes` bytes of text and `bytes`
// bytes of data follow it.
struct Notice {
  enum Kind : int32_t { Join, Joined, Came, Offer, Done };
  Kind kind = Join;
  // The call is a collective, or one side of a message.
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

// A member's connection to the hub. All functions except the constructor are
// called with the recorder's lock held.
class Line : public std::enable_shared_from_this<Line> {
public:
  struct Reply {
    bool isDone = false;
    std::string error; // members differ
    std::vector<char> result;
  };

  explicit Line(int file) : file(file) {}
  ~Line();
  // Connects a member to the hub. Returns NULL if the hub no longer exists.
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

// Starts the hub of this process and stores the hub's port in the unique id.
void nameId(ncclUniqueId &out);

// Starts calls of a communicator that has a line to a hub.
std::shared_ptr<Meeting> meetElsewhere(const std::vector<Call> &calls,
                                       const std::shared_ptr<const Who> &who);

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_HUB_H
