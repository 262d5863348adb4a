// The poison mode: memory that must not be read is filled with NaNs, memory
// that must not be written is checked, and the highest used byte is measured.

#include "error.h"
#include "rank.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::program;

// Plans which bytes are poisoned after each command: those of the values that
// this command uses for the last time. Bytes that are also occupied by another
// live value are left out, because a result may reuse its operand's memory.
void Rank::planPoison(PreparedAction &prepared) const {
  const std::vector<Lifetime> &lives = prepared.action->lifetimes;
  prepared.dead.resize(prepared.commands.size());
  for (size_t a = 0; a < lives.size(); ++a) {
    const Lifetime &life = lives[a];
    if (static_cast<size_t>(life.last) >= prepared.commands.size())
      fail(CLEAVE_BAD_PROGRAM, "the lifetime of " + data.strings[life.name] +
                                   " in action \"" + prepared.action->name +
                                   "\" ends after its last command");
    int64_t shift = moved[life.arena];
    int64_t begin = life.offset, end = life.offset + life.size;
    if (__int128(begin) + shift < 0 ||
        __int128(end) + shift > arenas[life.arena]->size())
      fail(CLEAVE_BAD_PROGRAM, "the lifetime of " + data.strings[life.name] +
                                   " in action \"" + prepared.action->name +
                                   "\" leaves arena \"" +
                                   data.arenas[life.arena].name + "\"");
    std::vector<std::pair<int64_t, int64_t>> live;
    for (size_t b = 0; b < lives.size(); ++b) {
      const Lifetime &other = lives[b];
      int64_t otherEnd = other.offset + other.size;
      if (a == b || other.arena != life.arena || other.offset >= end ||
          otherEnd <= begin)
        continue;
      if (a < b && life.first < other.last && other.first < life.last)
        fail(CLEAVE_BAD_PROGRAM,
             "action \"" + prepared.action->name + "\": " +
                 data.strings[life.name] + " and " + data.strings[other.name] +
                 " are live at the same time and share bytes of arena \"" +
                 data.arenas[life.arena].name + "\"");
      if (other.first <= life.last && other.last > life.last)
        live.push_back({other.offset, otherEnd});
    }
    std::sort(live.begin(), live.end());
    auto &ranges = prepared.dead[life.last];
    for (auto [from, to] : live) {
      if (begin < from)
        ranges.push_back({life.arena, begin + shift, from + shift});
      begin = std::max(begin, to);
    }
    if (begin < end)
      ranges.push_back({life.arena, begin + shift, end + shift});
  }
}

// Finds the last byte of [begin, end) that differs from poison, and raises the
// arena's highest used byte to it. Bytes outside of this range are not
// inspected, because a collective may be writing them.
void Rank::noteTouched(size_t arena, int64_t begin, int64_t end) {
  int64_t &high = touchedHigh[arena];
  begin = std::max(begin, high);
  if (int64_t bytes = arenas[arena]->touched(begin, end - begin); bytes > 0)
    high = begin + bytes;
}

void Rank::beforeAction() {
  touchedHigh.assign(arenas.size(), 0);
  for (size_t i = 0; i < arenas.size(); ++i)
    if (data.arenas[i].lifespan != Lifespan::Persistent)
      arenas[i]->poison(0, arenas[i]->size());
}

// Called before and after a Call: poisons the arenas with the lifespan
// Transient. Arenas with the lifespan Slots keep their contents, because calls
// exchange values with each other and with their caller there.
void Rank::aroundCall() {
  for (size_t i = 0; i < arenas.size(); ++i)
    if (data.arenas[i].lifespan == Lifespan::Transient) {
      noteTouched(i, 0, arenas[i]->size());
      arenas[i]->poison(0, arenas[i]->size());
    }
}

void Rank::afterCommand(const PreparedAction &prepared, size_t command) {
  for (const PreparedAction::Range &range : prepared.dead[command]) {
    noteTouched(range.arena, range.begin, range.end);
    arenas[range.arena]->poison(range.begin, range.end - range.begin);
  }
}

void Rank::afterAction() {
  int64_t touched = 0;
  for (size_t i = 0; i < arenas.size(); ++i) {
    if (!arenas[i]->guardIntact())
      fail(CLEAVE_RANK_FAILED, "bytes after the end of arena \"" +
                                   data.arenas[i].name + "\" were written");
    if (data.arenas[i].lifespan != Lifespan::Persistent)
      noteTouched(i, 0, arenas[i]->size());
    else
      touchedHigh[i] = arenas[i]->size();
    touched += touchedHigh[i];
  }
  touchedBytes = std::max(touchedBytes, touched);
}
