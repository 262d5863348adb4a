// Which samples are held out for validation.

#ifndef CLEAVE_TRAINER_SPLITROWS_H
#define CLEAVE_TRAINER_SPLITROWS_H

#include "cleave/trainer/Data.h"

#include <optional>

namespace cleave {

/// Divides rows 0 to `rows` - 1 of the data into training and validation. The
/// last `heldOut` rows are held out or, if shuffled, as many rows drawn by
/// `seed`.
class SplitRows {
public:
  SplitRows() = default;
  SplitRows(int64_t rows, int64_t heldOut, bool shuffled, uint64_t seed)
      : rows(rows), heldOut(heldOut) {
    // The rows are shuffled like the samples of an epoch, but with an epoch
    // number that training never reaches, so that the order differs from those
    // in training. The first `heldOut` rows in this order are held out.
    if (shuffled && heldOut > 0)
      order.emplace(rows, seed, ~uint64_t(0));
  }

  int64_t samples(Split split) const {
    return split == Split::training ? rows - heldOut : heldOut;
  }
  bool isShuffled() const { return order.has_value(); }

  /// Returns the row of the data that holds a sample.
  int64_t row(Split split, int64_t sample) const {
    bool isTraining = split == Split::training;
    if (!order)
      return isTraining ? sample : rows - heldOut + sample;
    return static_cast<int64_t>(
        order->at(isTraining ? heldOut + sample : sample));
  }

  /// JSON, for state.json.
  std::string describe() const {
    return R"({"samples": )" + std::to_string(rows) + R"(, "held_out": )" +
           std::to_string(heldOut) + R"(, "shuffled": )" +
           (order ? "true" : "false") + "}";
  }

private:
  int64_t rows = 0, heldOut = 0;
  std::optional<Permutation> order;
};

/// Returns ", 3 held out (by data.seed)" for a message, or "" if no rows are
/// held out.
inline std::string heldOutText(const SplitRows &rows) {
  int64_t count = rows.samples(Split::validation);
  return count == 0 ? ""
                    : ", " + std::to_string(count) + " held out" +
                          (rows.isShuffled() ? " (by data.seed)" : "");
}

} // namespace cleave

#endif // CLEAVE_TRAINER_SPLITROWS_H
