// Whole hand-written programs, run through the C ABI.

#include "Helpers.h"

#include <chrono>

using namespace cleave::program;
using namespace cleave::test;

namespace {
// y[row] = 2 x[row] + the rank's index on axis 0.
void doubleRows(const cleave_ctx *ctx, void *const *args, int64_t begin,
                int64_t end) {
  auto *x = static_cast<const float *>(args[0]);
  auto *y = static_cast<float *>(args[1]);
  for (int64_t i = begin; i < end; ++i)
    y[i] = 2 * x[i] + float(ctx->num_axes ? ctx->axis_index[0] : 0);
}

Command commandOf(Program &p, decltype(Command::op) op, const char *source) {
  return {std::move(op), p.intern(source), 0};
}

// A program for 4 ranks. Action "step" computes y = 2x + data index, then the
// sum of y over "data".
Program sumProgram(bool async = false) {
  Program p;
  p.mesh = {{"data", 2, ""}, {"tensor", 2, ""}};
  BufferRef x = addBuffer(p, "x", {100});
  BufferRef y = addBuffer(p, "y", {100});
  p.kernels = {{"double_rows", 2}};
  Launch launch;
  launch.args = {x, y};
  launch.extent = 100;
  launch.grain = 8;
  Collective reduce;
  reduce.group = {{0, 1, 2}};
  reduce.parts = {{y, y, 100, 1, 100, 1, 100}};
  reduce.purpose = p.intern("gradient");
  Action action;
  action.name = "step";
  action.commands.push_back(commandOf(p, launch, "node_mul"));
  if (async)
    reduce.token = 0;
  action.commands.push_back(commandOf(p, reduce, "node_sum"));
  if (async)
    action.commands.push_back(commandOf(p, Wait{0}, "node_sum"));
  p.actions = {action};
  return p;
}

struct SumSession {
  explicit SumSession(Program p, int threads = 1, double watchdog = 60,
                      bool poison = false)
      : program(p) {
    EXPECT_EQ(program.status, CLEAVE_OK) << program.error;
    cleave_program_add_kernel(program.get, "double_rows", doubleRows);
    session =
        std::make_unique<SessionHandle>(program.get, threads, watchdog, poison);
    EXPECT_EQ(session->status, CLEAVE_OK) << session->error;
    std::vector<float> ones(100, 1);
    cleave_session_scatter(session->get, "x", CLEAVE_F32, ones.data(), 100);
  }
  ProgramHandle program;
  std::unique_ptr<SessionHandle> session;
};

TEST(Session, RunsOnAllRanks) {
  for (bool async : {false, true})
    for (int threads : {1, 3}) {
      SumSession s(sumProgram(async), threads);
      for (int round = 0; round < 3; ++round)
        ASSERT_EQ(cleave_session_run(s.session->get, "step"), CLEAVE_OK)
            << cleave_last_error();
      std::vector<float> y(100);
      cleave_gather_report report;
      cleave_session_gather(s.session->get, "y", CLEAVE_F32, y.data(), 100,
                            &report);
      EXPECT_EQ(y, std::vector<float>(100, 2 + 3)); // 2 + (2 + 1)
      EXPECT_EQ(report.replicas, 4);
      EXPECT_EQ(report.identical, 1);
    }
}

TEST(Session, CountsTraffic) {
  SumSession s(sumProgram());
  cleave_session_run(s.session->get, "step");
  cleave_session_run(s.session->get, "step");
  ASSERT_EQ(cleave_session_num_purposes(s.session->get), 1);
  cleave_traffic traffic;
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(cleave_session_traffic(s.session->get, rank, 0, &traffic),
              CLEAVE_OK);
    EXPECT_STREQ(traffic.purpose, "gradient");
    EXPECT_EQ(traffic.sent_bytes, 2 * 400); // 2 (N-1)/N S, twice
    EXPECT_EQ(traffic.received_bytes, 2 * 400);
    EXPECT_EQ(traffic.calls, 2);
  }
  cleave_session_reset_counters(s.session->get);
  cleave_session_traffic(s.session->get, 0, 0, &traffic);
  EXPECT_EQ(traffic.sent_bytes, 0);
}

