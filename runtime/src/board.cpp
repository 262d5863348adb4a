// A key-value store that the processes of a job share. Every process sends each
// of its entries ("notes") to all other processes.

#include "board.h"

#include <algorithm>

using namespace cleave;

Board::Board(Wire &wire, int channel, int tag)
    : wire(wire), channel(channel), tag(tag), buffer(longestNote) {
  wire.receive(arrival, channel, Wire::anyone, tag, buffer.data(), longestNote);
}

void Board::post(const std::string &key, const std::string &value) {
  std::lock_guard lock(mutex);
  notes[key] = value;
  Sending &sending = sendings.emplace_back();
  sending.packet.add(key).add(value);
  auto bytes = static_cast<int64_t>(sending.packet.bytes.size());
  if (bytes > longestNote)
    fail(CLEAVE_INTERNAL, "note \"" + key + "\" is too long");
  sending.requests.resize(wire.size());
  for (int peer = 0; peer < wire.size(); ++peer)
    if (peer != wire.rank())
      wire.send(sending.requests[peer], channel, peer, tag,
                sending.packet.bytes.data(), bytes);
}

std::optional<std::string> Board::find(const std::string &key) {
  std::lock_guard lock(mutex);
  look();
  auto found = notes.find(key);
  if (found == notes.end())
    return std::nullopt;
  return found->second;
}

void Board::look() {
  int64_t bytes = 0;
  while (wire.test(arrival, &bytes)) {
    Packet packet;
    packet.append(buffer.data(), bytes);
    std::string key = packet.takeText();
    notes[key] = packet.takeText();
    wire.receive(arrival, channel, Wire::anyone, tag, buffer.data(),
                 longestNote);
  }
  std::erase_if(sendings, [&](Sending &sending) {
    return std::all_of(sending.requests.begin(), sending.requests.end(),
                       [&](Wire::Request &request) {
                         return !request.active || wire.test(request, nullptr);
                       });
  });
}

void Board::forget(const std::string &prefix) {
  std::lock_guard lock(mutex);
  std::erase_if(
      notes, [&](const auto &note) { return note.first.starts_with(prefix); });
}

void Board::close() {
  std::lock_guard lock(mutex);
  look();
  wire.drop(arrival, true);
}
