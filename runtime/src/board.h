// What processes pin up for each other: few bytes under a key, which all others
// can read once they have arrived. Nobody is waited for.
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

  // Notes travel over the channel, under the tag.
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
