// A board: a small key-value store that the processes of a job share. A process
// posts a note (a few bytes under a key), which is sent to all other processes.
// They can read it once it has arrived; the sender does not wait for that.
#ifndef CLEAVE_RUNTIME_BOARD_H
#define CLEAVE_RUNTIME_BOARD_H

#include "packet.h"
#include "wire.h"

#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

class Board {
public:
  // The largest size of a note: key and value together, in bytes.
  static constexpr int64_t longestNote = 4096;

  // Creates this process's copy of the board. Notes are sent between processes
  // as messages with tag `tag` on channel `channel` of the wire.
  Board(Wire &wire, int channel, int tag);

  // The following functions may be called from any thread.
  void post(const std::string &key, const std::string &value);
  std::optional<std::string> find(const std::string &key);
  // Removes the notes whose key begins with `prefix` from this process's copy.
  void forget(const std::string &prefix);

  // Stops receiving notes from other processes. The board must not be used
  // afterwards.
  void close();

private:
  struct Sending {
    Packet packet;
    std::vector<Wire::Request> requests;
  };
  void look();

  Wire &wire;
  const int channel, tag;
  std::mutex mutex;
  std::map<std::string, std::string> notes;
  std::list<Sending> sendings;
  std::vector<char> buffer;
  Wire::Request arrival;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_BOARD_H
