// Serializes messages between processes. All processes are of the same build,
// so there is no version.
#ifndef CLEAVE_RUNTIME_PACKET_H
#define CLEAVE_RUNTIME_PACKET_H

#include "error.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace cleave {

class Packet {
public:
  std::vector<char> bytes;

  template <class T> Packet &add(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return append(&value, sizeof(T));
  }
  Packet &add(const std::string &text) {
    add(static_cast<int64_t>(text.size()));
    return append(text.data(), text.size());
  }
  Packet &append(const void *data, size_t size) {
    auto *at = static_cast<const char *>(data);
    bytes.insert(bytes.end(), at, at + size);
    return *this;
  }

  template <class T> T take() {
    T value;
    std::memcpy(&value, next(sizeof(T)), sizeof(T));
    return value;
  }
  std::string takeText() {
    auto size = take<int64_t>();
    return std::string(next(size), size);
  }
  const char *next(int64_t size) {
    if (size < 0 || size > static_cast<int64_t>(bytes.size()) - at)
      fail(CLEAVE_INTERNAL, "a message between processes is too short");
    at += size;
    return bytes.data() + at - size;
  }

private:
  int64_t at = 0;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_PACKET_H
