// Tests positionInExpert(). A slot is a token-expert pair: one of the k experts
// that a token has chosen. The position of a slot in its expert is the number
// of slots of the same sample that chose the same expert and come before it, in
// the order of the token's position and then of the index in k; loads of
// earlier data may be added. The test counts these slots with a simple loop
// over all pairs of slots.

#include "Helpers.h"

#include "cpu/position_in_expert.h"

#include <algorithm>
#include <numeric>

using namespace cleave;
using namespace cleave::program;

namespace {
struct Data {
  PositionInExpert x;
  std::vector<int64_t> ids, positions, loads, samples;

  // Positions are shuffled unless `inOrder` is true. Each position occurs
  // `equal` times.
  Data(int64_t b, int64_t s, int64_t k, int64_t e, int64_t rows, bool perSample,
       bool inOrder, int64_t equal) {
    x.b = b, x.s = s, x.k = k, x.e = e, x.rows = rows;
    x.perSample = perSample;
    std::mt19937 engine(5);
    for (int64_t i = 0; i < b * s * k; ++i)
      ids.push_back(int64_t(engine() % (e + 2)) - 1);
    for (int64_t row = 0; row < (perSample ? b : 1); ++row) {
      std::vector<int64_t> order(s);
      std::iota(order.begin(), order.end(), 0);
      if (!inOrder)
        std::shuffle(order.begin(), order.end(), engine);
      for (int64_t at : order)
        positions.push_back(at / equal - 2);
    }
    for (int64_t i = 0; i < rows * e; ++i)
      loads.push_back(engine() % 7);
    for (int64_t i = 0; rows && i < b; ++i)
      samples.push_back(int64_t(engine() % (rows + 3)) - 1);
  }

  std::vector<int64_t> run() {
    std::vector<int64_t> result(ids.size(), -7), scratch(2 * x.e + x.s, -7);
    positionInExpert(
        x, {ids.data(), positions.data(), x.rows ? loads.data() : nullptr,
            x.rows ? samples.data() : nullptr, result.data(), scratch.data()});
    return result;
  }

  int64_t placeOf(int64_t sample, int64_t slot) const {
    auto key = [&](int64_t other) {
      return std::pair(
          positions[(x.perSample ? sample * x.s : 0) + other / x.k],
          other % x.k);
    };
    const int64_t *own = ids.data() + sample * x.s * x.k;
    if (own[slot] < 0 || own[slot] >= x.e)
      return 0;
    int64_t place = 0;
    for (int64_t other = 0; other < x.s * x.k; ++other)
      place += own[other] == own[slot] && key(other) < key(slot);
    for (int64_t row = 0; x.rows && row < x.rows; ++row)
      if (row < samples[sample])
        place += loads[row * x.e + own[slot]];
    return place;
  }
};

TEST(PositionInExpert, FollowsItsDefinition) {
  for (auto [b, s, k] : {std::array<int64_t, 3>{3, 17, 2},
                         {2, 1, 3},
                         {1, 40, 1},
                         {4, 9, 5},
                         {0, 3, 2},
                         {2, 0, 2}})
    for (int64_t rows : {0, 4})
      for (bool perSample : {false, true})
        for (bool inOrder : {false, true})
          for (int64_t equal : {1, 3}) {
            Data data(b, s, k, 4, rows, perSample, inOrder, equal);
            std::vector<int64_t> result = data.run();
            for (int64_t sample = 0; sample < b; ++sample)
              for (int64_t slot = 0; slot < s * k; ++slot)
                ASSERT_EQ(result[sample * s * k + slot],
                          data.placeOf(sample, slot))
                    << s << " positions, " << k << " slots, sample " << sample
                    << ", slot " << slot << ", " << rows << " rows";
          }
}
} // namespace
