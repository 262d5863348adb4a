// Scattering and gathering named buffers: views, padding, replicas, and partial
// values.

#include "Helpers.h"

#include <numeric>

using namespace cleave::program;
using namespace cleave::test;

namespace {
std::vector<float> iota(int64_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

std::vector<float> tileOf(cleave_session *session, int rank, const char *name,
                          int64_t count) {
  void *data = nullptr;
  EXPECT_EQ(cleave_session_buffer(session, rank, name, &data), CLEAVE_OK);
  const float *values = static_cast<float *>(data);
  return {values, values + count};
}

TEST(Tiles, UnevenRowsArePadded) {
  Program p;
  p.mesh = {{"data", 2, ""}};
  addBuffer(p, "x", {3, 2}, {{{0, 1, 2}}, {}});
  ProgramHandle program(p);
  SessionHandle session(program.get);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  auto whole = iota(6);
  ASSERT_EQ(
      cleave_session_scatter(session.get, "x", CLEAVE_F32, whole.data(), 6),
      CLEAVE_OK);
  EXPECT_EQ(tileOf(session.get, 0, "x", 4), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(tileOf(session.get, 1, "x", 4), (std::vector<float>{5, 6, 0, 0}));
  std::vector<double> back(6);
  cleave_gather_report report;
  ASSERT_EQ(cleave_session_gather(session.get, "x", CLEAVE_F64, back.data(), 6,
                                  &report),
            CLEAVE_OK);
  EXPECT_EQ(back, std::vector<double>(whole.begin(), whole.end()));
  EXPECT_EQ(report.replicas, 1);
  EXPECT_EQ(report.nonzero_padding, 0);
  static_cast<float *>([&] {
    void *tile = nullptr;
    cleave_session_buffer(session.get, 1, "x", &tile);
    return tile;
  }())[3] = 9;
  cleave_session_gather(session.get, "x", CLEAVE_F64, back.data(), 6, &report);
  EXPECT_EQ(report.nonzero_padding, 1);
}

// Replicas are compared without their padding, because kernels may leave any
// values past the end of an array.
TEST(Tiles, CopiesMayDifferInPadding) {
  Program p;
  p.mesh = {{"data", 2, ""}, {"tensor", 2, ""}};
  addBuffer(p, "x", {3, 2}, {{{0, 1, 2}}, {}});
  ProgramHandle program(p);
  SessionHandle session(program.get);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  auto whole = iota(6);
  ASSERT_EQ(
      cleave_session_scatter(session.get, "x", CLEAVE_F32, whole.data(), 6),
      CLEAVE_OK);
  void *data = nullptr;
  ASSERT_EQ(cleave_session_buffer(session.get, 3, "x", &data), CLEAVE_OK);
  auto *tile = static_cast<float *>(data);
  cleave_gather_report report;
  auto gather = [&] {
    std::vector<double> back(6);
    EXPECT_EQ(cleave_session_gather(session.get, "x", CLEAVE_F64, back.data(),
                                    6, &report),
              CLEAVE_OK);
  };
  tile[3] = 9; // of [5, 6, padding, padding]
  gather();
  EXPECT_TRUE(report.identical);
  EXPECT_EQ(report.max_difference, 0);
  tile[1] = 8;
  gather();
  EXPECT_FALSE(report.identical);
  EXPECT_EQ(report.max_difference, 2);
  EXPECT_EQ(report.rank_a, 2);
  EXPECT_EQ(report.rank_b, 3);
  EXPECT_EQ(report.element, 1);
}

// A fused weight of shape [h, 3h], viewed as [h, 3, heads, d] with the heads
// sharded; and the same weight with a transposed view.
TEST(Tiles, Views) {
  for (bool transposed : {false, true}) {
    Program p;
    p.mesh = {{"data", 2, ""}, {"tensor", 2, ""}};
    BufferRef buffer = addBuffer(p, "w", {4, 12});
    Boundary &w = p.boundary[0];
    w.viewShape = {4, 3, 2, 2};
    w.sharding = {{}, {}, {{1, 1, 2}}, {}};
    w.localShape = {4, 3, 1, 2};
    if (transposed) {
      w.viewPerm = {2, 0, 3, 1};
      w.sharding = {{{1, 1, 2}}, {}, {}, {}};
      w.localShape = {1, 4, 2, 3};
    }
    (void)buffer;
    ProgramHandle program(p);
    ASSERT_EQ(program.status, CLEAVE_OK) << program.error;
    SessionHandle session(program.get);
    ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
    auto whole = iota(48);
    ASSERT_EQ(
        cleave_session_scatter(session.get, "w", CLEAVE_F32, whole.data(), 48),
        CLEAVE_OK);
    for (int rank = 0; rank < 4; ++rank) {
      auto tile = tileOf(session.get, rank, "w", 24);
      for (int64_t row = 0; row < 4; ++row)
        for (int64_t part = 0; part < 3; ++part)
          for (int64_t d = 0; d < 2; ++d) {
            int64_t head = rank % 2;
            float expected = whole[row * 12 + part * 4 + head * 2 + d];
            EXPECT_EQ(tile[transposed ? row * 6 + d * 3 + part
                                      : row * 6 + part * 2 + d],
                      expected);
          }
    }
    std::vector<float> back(48);
    cleave_gather_report report;
    ASSERT_EQ(cleave_session_gather(session.get, "w", CLEAVE_F32, back.data(),
                                    48, &report),
              CLEAVE_OK);
    EXPECT_EQ(back, whole);
    EXPECT_EQ(report.replicas, 2);
    EXPECT_EQ(report.identical, 1);
  }
}

TEST(Tiles, SubAxesAndReplicas) {
  Program p;
  p.mesh = {{"x", 4, ""}};
  // The major sub-axis of x shards the rows, the minor sub-axis the columns.
  addBuffer(p, "w", {2, 2}, {{{0, 1, 2}}, {{0, 2, 2}}});
  addBuffer(p, "r", {3});
  ProgramHandle program(p);
  SessionHandle session(program.get);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  auto whole = iota(4);
  cleave_session_scatter(session.get, "w", CLEAVE_F32, whole.data(), 4);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(tileOf(session.get, rank, "w", 1)[0], whole[rank]);
  auto three = iota(3);
  cleave_session_scatter(session.get, "r", CLEAVE_F32, three.data(), 3);
  void *tile = nullptr;
  cleave_session_buffer(session.get, 2, "r", &tile);
  static_cast<float *>(tile)[1] += 0.5f;
  cleave_gather_report report;
  ASSERT_EQ(cleave_session_gather(session.get, "r", CLEAVE_F32, three.data(), 3,
                                  &report),
            CLEAVE_OK);
  EXPECT_EQ(report.identical, 0);
  EXPECT_EQ(report.max_difference, 0.5);
  EXPECT_EQ(report.rank_a, 0);
  EXPECT_EQ(report.rank_b, 2);
  EXPECT_EQ(report.element, 1);
}

TEST(Tiles, PartialValuesAreReduced) {
  Program p;
  p.mesh = {{"data", 2, ""}, {"tensor", 2, ""}};
  addBuffer(p, "g", {3});
  p.boundary[0].partial = {{0, 1, 2}};
  ProgramHandle program(p);
  SessionHandle session(program.get);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  auto whole = iota(3);
  cleave_session_scatter(session.get, "g", CLEAVE_F32, whole.data(), 3);
  EXPECT_EQ(tileOf(session.get, 1, "g", 3), whole);
  EXPECT_EQ(tileOf(session.get, 2, "g", 3), (std::vector<float>{0, 0, 0}));
  for (int rank : {2, 3}) {
    void *tile = nullptr;
    cleave_session_buffer(session.get, rank, "g", &tile);
    static_cast<float *>(tile)[0] = 10;
  }
  std::vector<float> back(3);
  cleave_gather_report report;
  cleave_session_gather(session.get, "g", CLEAVE_F32, back.data(), 3, &report);
  EXPECT_EQ(back, (std::vector<float>{11, 2, 3}));
  EXPECT_EQ(report.replicas, 2);
  EXPECT_EQ(report.identical, 1);
}

TEST(Tiles, ScalarsAndWrongUse) {
  Program p;
  addBuffer(p, "lr", {});
  addBuffer(p, "step", {}, {}, DType::I64);
  addBuffer(p, "h", {}, {}, DType::BF16);
  ProgramHandle program(p);
  SessionHandle session(program.get);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  EXPECT_EQ(cleave_session_set_scalar(session.get, "lr", 0.5), CLEAVE_OK);
  EXPECT_EQ(tileOf(session.get, 0, "lr", 1)[0], 0.5f);
  int64_t big = (int64_t(1) << 60) + 1, back = 0;
  EXPECT_EQ(cleave_session_set_integer(session.get, "step", big), CLEAVE_OK);
  cleave_session_gather(session.get, "step", CLEAVE_I64, &back, 1, nullptr);
  EXPECT_EQ(back, big);
  EXPECT_EQ(cleave_session_set_scalar(session.get, "h", 1.0 + 1.0 / 256),
            CLEAVE_OK);
  double rounded = 0;
  cleave_session_gather(session.get, "h", CLEAVE_F64, &rounded, 1, nullptr);
  EXPECT_EQ(rounded, 1.0); // to even
  EXPECT_EQ(cleave_session_set_scalar(session.get, "nope", 1),
            CLEAVE_BAD_ARGUMENT);
  EXPECT_NE(std::string(cleave_last_error()).find("nope"), std::string::npos);
  float value = 0;
  EXPECT_EQ(cleave_session_scatter(session.get, "step", CLEAVE_F32, &value, 1),
            CLEAVE_BAD_ARGUMENT);
  EXPECT_EQ(cleave_session_scatter(session.get, "lr", CLEAVE_F32, &value, 2),
            CLEAVE_BAD_ARGUMENT);
  EXPECT_EQ(cleave_session_scatter(session.get, "lr", CLEAVE_F32, nullptr, 1),
            CLEAVE_BAD_ARGUMENT);
  void *tile = nullptr;
  EXPECT_EQ(cleave_session_buffer(session.get, 1, "lr", &tile),
            CLEAVE_BAD_ARGUMENT);
}
} // namespace
