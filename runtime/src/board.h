// A small key-value store that processes share. A process puts a note (a few
// bytes under a key), which is sent to all other processes. They can read it
// once it has arrived; the sender does not wait for that.
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
  // Key and value together, in bytes.
  static constexpr int64_t longestNote = 4096;

  // Creates a board whose notes are sent over the channel with the tag.
  Board(Wire &wire, int channel, int tag);

  // From any thread.
  void post(const std::string &key, const std::string &value);
  std::optional<std::string> find(const std::string &key);
  // Takes down what begins so, here.
  void forget(const std::string &prefix);

  // Nothing may be called afterwards.
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
