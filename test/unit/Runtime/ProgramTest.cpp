// The program format: a program that is written reads back equal, and damage is
// detected.

#include "../TriesAll.h"
#include "Helpers.h"

using namespace cleave::program;
using namespace cleave::test;

namespace {
Program sample() {
  Program p;
  p.mesh = {{"data", 2, "inter"}, {"tensor", 2, "intra"}};
  p.kernels = {{"k0", 2}};
  BufferRef x = addBuffer(p, "x", {5, 4}, {{{0, 1, 2}}, {}});
  p.meta = {{"model", "mlp"}};
  Action action;
  action.name = "loss_grad";
  Launch launch;
  launch.args = {x, {0, 64, {{{0, 1, 2}, 4}, {{1, 1, 2}, 8}}}};
  launch.extent = 3;
  Gemm gemm;
  gemm.batch = {2};
  gemm.alpha = -0.25;
  Collective collective;
  collective.group = {{1, 1, 2}};
  collective.parts = {{x, x, 10, 1, 10, 1, 10}};
  collective.purpose = p.intern("gradient");
  collective.token = 3;
  Convolution convolution;
  convolution.kind = ConvolutionKind::FilterGrad;
  convolution.strides = {2, 1};
  convolution.y = x;
  action.commands = {{launch, p.intern("node"), 12},
                     {gemm, 0, 1},
                     {Attention(), 0, 0},
                     {collective, 0, 0},
                     {Wait{3}, 0, 0},
                     {Copy(), 0, 0},
                     {Fill{x, 4, 2, 7}, 0, 0},
                     {GroupedGemm(), 0, 0},
                     {PositionInExpert(), 0, 0},
                     {convolution, 0, 3}};
  action.lifetimes = {{p.intern("t"), 1, 0, 0, 0, 2}};
  p.actions = {action};
  return p;
}

// Two stages of two ranks each. Buffer y is in both stages with different
// shardings; buffer z is in the second stage only.
Program pipeline() {
  Program p;
  p.mesh = {{"pipeline", 2, ""}, {"tensor", 2, ""}};
  p.rankClass = {0, 0, 1, 1};
  addBuffer(p, "x", {4});
  addBuffer(p, "y", {4}, {{{1, 1, 2}}});
  p.boundary.back().rankClass = 0;
  addBuffer(p, "y", {4});
  p.boundary.back().rankClass = 1;
  p.arenas.push_back({"slots", Lifespan::Slots, 256, 1});
  p.arenas.push_back({"second", Lifespan::Persistent, 64, 1});
  addBuffer(p, "z", {4});
  p.boundary.back().rankClass = 1;
  p.boundary.back().buffer = {3, 0, {}};
  for (uint32_t stage : {0, 1}) {
    Collective transfer;
    transfer.kind = CollectiveKind::SendRecv;
    transfer.group = {{0, 1, 2}};
    transfer.positions = {0, 1};
    transfer.parts = {{{0, 0, {}}, {0, 0, {}}, 4, 1, 4, 1, 4}};
    transfer.token = 0;
    Call call{2 * stage + 1, {}, p.intern("0F0")};
    if (stage == 1)
      call.rebase = {{2, 64}};
    Action step{"step", stage, {{transfer}, {Wait{0}}, {call}}, {}};
    Action part{".F", stage, {}, {}};
    part.commands = {{Fill{{stage == 1 ? 2 : 1, 0, {}}, 4, 4, 7}}};
    p.actions.push_back(step);
    p.actions.push_back(part);
  }
  p.arenas[1].size = 64;
  return p;
}

TEST(Program, RoundTrip) {
  std::string bytes = serialize(sample()), error;
  EXPECT_EQ(bytes, serialize(sample()));
  Program read;
  ASSERT_TRUE(deserialize(bytes, read, error)) << error;
  EXPECT_EQ(serialize(read), bytes);
  const Action *action = read.findAction("loss_grad");
  ASSERT_NE(action, nullptr);
  EXPECT_EQ(std::get<Gemm>(action->commands[1].op).alpha, -0.25);
  EXPECT_EQ(read.strings[action->commands[0].source], "node");
  EXPECT_EQ(read.numRanks(), 4);
}

TEST(Program, PipelineRoundTrip) {
  std::string bytes = serialize(pipeline()), error;
  Program read;
  ASSERT_TRUE(deserialize(bytes, read, error)) << error;
  EXPECT_EQ(serialize(read), bytes);
  EXPECT_EQ(read.arenas[2].rankClass, 1);
  EXPECT_EQ(read.arenas[2].lifespan, Lifespan::Slots);
  EXPECT_EQ(read.boundary[2].rankClass, 1);
  const Action *step = read.findAction("step", 1);
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(std::get<Collective>(step->commands[0].op).positions,
            (std::vector<int32_t>{0, 1}));
  const Call &call = std::get<Call>(step->commands[2].op);
  EXPECT_EQ(call.action, 3u);
  EXPECT_EQ(call.rebase.at(0).arena, 2);
  EXPECT_EQ(call.rebase.at(0).offset, 64);
  EXPECT_EQ(read.strings[call.label], "0F0");
}

TEST(Program, EveryTruncationIsFound) {
  for (const Program &program : {sample(), pipeline()}) {
    std::string bytes = serialize(program), error;
    Program read;
    for (size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(
          deserialize(std::string_view(bytes).substr(0, size), read, error))
          << size;
    EXPECT_FALSE(deserialize(bytes + "x", read, error));
  }
}

// Changes each byte of a program file. Reading the changed file either fails
// with an error or gives a program. In the second case, the loader and the
// creation of a session check the program. Nothing may crash.
TEST(Program, DamagedBytesNeverCrash) {
  for (const Program &program : {sample(), pipeline()}) {
    std::string bytes = serialize(program);
    for (size_t at = 0; at < bytes.size(); ++at)
      for (char flip : {char(0x01), char(0x80), char(0xff)}) {
        if (!triesAll() && at % 3 != uint8_t(flip) % 3)
          continue; // tests one of three changes per byte
        std::string damaged = bytes;
        damaged[at] ^= flip;
        cleave_program *program = nullptr;
        if (cleave_program_from_memory(damaged.data(), damaged.size(), nullptr,
                                       &program) == CLEAVE_OK &&
            cleave_program_num_ranks(program) <= 4) {
          cleave_program_add_kernel(
              program, "k0",
              [](const cleave_ctx *, void *const *, int64_t, int64_t) {});
          SessionHandle session(program);
        }
        cleave_program_free(program);
      }
  }
}

TEST(Program, VersionIsChecked) {
  std::string bytes = serialize(sample()), error;
  bytes[16] = 99; // after the magic with its length
  Program read;
  EXPECT_FALSE(deserialize(bytes, read, error));
  EXPECT_NE(error.find("version 99"), std::string::npos) << error;
}

TEST(Program, StructureIsChecked) {
  auto errorOf = [](auto change) {
    Program p = sample();
    change(p);
    return ProgramHandle(p).error;
  };
  EXPECT_EQ(errorOf([](Program &) {}), "");
  EXPECT_NE(errorOf([](Program &p) { p.kernels.clear(); }).find("kernel"),
            std::string::npos);
  EXPECT_NE(errorOf([](Program &p) {
              p.actions[0].commands.erase(p.actions[0].commands.begin() + 4);
            }).find("never waits"),
            std::string::npos);
  EXPECT_NE(errorOf([](Program &p) {
              p.boundary[0].localShape = {2, 4};
            }).find("do not cover"),
            std::string::npos);
  EXPECT_NE(errorOf([](Program &p) {
              p.boundary.push_back(p.boundary[0]);
            }).find("two buffers"),
            std::string::npos);
}

TEST(Program, ClassesAreChecked) {
  auto errorOf = [](auto change) {
    Program p = pipeline();
    change(p);
    return ProgramHandle(p).error;
  };
  auto expect = [&](auto change, const char *message) {
    std::string error = errorOf(change);
    EXPECT_NE(error.find(message), std::string::npos)
        << error << "\nexpected: " << message;
  };
  EXPECT_EQ(errorOf([](Program &) {}), "");
  // Buffers.
  expect([](Program &p) { p.boundary[2].rankClass = -1; },
         "two buffers are named \"y\"");
  expect([](Program &p) { p.boundary[2].rankClass = 5; },
         "no rank is of class 5");
  expect([](Program &p) { p.boundary[2].role = "state"; },
         "have roles \"buffer\" and \"state\"");
  expect([](Program &p) { p.boundary[2].dtype = DType::I32; },
         "differ in type or shape");
  expect([](Program &p) { p.boundary[1].sharding = {{{0, 1, 2}}}; },
         "cut along mesh axis \"pipeline\"");
  expect([](Program &p) { p.boundary[3].rankClass = -1; },
         "arena \"second\", which only ranks of class 1 have");
  expect([](Program &p) { p.rankClass = {0, 1, 1, 0}; },
         "one index on some mesh axes");
  // Commands.
  auto transfer = [](Program &p) -> Collective & {
    return std::get<Collective>(p.actions[0].commands[0].op);
  };
  auto call = [](Program &p) -> Call & {
    return std::get<Call>(p.actions[2].commands[2].op);
  };
  expect([&](Program &p) { transfer(p).positions = {0}; },
         "has 1 positions, expected 2");
  expect([&](Program &p) { transfer(p).positions = {1, 1}; },
         "takes part twice");
  expect([&](Program &p) { transfer(p).positions = {0, -1}; }, "position -1");
  expect(
      [&](Program &p) {
        p.actions[0].commands.erase(p.actions[0].commands.begin() + 1);
        transfer(p).token = -1;
      },
      "has no token");
  expect([&](Program &p) { call(p).action = 99; }, "calls action 99 of 4");
  expect([&](Program &p) { call(p).action = 1; }, "of class 0");
  expect([&](Program &p) { call(p).action = 2; }, "one level deep");
  expect([&](Program &p) { call(p).label = 99; }, "label string");
  expect([&](Program &p) { call(p).rebase = {{9, 0}}; }, "moves arena 9");
  expect([&](Program &p) { call(p).rebase = {{2, 0}, {2, 64}}; },
         "moves arena \"slots\" twice");
  expect([&](Program &p) { p.actions[0].lifetimes = {{0, 2, 0, 8, 0, 1}}; },
         "a lifetime of action \"step\"");
}
} // namespace
