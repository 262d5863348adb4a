// The program format: what is written is read back; damage is found.

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
  action.commands = {{launch, p.intern("node"), 12},
                     {gemm, 0, 1},
                     {Attention(), 0, 0},
                     {collective, 0, 0},
                     {Wait{3}, 0, 0},
                     {Copy(), 0, 0},
                     {Fill{x, 4, 2, 7}, 0, 0}};
  action.lifetimes = {{p.intern("t"), 1, 0, 0, 0, 2}};
  p.actions = {action};
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

TEST(Program, EveryTruncationIsFound) {
  std::string bytes = serialize(sample()), error;
  Program read;
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(
        deserialize(std::string_view(bytes).substr(0, size), read, error))
        << size;
  EXPECT_FALSE(deserialize(bytes + "x", read, error));
}

// Any byte may change: the outcome is an error or a program that the loader
// and the session judge, never a crash.
TEST(Program, DamagedBytesNeverCrash) {
  std::string bytes = serialize(sample());
  for (size_t at = 0; at < bytes.size(); ++at)
    for (char flip : {char(0x01), char(0x80), char(0xff)}) {
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
} // namespace
