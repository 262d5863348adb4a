// Moves compute into the waits for collectives; see FillWaits.h.

#include "FillWaits.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

using namespace cleave::schedule;

namespace {

/// The number of commands before the reader of a collective's result, and the
/// number after it, that are considered for a move.
constexpr size_t kWindow = 256;

class Filler {
public:
  explicit Filler(std::vector<Placed> given)
      : list(std::move(given)), order(list.size()), position(list.size()),
        chosen(list.size()) {
    std::iota(order.begin(), order.end(), 0);
    std::iota(position.begin(), position.end(), 0);
  }

  void fill(const Wait &wait) {
    double missing = wait.seconds;
    missing -= takeEarlier(wait, missing);
    if (missing > 0)
      takeLater(wait, missing);
  }

  std::vector<size_t> take() { return std::move(order); }

private:
  bool mayMove(size_t command) const {
    return list[command].moves && !list[command].fills;
  }

  /// A collective can start as soon as its operands are available.
  size_t startOf(size_t collective) const {
    size_t start = 0;
    for (size_t command : list[collective].after)
      start = std::max(start, position[command] + 1);
    return start;
  }

  /// Moves commands from before the collective's start to after it. Returns the
  /// seconds of the wait that these commands fill.
  double takeEarlier(const Wait &wait, double missing) {
    const size_t end = position[wait.reader], start = startOf(wait.collective);
    const size_t first = end > kWindow ? end - kWindow : 0;
    double filled = 0;
    size_t begin = end;
    for (size_t at = end; at-- > first && filled < missing;) {
      size_t command = order[at];
      // A command can only move to `end` if all its readers before `end` also
      // move there.
      bool stays = llvm::any_of(list[command].before, [&](size_t reader) {
        return position[reader] < end && !chosen[reader];
      });
      if (stays || command == wait.collective || !mayMove(command))
        continue;
      chosen[command] = true;
      begin = at;
      if (at < start)
        filled += list[command].seconds;
    }
    // A command without compute moves only if it depends on a moved command.
    for (size_t at = begin; at < end; ++at) {
      size_t command = order[at];
      if (chosen[command] && list[command].seconds == 0 &&
          llvm::none_of(list[command].after,
                        [&](size_t other) { return chosen[other]; }))
        chosen[command] = false;
    }
    if (filled > 0)
      gather(begin, end, /*toEnd=*/true);
    for (size_t at = begin; at < end; ++at)
      chosen[order[at]] = false;
    return filled;
  }

  /// Moves commands from after the reader to before it.
  void takeLater(const Wait &wait, double missing) {
    const size_t reader = position[wait.reader];
    const size_t last = std::min(order.size(), reader + kWindow);
    double filled = 0;
    size_t end = reader;
    for (size_t at = reader + 1; at < last && filled < missing; ++at) {
      size_t command = order[at];
      bool stays = llvm::any_of(list[command].after, [&](size_t other) {
        return other == wait.collective ||
               (position[other] >= reader && !chosen[other]);
      });
      if (stays || !mayMove(command))
        continue;
      chosen[command] = true;
      filled += list[command].seconds;
      end = at + 1;
    }
    // A command without compute moves only if a moved command depends on it.
    for (size_t at = end; at-- > reader;) {
      size_t command = order[at];
      if (chosen[command] && list[command].seconds == 0 &&
          llvm::none_of(list[command].before,
                        [&](size_t other) { return chosen[other]; }))
        chosen[command] = false;
    }
    if (filled > 0)
      gather(reader, end, /*toEnd=*/false);
    for (size_t at = reader; at < end; ++at)
      chosen[order[at]] = false;
  }

  /// Moves the chosen commands of the range [begin, end) of positions to the
  /// end of the range if `toEnd` is true, and otherwise to its beginning.
  void gather(size_t begin, size_t end, bool toEnd) {
    for (size_t at = begin; at < end; ++at)
      if (chosen[order[at]])
        list[order[at]].fills |= list[order[at]].seconds > 0;
    std::vector<size_t> first, second;
    for (size_t at = begin; at < end; ++at)
      (chosen[order[at]] == toEnd ? second : first).push_back(order[at]);
    llvm::copy(second, llvm::copy(first, order.begin() + begin));
    for (size_t at = begin; at < end; ++at)
      position[order[at]] = at;
  }

  std::vector<Placed> list;
  std::vector<size_t> order, position;
  std::vector<bool> chosen;
};

} // namespace

std::vector<size_t> cleave::schedule::fillWaits(std::vector<Placed> list,
                                                llvm::ArrayRef<Wait> waits) {
  Filler filler(std::move(list));
  for (const Wait &wait : waits)
    filler.fill(wait);
  return filler.take();
}