TEST(Session, AFailingRankWakesAllOthers) {
  SumSession s(sumProgram());
  EXPECT_EQ(cleave_session_inject_failure(s.session->get, 2, 1, 1, 0),
            CLEAVE_OK);
  EXPECT_EQ(cleave_session_run(s.session->get, "step"), CLEAVE_OK);
  auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(cleave_session_run(s.session->get, "step"), CLEAVE_RANK_FAILED);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  std::string message = cleave_last_error();
  EXPECT_NE(message.find("rank 2 failed in action \"step\", command 1 "
                         "(node_sum)"),
            std::string::npos)
      << message;
  cleave_failure failure;
  cleave_session_failure(s.session->get, &failure);
  EXPECT_EQ(failure.status, CLEAVE_RANK_FAILED);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_EQ(failure.command, 1);
  EXPECT_STREQ(failure.source, "node_sum");
  EXPECT_STREQ(failure.action, "step");
  EXPECT_EQ(cleave_session_run(s.session->get, "step"), CLEAVE_BAD_ARGUMENT);
}

TEST(Session, WatchdogNamesTheSilentRank) {
  SumSession s(sumProgram(), 1, 0.3);
  cleave_session_inject_failure(s.session->get, 3, 0, 0, 1);
  EXPECT_EQ(cleave_session_run(s.session->get, "step"), CLEAVE_TIMEOUT);
  cleave_failure failure;
  cleave_session_failure(s.session->get, &failure);
  EXPECT_EQ(failure.rank, 3);
  std::string message = failure.message;
  EXPECT_NE(message.find("all_reduce \"gradient\" (node_sum)"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("missing ranks: 3"), std::string::npos) << message;
}

// An invalid convolution is detected before memory is allocated. The CPU
// runtime supports no convolutions.
TEST(Session, RefusesConvolutions) {
  Program p = sumProgram();
  Convolution conv;
  conv.samples = conv.channels = conv.features = 1;
  conv.input = {8}, conv.kernel = {3}, conv.output = {6};
  conv.strides = conv.dilations = {1}, conv.low = conv.high = {0};
  conv.x = conv.w = conv.y = p.boundary[0].buffer;
  auto messageOf = [&] {
    p.actions[0].commands = {commandOf(p, conv, "node_conv")};
    ProgramHandle program(p);
    cleave_program_add_kernel(program.get, "double_rows", doubleRows);
    SessionHandle session(program.get, 1, 60, false);
    return std::pair(session.status, session.error);
  };
  auto [status, message] = messageOf();
  EXPECT_EQ(status, CLEAVE_UNSUPPORTED);
  EXPECT_NE(message.find("only programs for CUDA devices"), std::string::npos)
      << message;
  conv.output = {7};
  std::tie(status, message) = messageOf();
  EXPECT_EQ(status, CLEAVE_BAD_PROGRAM);
  EXPECT_NE(message.find("does not give 7"), std::string::npos) << message;
}

TEST(Session, UnknownActionAndBadOptions) {
  SumSession s(sumProgram());
  EXPECT_EQ(cleave_session_run(s.session->get, "nope"), CLEAVE_BAD_ARGUMENT);
  cleave_session *session = nullptr;
  cleave_session_options options{};
  EXPECT_EQ(cleave_session_create(s.program.get, &options, &session),
            CLEAVE_BAD_ARGUMENT);
  options.version = CLEAVE_RUNTIME_VERSION;
  options.transport = "pigeon";
  EXPECT_EQ(cleave_session_create(s.program.get, &options, &session),
            CLEAVE_UNSUPPORTED);
  options.transport = "nccl"; // for a CPU program
  EXPECT_EQ(cleave_session_create(s.program.get, &options, &session),
            CLEAVE_BAD_ARGUMENT);
  EXPECT_EQ(cleave_session_create(nullptr, &options, &session),
            CLEAVE_BAD_ARGUMENT);
}

TEST(Session, AddressesOutsideTheArenaAreRefused) {
  Program p = sumProgram();
  std::get<Collective>(p.actions[0].commands[1].op).parts[0].count = 1000;
  ProgramHandle program(p);
  cleave_program_add_kernel(program.get, "double_rows", doubleRows);
  SessionHandle session(program.get);
  EXPECT_EQ(session.status, CLEAVE_BAD_PROGRAM);
  EXPECT_NE(session.error.find("command 1 (node_sum)"), std::string::npos)
      << session.error;
  EXPECT_NE(session.error.find("leave arena \"state\""), std::string::npos)
      << session.error;
}

TEST(Session, MissingKernelsAreNamed) {
  ProgramHandle program(sumProgram());
  SessionHandle session(program.get);
  EXPECT_EQ(session.status, CLEAVE_BAD_PROGRAM);
  EXPECT_NE(session.error.find("double_rows"), std::string::npos);
}

TEST(Session, MissingFolder) {
  cleave_program *program = nullptr;
  EXPECT_EQ(cleave_program_load("/does/not/exist", &program),
            CLEAVE_BAD_PROGRAM);
  EXPECT_NE(std::string(cleave_last_error()).find("/does/not/exist"),
            std::string::npos);
}

// Tests offsets that depend on the rank's coordinates in the mesh. Each rank
// reads its own part of a replicated array and doubles it. Then the parts are
// gathered.
TEST(Session, AffineOffsetsCopyFillAndGather) {
  Program p;
  p.mesh = {{"data", 2, ""}, {"tensor", 3, ""}};
  BufferRef x = addBuffer(p, "x", {2, 6});
  BufferRef y = addBuffer(p, "y", {2, 6});
  p.arenas[1].size = 256;
  p.kernels = {{"double_rows", 2}};
  // Copies columns [2t, 2t + 2) of both rows to a dense array.
  BufferRef part = x;
  part.terms = {{{1, 1, 3}, 8}};
  Copy copy{part, {1, 0, {}}, 4, {2, 2}, {6, 1}, {2, 1}};
  Launch launch{0, {{1, 0, {}}, {1, 64, {}}}, 4, 1};
  Fill fill{y, 4, 12, 0x3f800000};
  Collective gather;
  gather.kind = CollectiveKind::AllGather;
  gather.group = {{1, 1, 3}};
  gather.parts = {{{1, 64, {}}, y, 4, 2, 2, 1, 0}};
  Action action;
  action.name = "go";
  for (auto &op :
       std::vector<decltype(Command::op)>{fill, copy, launch, gather})
    action.commands.push_back(commandOf(p, op, "n"));
  p.actions = {action};
  ProgramHandle program(p);
  cleave_program_add_kernel(program.get, "double_rows", doubleRows);
  SessionHandle session(program.get, 1, 60, true);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  auto whole = randomVector<float>(12, 3);
  cleave_session_scatter(session.get, "x", CLEAVE_F32, whole.data(), 12);
  ASSERT_EQ(cleave_session_run(session.get, "go"), CLEAVE_OK)
      << cleave_last_error();
  for (int rank = 0; rank < 6; ++rank) {
    void *tile = nullptr;
    cleave_session_buffer(session.get, rank, "y", &tile);
    for (int i = 0; i < 12; ++i)
      EXPECT_EQ(static_cast<float *>(tile)[i], 2 * whole[i] + float(rank / 3));
  }
  cleave_memory memory;
  ASSERT_EQ(cleave_session_memory(session.get, 0, &memory), CLEAVE_OK);
  EXPECT_EQ(memory.arena_bytes, p.arenas[0].size + 256);
  EXPECT_EQ(memory.touched_bytes, p.arenas[0].size + 64 + 16);
}

// A two-layer perceptron with gemm commands, in f32 and f64.
TEST(Session, GemmAndAttentionCommands) {
  for (DType dtype : {DType::F32, DType::F64}) {
    Program p;
    BufferRef x = addBuffer(p, "x", {5, 8}, {}, dtype);
    BufferRef w = addBuffer(p, "w", {8, 8}, {}, dtype);
    BufferRef y = addBuffer(p, "y", {5, 8}, {}, dtype);
    BufferRef o = addBuffer(p, "o", {5, 8}, {}, dtype);
    p.arenas[1].size = 1 << 20;
    Gemm gemm;
    gemm.dtype = dtype;
    gemm.m = 5, gemm.n = 8, gemm.k = 8;
    gemm.a = {x, {}, 8, 1};
    gemm.b = {w, {}, 8, 1};
    gemm.c = {y, {}, 8, 1};
    gemm.activation = Activation::Relu;
    gemm.workspace = {1, 4096, {}};
    gemm.workspaceSize = (1 << 20) - 4096;
    Attention attention;
    attention.dtype = dtype;
    attention.b = 1, attention.qLen = attention.kLen = 5;
    attention.n = 2, attention.d = attention.dv = 4;
    for (AttentionRef *ref : {&attention.q, &attention.k, &attention.v})
      *ref = {y, {40, 8, 4, 4, 1}};
    attention.o = {o, {40, 8, 4, 4, 1}};
    attention.lse = {{1, 0, {}}, {10, 1, 5, 5, 0}};
    attention.causal = true;
    Action action;
    action.name = "go";
    action.commands = {commandOf(p, gemm, "gemm"),
                       commandOf(p, attention, "attention")};
    p.actions = {action};
    ProgramHandle program(p);
    SessionHandle session(program.get);
    ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
    auto xs = randomVector<double>(40, 1), ws = randomVector<double>(64, 2);
    cleave_session_scatter(session.get, "x", CLEAVE_F64, xs.data(), 40);
    cleave_session_scatter(session.get, "w", CLEAVE_F64, ws.data(), 64);
    ASSERT_EQ(cleave_session_run(session.get, "go"), CLEAVE_OK)
        << cleave_last_error();
    std::vector<double> ys(40), expected(40), os(40);
    cleave_session_gather(session.get, "y", CLEAVE_F64, ys.data(), 40, nullptr);
    cleave_session_gather(session.get, "o", CLEAVE_F64, os.data(), 40, nullptr);
    for (int i = 0; i < 5; ++i)
      for (int j = 0; j < 8; ++j) {
        for (int k = 0; k < 8; ++k)
          expected[i * 8 + j] += xs[i * 8 + k] * ws[k * 8 + j];
        expected[i * 8 + j] = std::max(expected[i * 8 + j], 0.0);
      }
    EXPECT_LT(relativeError(ys, expected), dtype == DType::F32 ? 1e-6 : 1e-14);
    // The first query attends only to itself.
    for (int j = 0; j < 8; ++j)
      EXPECT_NEAR(os[j], ys[j], 1e-6);
    // No workspace is planned for attention, so the runtime allocates it and
    // reports it as unplanned.
    cleave_memory memory;
    cleave_session_memory(session.get, 0, &memory);
    EXPECT_GT(memory.unplanned_bytes, 0);
  }
}

TEST(Session, PoisonModeFindsOverlapsAndStaleReads) {
  Program p;
  BufferRef x = addBuffer(p, "x", {4}), y = addBuffer(p, "y", {4});
  p.arenas[1].size = 64;
  p.kernels = {{"double_rows", 2}};
  BufferRef t{1, 0, {}};
  Action action;
  action.name = "go";
  action.commands = {commandOf(p, Launch{0, {x, t}, 4, 1}, "first"),
                     commandOf(p, Launch{0, {t, y}, 4, 1}, "second")};
  StringId t0 = p.intern("t0"), t1 = p.intern("t1");
  auto valueWith = [&](std::vector<Lifetime> lifetimes, std::string &error) {
    Program copy = p;
    copy.actions = {action};
    copy.actions[0].lifetimes = lifetimes;
    ProgramHandle program(copy);
    cleave_program_add_kernel(program.get, "double_rows", doubleRows);
    SessionHandle session(program.get, 1, 60, true);
    error = session.error;
    float y0 = -1, ones[4] = {1, 1, 1, 1}, ys[4];
    if (session.status != CLEAVE_OK)
      return y0;
    cleave_session_scatter(session.get, "x", CLEAVE_F32, ones, 4);
    EXPECT_EQ(cleave_session_run(session.get, "go"), CLEAVE_OK);
    cleave_session_gather(session.get, "y", CLEAVE_F32, ys, 4, nullptr);
    return ys[0];
  };
  std::string error;
  EXPECT_EQ(valueWith({{t0, 1, 0, 16, 0, 1}}, error), 4);
  // The lifetimes say that t0 is dead after the first command, but the second
  // command reads t0.
  EXPECT_TRUE(std::isnan(valueWith({{t0, 1, 0, 16, 0, 0}}, error)));
  // t1 reuses the memory of t0 and begins in the command in which t0 ends.
  EXPECT_EQ(valueWith({{t0, 1, 0, 16, 0, 0}, {t1, 1, 0, 16, 0, 1}}, error), 4);
  valueWith({{t0, 1, 0, 16, 0, 1}, {t1, 1, 8, 16, 0, 1}}, error);
  EXPECT_NE(error.find("t0 and t1"), std::string::npos) << error;
}
} // namespace
