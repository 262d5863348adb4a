// Counts, for each pair of a token and an expert that it chose, the earlier
// pairs with the same expert. Pairs are processed in the order of the tokens'
// positions.
#include "position_in_expert.h"

#include <algorithm>
#include <numeric>

using namespace cleave;
using program::PositionInExpert;

namespace {

/// Computes the number of token-expert pairs of each expert in all samples
/// before a given sample. It is called mostly for increasing samples. Then each
/// row of `loads` (the numbers of one sample) is read only once.
class LoadsBefore {
public:
  LoadsBefore(const PositionInExpert &x, const int64_t *loads, int64_t *sums)
      : x(x), loads(loads), sums(sums) {
    std::fill_n(sums, x.e, 0);
  }

  void moveTo(int64_t sample) {
    sample = std::clamp<int64_t>(sample, 0, x.rows);
    if (sample < next) {
      std::fill_n(sums, x.e, 0);
      next = 0;
    }
    for (; next < sample; ++next)
      for (int64_t expert = 0; expert < x.e; ++expert)
        sums[expert] += loads[next * x.e + expert];
  }

private:
  const PositionInExpert &x;
  const int64_t *loads;
  int64_t *sums, next = 0; // `sums` is over the rows before `next`
};

/// Writes the indices of `positions`, sorted by position, to `order`.
void sortPositions(const int64_t *positions, int64_t count, int64_t *order) {
  std::iota(order, order + count, int64_t(0));
  if (!std::is_sorted(positions, positions + count))
    std::sort(order, order + count, [&](int64_t a, int64_t b) {
      return positions[a] < positions[b];
    });
}

/// Counts the token-expert pairs of one sample. `taken` has the number of pairs
/// of each expert so far, and is increased by the pairs of this sample.
void countSlots(const PositionInExpert &x, const int64_t *ids,
                const int64_t *positions, const int64_t *order, int64_t *taken,
                int64_t *result) {
  auto chooses = [&](int64_t id) { return id >= 0 && id < x.e; };
  for (int64_t begin = 0, end; begin < x.s; begin = end) {
    end = begin + 1;
    while (end < x.s && positions[order[end]] == positions[order[begin]])
      ++end;
    // Tokens with the same position are not ordered, so their pairs with the
    // same index among the k choices of a token are not counted for one
    // another: all these counts are read before any of them is increased.
    for (int64_t slot = 0; slot < x.k; ++slot) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t at = order[i] * x.k + slot;
        result[at] = chooses(ids[at]) ? taken[ids[at]] : 0;
      }
      for (int64_t i = begin; i < end; ++i)
        if (int64_t id = ids[order[i] * x.k + slot]; chooses(id))
          ++taken[id];
    }
  }
}

} // namespace

void cleave::positionInExpert(const PositionInExpert &x,
                              const PositionInExpertBuffers &at) {
  int64_t *taken = at.scratch, *order = at.scratch + 2 * x.e;
  LoadsBefore before(x, at.loads, at.scratch + x.e);
  for (int64_t sample = 0; sample < x.b; ++sample) {
    const int64_t *positions = at.positions + (x.perSample ? sample * x.s : 0);
    if (sample == 0 || x.perSample)
      sortPositions(positions, x.s, order);
    if (at.loads)
      before.moveTo(at.samples[sample]);
    std::copy_n(at.scratch + x.e, x.e, taken);
    int64_t slots = sample * x.s * x.k;
    countSlots(x, at.ids + slots, positions, order, taken, at.result + slots);
  }
}
