// Tests program::Call, a command that runs another action of the program. A
// called action accesses slots: an arena is divided into equal slots, for
// example one for each microbatch in flight, and each call selects one of them.
// A called action may also contain collectives.

#include "PipelineProgram.h"

#include <atomic>

using namespace cleave::program;
using namespace cleave::test;

namespace {
// A program with one rank. Action "go" calls action ".add" (t = x + x; y = t)
// twice: y is in slot 0 of arena "slots" in the first call, and in slot 1 in
// the second call.
struct SlotProgram {
  SlotProgram() {
    x = addBuffer(p, "x", {16});
    out = addBuffer(p, "out", {16});
    p.arenas[1].size = 64;
    p.arenas.push_back({"slots", Lifespan::Slots, 128, -1});
    p.kernels = {{"double", 2}};
    Action add;
    add.name = ".add";
    add.commands = {{Launch{0, {x, scratch}, 16, 1}, 0, 0},
                    {Copy{scratch, y, 4, {16}, {1}, {1}}, p.intern("copy"), 0}};
    add.lifetimes = {{p.intern("t"), 1, 0, 64, 0, 1}};
    Action go;
    go.name = "go";
    go.commands = {{Call{0, {}, p.intern("0F0")}, 0, 0},
                   {Call{0, {{2, 64}}, p.intern("0F1")}, 0, 0}};
    p.actions = {add, go};
  }
  void copyOut(BufferRef from) {
    p.actions[1].commands.push_back({Copy{from, out, 4, {16}, {1}, {1}}, 0, 0});
  }
  // Runs the program. Returns the first element of `out`, or sets `error`.
  float run(bool poison, std::string &error) {
    ProgramHandle program(p);
    EXPECT_EQ(program.status, CLEAVE_OK) << program.error;
    cleave_program_add_kernel(
        program.get, "double",
        [](const cleave_ctx *, void *const *args, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            static_cast<float *>(args[1])[i] =
                2 * static_cast<float *>(args[0])[i];
        });
    SessionHandle session(program.get, 1, 10, poison);
    error = session.error;
    if (session.status != CLEAVE_OK)
      return 0;
    std::vector<float> values(16, 3);
    cleave_session_scatter(session.get, "x", CLEAVE_F32, values.data(), 16);
    for (int step = 0; step < 2; ++step)
      if (cleave_session_run(session.get, "go") != CLEAVE_OK) {
        error = cleave_last_error();
        return 0;
      }
    cleave_memory memory;
    cleave_session_memory(session.get, 0, &memory);
    touched = memory.touched_bytes;
    cleave_session_gather(session.get, "out", CLEAVE_F32, values.data(), 16,
                          nullptr);
    return values[0];
  }
  Program p;
  BufferRef x, out, scratch{1, 0, {}}, y{2, 0, {}};
  int64_t touched = 0;
};

TEST(Pipeline, SlotsLiveThroughAnAction) {
  for (bool poison : {false, true})
    for (int slot : {0, 1}) {
      SlotProgram program;
      program.copyOut({2, 64 * slot, {}});
      std::string error;
      EXPECT_EQ(program.run(poison, error), 6) << error;
      EXPECT_EQ(error, "");
      if (poison) // state, scratch, two slots
        EXPECT_EQ(program.touched, 128 + 64 + 128);
    }
}

TEST(Pipeline, PoisonModeFindsStaleSlotsAndScratch) {
  std::string error;
  // Scratch memory holds no values between calls.
  SlotProgram scratch;
  scratch.copyOut({1, 0, {}});
  EXPECT_EQ(scratch.run(false, error), 6);
  EXPECT_TRUE(std::isnan(scratch.run(true, error))) << error;
  // An action reads a slot that only the previous run wrote.
  SlotProgram stale;
  Action &go = stale.p.actions[1];
  go.commands.insert(go.commands.begin(),
                     {Copy{{2, 0, {}}, stale.out, 4, {16}, {1}, {1}}, 0, 0});
  EXPECT_EQ(stale.run(false, error), 6);
  EXPECT_TRUE(std::isnan(stale.run(true, error))) << error;
  // The value y is now dead at the end of ".add". In poison mode its memory is
  // then filled with NaN, in the slot that the call has selected.
  SlotProgram dead;
  dead.p.actions[0].lifetimes.push_back({dead.p.intern("y"), 2, 0, 64, 1, 1});
  dead.copyOut({2, 64, {}});
  EXPECT_EQ(dead.run(false, error), 6);
  EXPECT_TRUE(std::isnan(dead.run(true, error))) << error;
}

TEST(Pipeline, CallsThatLeaveTheirSlotsAreRefused) {
  for (int64_t offset : {int64_t(128), int64_t(96), int64_t(-64), INT64_MAX}) {
    SlotProgram program;
    std::get<Call>(program.p.actions[1].commands[1].op).rebase = {{2, offset}};
    std::string error;
    program.run(false, error);
    for (const char *part :
         {"action \"go\", command 1", "action \".add\", command 1 (copy)",
          "leave arena \"slots\" of 128 bytes"})
      EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

// Actions that contain an all-reduce are called. If a rank fails before it
// reaches the all-reduce, the error message says that the other ranks wait for
// that rank there.
TEST(Pipeline, CollectivesInCalls) {
  Program p;
  p.mesh = {{"pipeline", 2, ""}, {"tensor", 2, ""}};
  p.rankClass = {0, 0, 1, 1};
  BufferRef x = addBuffer(p, "x", {16});
  p.arenas.push_back({"slots", Lifespan::Slots, 128, -1});
  p.kernels = {{"check", 1}};
  for (uint32_t own : {0, 1}) {
    Action sum;
    sum.name = ".sum";
    sum.rankClass = own;
    BufferRef y{2, 0, {}};
    Collective reduce;
    reduce.group = {{1, 1, 2}};
    reduce.parts = {{y, y, 16, 1, 16, 1, 16}};
    reduce.purpose = p.intern("activation");
    sum.commands = {{Copy{x, y, 4, {16}, {1}, {1}}, 0, 0},
                    {Launch{0, {y}, 16, 16}, p.intern("check"), 0},
                    {reduce, p.intern("node"), 0},
                    {Copy{y, x, 4, {16}, {1}, {1}}, 0, 0}};
    Action go;
    go.name = "go";
    go.rankClass = own;
    // The ranks of the second pipeline stage use the two slots in the opposite
    // order, and then repeat their first call of ".sum".
    go.commands = {{Call{2 * own, {{2, own ? 64 : 0}}, p.intern("0F0")}, 0, 0},
                   {Call{2 * own, {{2, own ? 0 : 64}}, p.intern("0F1")}, 0, 0}};
    if (own)
      go.commands.push_back(go.commands[0]);
    p.actions.push_back(sum);
    p.actions.push_back(go);
  }
  ProgramHandle program(p);
  ASSERT_EQ(program.status, CLEAVE_OK) << program.error;
  static std::atomic<int> failing;
  failing = -1;
  cleave_program_add_kernel(
      program.get, "check",
      [](const cleave_ctx *ctx, void *const *, int64_t, int64_t) {
        if (ctx->rank == failing)
          throw std::runtime_error("deliberate");
      });
  SessionHandle session(program.get, 1, 20, true);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  std::vector<float> ones(16, 1);
  cleave_session_scatter(session.get, "x", CLEAVE_F32, ones.data(), 16);
  ASSERT_EQ(cleave_session_run(session.get, "go"), CLEAVE_OK)
      << cleave_last_error();
  for (int rank = 0; rank < 4; ++rank) {
    void *tile = nullptr;
    cleave_session_buffer(session.get, rank, "x", &tile);
    EXPECT_EQ(*static_cast<float *>(tile), rank < 2 ? 4 : 8);
  }
  failing = 3;
  EXPECT_EQ(cleave_session_run(session.get, "go"), CLEAVE_RANK_FAILED);
  cleave_failure failure;
  cleave_session_failure(session.get, &failure);
  EXPECT_EQ(failure.rank, 3);
  EXPECT_EQ(failure.command, 0);
  EXPECT_STREQ(failure.source, "check");
  EXPECT_STREQ(failure.message,
               "in command 1 of \".sum\" (0F0): deliberate; the others wait "
               "for it in all_reduce \"activation\" (node)");
}
} // namespace
