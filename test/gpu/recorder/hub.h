// Simulates NCCL communicators whose members are in several processes. The
// process that made the unique id runs a server, the hub. Every member has a
// TCP connection to the hub, a line, on which it sends its operands to the hub
// and receives its results.
#ifndef CLEAVE_TEST_GPU_RECORDER_HUB_H
#define CLEAVE_TEST_GPU_RECORDER_HUB_H

#include "collective.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace recorder {

// The header of a message between a member of a communicator and the hub. It is
// followed by `textBytes` bytes of text and `bytes` bytes of data.
struct Notice {
  enum Kind : int32_t { Join, Joined, Came, Offer, Done };
  Kind kind = Join;
  // The call is a collective, or one side of a message.
  enum Side : int32_t { All, Sender, Receiver };
  Side side = All;
  int32_t from = 0, to = 0; // members; Join: own rank, size of the group
  int64_t number = 0;       // of the call; Join: of the unique id
  int64_t process = 0;      // Joined: 0 if all members are in one process
  Call::Kind call = Call::AllReduce;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int32_t peer = 0;
  int64_t count = 0, bytes = 0;
  int32_t textBytes = 0;

  using Key = std::tuple<int32_t, int32_t, int32_t, int64_t>;
  Key key() const { return {side, from, to, number}; }
};

// The TCP connection from a member of a communicator to the hub, the server
// that computes the calls of members in several processes. All functions except
// the constructor are called with the recorder's lock held.
class Line : public std::enable_shared_from_this<Line> {
public:
  struct Reply {
    bool isDone = false;
    std::string error; // if the members' calls differ
    std::vector<char> result;
  };

  explicit Line(int file) : file(file) {}
  ~Line();
  // Connects member `rank` of a communicator to the hub of the process that
  // made `id`. Returns NULL if that process no longer exists.
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

// Makes a unique id, with which members of a communicator find each other.
// Starts the hub of this process (the server for members in several processes)
// if it does not run yet, and stores its port in the id.
void nameId(ncclUniqueId &out);

// Numbers NCCL calls of communicators whose members are in several processes.
// Returns the meeting in which all members execute these calls; the meeting
// sends this member's operands to the hub and receives its results.
std::shared_ptr<Meeting> meetElsewhere(const std::vector<Call> &calls,
                                       const std::shared_ptr<const Who> &who);

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_HUB_H
