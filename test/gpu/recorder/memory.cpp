// The memory of the simulated devices, and which operations have accessed it.

#include "memory.h"

#include <cstring>
#include <new>
#include <sys/mman.h>

using namespace recorder;

namespace {
constexpr int64_t page = 4096;
constexpr unsigned char slackByte = 0xb5;
// Fresh memory has NaN in every float type and -1 in every integer type.
constexpr unsigned char freshByte = 0xff;
} // namespace

// Layout of the mapping: [page without access] [page of guard bytes] [data] [at
// least one page of guard bytes] [page without access]. The code calls the
// guard bytes slack.
Allocation::Allocation(int64_t bytes, int device, int number)
    : bytes(bytes), device(device), number(number) {
  int64_t rounded = (bytes + page - 1) / page * page;
  mappedBytes = rounded + 4 * page;
  void *got = mmap(nullptr, mappedBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED)
    throw std::bad_alloc();
  mapped = static_cast<char *>(got);
  data = mapped + 2 * page;
  slackEnd = rounded + page;
  std::memset(data, freshByte, bytes);
  repairSlack();
  mprotect(mapped, page, PROT_NONE);
  mprotect(data + slackEnd, page, PROT_NONE);
  Segment &whole = segments[0];
  whole.end = bytes;
}

Allocation::~Allocation() { munmap(mapped, mappedBytes); }

void Allocation::repairSlack() {
  std::memset(data - page, slackByte, page);
  std::memset(data + bytes, slackByte, slackEnd - bytes);
}

int64_t Allocation::findOverrun() const {
  // This check runs after every operation, so it compares whole pages at once.
  static const std::vector<char> intact(page, static_cast<char>(slackByte));
  auto check = [&](int64_t begin, int64_t end) -> int64_t {
    while (end - begin >= page &&
           std::memcmp(data + begin, intact.data(), page) == 0)
      begin += page;
    if (end - begin < page &&
        std::memcmp(data + begin, intact.data(), end - begin) == 0)
      return 0;
    for (int64_t i = begin; i < end; ++i)
      if (static_cast<unsigned char>(data[i]) != slackByte)
        return i;
    return 0;
  };
  if (int64_t at = check(bytes, slackEnd))
    return at;
  return check(-page, 0);
}

std::string Allocation::name() const {
  return "allocation " + std::to_string(number) + " (" + std::to_string(bytes) +
         " bytes " +
         (device < 0 ? std::string("of pinned host memory")
                     : "of device " + std::to_string(device)) +
         ")";
}

// Cuts a segment in two, so that a segment begins at `at`.
Allocation::Segments::iterator Allocation::cut(int64_t at) {
  auto it = segments.upper_bound(at);
  --it;
  if (it->first == at)
    return it;
  Segment rest = it->second;
  it->second.end = at;
  return segments.emplace_hint(std::next(it), at, std::move(rest));
}

const Epoch *Allocation::enter(int64_t begin, int64_t end, bool written,
                               const Epoch &mine, const Clock &clock) {
  static thread_local Epoch conflict;
  const Epoch *found = nullptr;
  auto check = [&](const Epoch &other) {
    if (found || other.isBefore(clock))
      return;
    conflict = other;
    found = &conflict;
  };
  auto first = cut(begin);
  auto last = end == bytes ? segments.end() : cut(end);
  for (auto it = first; it != last; ++it) {
    check(it->second.writer);
    if (written)
      for (const Epoch &reader : it->second.readers)
        check(reader);
  }
  if (written) {
    first->second.end = end;
    first->second.writer = mine;
    first->second.readers.clear();
    segments.erase(std::next(first), last);
    return found;
  }
  for (auto it = first; it != last; ++it) {
    bool known = false;
    for (Epoch &reader : it->second.readers)
      if (reader.lane == mine.lane) {
        reader = mine;
        known = true;
      }
    if (!known)
      it->second.readers.push_back(mine);
  }
  return found;
}

const Epoch *Allocation::findAfter(const Clock &clock) const {
  for (const auto &[begin, segment] : segments) {
    if (!segment.writer.isBefore(clock))
      return &segment.writer;
    for (const Epoch &reader : segment.readers)
      if (!reader.isBefore(clock))
        return &reader;
  }
  return nullptr;
}

Allocation *Memory::add(int64_t bytes, int device) {
  auto made = std::make_unique<Allocation>(bytes, device, ++this->made);
  Allocation *out = made.get();
  all.emplace(out->data, std::move(made));
  return out;
}

void Memory::remove(Allocation *allocation) { all.erase(allocation->data); }

Allocation *Memory::find(const void *at) const {
  auto *address = static_cast<const char *>(at);
  auto it = all.upper_bound(address);
  if (it == all.begin())
    return nullptr;
  Allocation *below = std::prev(it)->second.get();
  return address <= below->data + below->bytes ? below : nullptr;
}

int64_t Memory::used(int device) const {
  int64_t sum = 0;
  for (const auto &[at, allocation] : all)
    if (allocation->device == device)
      sum += (allocation->bytes + 255) / 256 * 256;
  return sum;
}

std::string Memory::place(const void *at) const {
  auto *address = static_cast<const char *>(at);
  if (Allocation *holder = find(at))
    return holder->name() + " + " + std::to_string(address - holder->data);
  auto it = all.upper_bound(address);
  if (it == all.begin())
    return "no live allocation";
  Allocation *below = std::prev(it)->second.get();
  return "no live allocation, " +
         std::to_string(address - below->data - below->bytes) +
         " bytes after " + below->name();
}
