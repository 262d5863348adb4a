// Schedules with two stages per rank in V placement: rank r holds stages r and
// 2p - 1 - r, so that the first stage and the loss are on the same rank.

#include "Generators.h"

#include <algorithm>
#include <array>
#include <deque>

namespace cleave::pipeline {

namespace {

// Writes the list of actions of one rank. A chunk is one of the rank's two
// stages. The passes of one kind and chunk are in the order of their
// microbatches.
class RankList {
public:
  RankList(Table &table, int rank)
      : list(table.actions[rank]), stages(table.stagesOfRank[rank]) {}

  void forward(int chunk) { emit(chunk, ActionKind::F, 0); }
  void backward(int chunk) { emit(chunk, ActionKind::B, 1); }
  void input(int chunk) {
    weights.push_back({stages[chunk], ActionKind::W, count[chunk][1]});
    emit(chunk, ActionKind::I, 1);
  }
  // Adds the oldest weight gradient (W) of either chunk that is not yet in the
  // list.
  void weight() {
    if (weights.empty())
      return;
    list.push_back(weights.front());
    weights.pop_front();
  }
  void inputAndWeight(int chunk) {
    input(chunk);
    list.push_back(weights.back());
    weights.pop_back();
  }
  bool weightsLeft() const { return !weights.empty(); }
  int forwards(int chunk) const { return count[chunk][0]; }

private:
  void emit(int chunk, ActionKind kind, int pass) {
    list.push_back({stages[chunk], kind, count[chunk][pass]++});
  }

  std::vector<Action> &list;
  const std::vector<int> &stages;
  // For each chunk, the numbers of forward passes (F) and of backward passes (I
  // or B) in the list so far.
  std::array<std::array<int, 2>, 2> count = {};
  std::deque<Action> weights;
};

} // namespace

// ZB-V (Qi et al.): has the memory of 1F1B; if all passes take equally long, no
// rank waits between its first and its last action.
void fillZeroBubbleV(Table &table) {
  const int p = table.ranks, m = std::max(table.microbatches, 2 * p - 1);
  for (int rank = 0; rank < p; ++rank) {
    RankList list(table, rank);
    for (int k = 0; k < 2 * (p - rank) - 1; ++k)
      list.forward(0);
    for (int k = 0; k < rank; ++k) {
      list.forward(1);
      list.forward(0);
    }
    for (int k = 0; k < p - rank; ++k) {
      list.forward(1);
      list.inputAndWeight(1);
    }
    while (list.forwards(1) < m) {
      if (list.forwards(0) < m)
        list.forward(0);
      list.inputAndWeight(0);
      list.forward(1);
      list.inputAndWeight(1);
    }
    // Input gradients precede weight gradients, because other ranks wait for
    // input gradients.
    for (int k = 0; k < rank; ++k) {
      list.input(0);
      list.input(1);
    }
    for (int k = 0; k < p - rank; ++k)
      list.inputAndWeight(0);
    while (list.weightsLeft())
      list.weight();
  }
  dropMicrobatches(table);
}

// DualPipe-V (DeepSeek): in the steady state, a forward pass of one chunk is
// next to a backward pass of the other chunk.
void fillDualPipeV(Table &table) {
  const int p = table.ranks, m = table.microbatches;
  for (int rank = 0; rank < p; ++rank) {
    RankList list(table, rank);
    const int below = p - rank - 1;
    for (int k = 0; k < 2 * below; ++k)
      list.forward(0);
    for (int k = 0; k < rank + 1; ++k) {
      list.forward(0);
      list.forward(1);
    }
    for (int k = 0; k < below; ++k) {
      list.inputAndWeight(1);
      list.forward(1);
    }
    for (int k = 0; k < m - 2 * p + rank + 1; ++k) {
      list.forward(0);
      list.backward(1);
      list.forward(1);
      list.backward(0);
    }
    for (int k = 0; k < below; ++k) {
      list.backward(1);
      list.forward(1);
      list.backward(0);
    }
    // In the first half of the following backward passes, both gradients are
    // computed. In the second half, only input gradients are computed; the
    // weight gradients follow later.
    for (int k = 0; k < 2 * (rank + 1); ++k)
      k <= rank ? list.backward((k + 1) % 2) : list.input((k + 1) % 2);
    for (int k = 0; k < below; ++k) {
      list.weight();
      list.input(0);
    }
    while (list.weightsLeft())
      list.weight();
  }
}

// V-Half (Qi et al., Pipeline Parallelism with Controllable Memory): the six
// actions of a microbatch on a rank repeat every six units of time. The four
// passes advance by one rank every 2, 1, 2 and 1 units, so that the activations
// of a microbatch are live for 6p units, and a rank holds those of about p
// chunks, compared with 2p in 1F1B. The schedule only has the order of actions;
// ranks do not wait for these times.
void fillVHalf(Table &table) {
  const int p = table.ranks, period = 6;
  // The delays, in units of time, at the three turns in the path of a
  // microbatch: from the forward pass of chunk 0 to that of chunk 1 on the last
  // rank, from the forward to the backward pass of chunk 1 on rank 0, and from
  // the backward pass of chunk 1 to that of chunk 0 on the last rank. With
  // these delays, no two actions of a rank coincide, and memory and bubble are
  // minimal.
  const std::array<int, 3> turn =
      p % 2 ? std::array<int, 3>{2, 1, 1} : std::array<int, 3>{4, 1, 5};
  struct Timed {
    int time;
    Action action;
  };
  for (int rank = 0; rank < p; ++rank) {
    const int up = p - 1 - rank;
    int time = 2 * (p - 1) + turn[0];
    std::array<int, 6> at; // F of chunk 0 and 1, I of 1 and 0, W of 1 and 0
    at[0] = 2 * rank;
    at[1] = time + up;
    time += p - 1 + turn[1];
    at[2] = time + 2 * rank;
    time += 2 * (p - 1) + turn[2];
    at[3] = time + up;
    for (int k : {4, 5})
      for (at[k] = at[k - 2] + 1;
           std::any_of(at.begin(), at.begin() + k, [&](int other) {
             return (at[k] - other) % period == 0;
           });)
        ++at[k];
    const std::vector<int> &stages = table.stagesOfRank[rank];
    std::vector<Timed> list;
    for (int m = 0; m < table.microbatches; ++m)
      for (auto [k, chunk, kind] : {std::tuple(0, 0, ActionKind::F),
                                    {1, 1, ActionKind::F},
                                    {2, 1, ActionKind::I},
                                    {3, 0, ActionKind::I},
                                    {4, 1, ActionKind::W},
                                    {5, 0, ActionKind::W}})
        list.push_back({at[k] + period * m, {stages[chunk], kind, m}});
    std::sort(list.begin(), list.end(),
              [](const Timed &a, const Timed &b) { return a.time < b.time; });
    for (const Timed &timed : list)
      table.actions[rank].push_back(timed.action);
  }
}

} // namespace cleave::pipeline
