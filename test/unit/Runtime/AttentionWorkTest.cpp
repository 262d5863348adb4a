// The work and memory of blockwise attention: it computes only the visible
// blocks, needs memory only for them, and gives the same bits on any number of
// threads.

#include "AttentionCase.h"

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
TEST(Attention, ThreadsDoNotChangeTheResult) {
  AttentionCase c{2, 100, 100, 3, 2, 16, 16, true};
  AttentionData<float> one(c), four(c);
  runOn(c, one, false, 1);
  runOn(c, four, false, 4);
  EXPECT_EQ(one.o, four.o);
  runOn(c, one, true, 1);
  runOn(c, four, true, 4);
  EXPECT_EQ(one.dq, four.dq);
  EXPECT_EQ(one.dk, four.dk);
  EXPECT_EQ(one.dV, four.dV);
}

TEST(Attention, WorkspaceGrowsLinearlyInTheSequence) {
  auto bytes = [](int64_t length, bool backward) {
    AttentionCase c{1, length, length, 2, 4, 16, 16, true};
    std::string error;
    return attentionWorkspace(describe(c, DType::F32, backward), 1, error);
  };
  // The workspace grows by only a few numbers for each block of 48 queries or
  // 96 keys.
  EXPECT_LE(bytes(4096, false) - bytes(256, false), 4096 * 2);
  EXPECT_LE(bytes(4096, true) - bytes(1024, true), 3072 * (2 * 4 * 4 + 2));
}

// Returns the operations of the forward pass, in units of blocks of 48 x 96
// scores.
double blocksComputed(const AttentionCase &c) {
  AttentionData<float> data(c);
  int64_t forward = runOn(c, data, false), backward = runOn(c, data, true);
  double perScore = 2.0 * (c.d + c.dv);
  EXPECT_EQ(backward * perScore, forward * (6.0 * c.d + 4.0 * c.dv));
  return forward / perScore / (48 * 96);
}

TEST(Attention, ComputesTheBlocksThatAreSeen) {
  int64_t length = 24 * 96; // 48 blocks of queries, 24 of keys
  AttentionCase c{1, length, length, 1, 1, 4, 4};
  EXPECT_EQ(blocksComputed(c), 48 * 24);
  // With a causal mask, each block of 48 queries visits half a block of keys
  // more than the block before.
  c.causal = true;
  EXPECT_EQ(blocksComputed(c), 0.5 * 48 * 49 / 2);
  // With a causal mask and a window of 97 keys, a query sees itself and the 96
  // keys before it. So for a block of 48 queries, no scores are computed with
  // keys that are more than 96 positions before its first query.
  c.window = 97;
  EXPECT_EQ(blocksComputed(c), 46 * 1.5 + 0.5 + 1);
  // Without the causal mask, the window also has up to 96 keys after the last
  // query.
  c.causal = false;
  EXPECT_EQ(blocksComputed(c), 44 * 2.5 + 2 * 1.5 + 2 * 2);
  // In zig-zag order, each rank of a ring has two pieces of the sequence, and
  // all ranks have the same work.
  c.window = 0;
  c.causal = true;
  c.positions = AttentionCase::ZigZag;
  double all = 0, low = 1e9, high = 0;
  for (c.queryPiece = 0; c.queryPiece < 4; ++c.queryPiece) {
    double sum = 0;
    for (c.keyPiece = 0; c.keyPiece < 4; ++c.keyPiece)
      sum += blocksComputed(c);
    low = std::min(low, sum);
    high = std::max(high, sum);
    all += sum;
  }
  EXPECT_LE(high / low, 1.02);
  // Together, the ranks compute half of all pairs of a query and a key, and the
  // blocks on the diagonal.
  EXPECT_NEAR(all / (16 * 48 * 24), 0.5, 0.01);
}

TEST(Attention, ComputesDocumentsAlone) {
  AttentionCase c{1, 4800, 4800, 1, 1, 4, 4};
  c.segments = true; // documents of 50 tokens
  // A query sees only keys of its own document. So for each block of keys, only
  // a few nearby blocks of queries are computed.
  EXPECT_LE(blocksComputed(c), 100 * 3);
  c.causal = true;
  EXPECT_LE(blocksComputed(c), 100 * 2);
}
} // namespace
