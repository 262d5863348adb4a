// Tests programs with several rank classes (all ranks of a class run identical
// commands): runs a hand-written pipeline with one class for each stage, lets
// the host access buffers that all or only some classes have, and checks that
// wrong programs are refused.

#include "PipelineProgram.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace cleave::program;
using namespace cleave::test;

namespace {
TEST(Pipeline, OneForwardOneBackward) {
  for (int stages : {1, 2, 3, 4})
    for (int data : {1, 2})
      for (int microbatches : {1, 2, 6})
        for (bool poison : {false, true}) {
          PipelineShape shape{stages, data, microbatches};
          SCOPED_TRACE(testing::Message()
                       << stages << " x " << data << ", " << microbatches
                       << " microbatches, poison " << poison);
          PipelineReference reference(shape);
          ProgramHandle program(PipelineProgram(shape).p);
          ASSERT_EQ(program.status, CLEAVE_OK) << program.error;
          SessionHandle session(program.get, 1, 20, poison);
          ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
          for (int step = 0; step < 3; ++step)
            checkPipelineStep(session.get, shape, reference, step == 0);
          if (testing::Test::HasFatalFailure() ||
              testing::Test::HasNonfatalFailure())
            return;
        }
}

// A rank sends its outputs to the next stage and its input gradients to the
// previous stage.
TEST(Pipeline, CountsTraffic) {
  PipelineShape shape{3, 1, 5};
  PipelineReference reference(shape);
  ProgramHandle program(PipelineProgram(shape).p);
  SessionHandle session(program.get);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  checkPipelineStep(session.get, shape, reference, true);
  ASSERT_EQ(cleave_session_num_purposes(session.get), 2);
  for (int rank = 0; rank < 3; ++rank) {
    int neighbours = rank == 1 ? 2 : 1;
    cleave_traffic traffic;
    ASSERT_EQ(cleave_session_traffic(session.get, rank, 1, &traffic),
              CLEAVE_OK);
    EXPECT_STREQ(traffic.purpose, "pipeline");
    EXPECT_EQ(traffic.sent_bytes, 5 * 64 * neighbours);
    EXPECT_EQ(traffic.received_bytes, 5 * 64 * neighbours);
    EXPECT_EQ(traffic.calls, 5 * 2 * neighbours);
    cleave_memory memory;
    cleave_session_memory(session.get, rank, &memory);
    int64_t held = 3 - rank; // activations
    int64_t named = rank == 0 ? 5 : rank == 1 ? 2 : 5;
    int64_t kept = rank == 0 ? 5 : 0;
    EXPECT_EQ(memory.arena_bytes, 128 + 64 * (held + 6 + named + kept));
  }
}

// The replicas of a tensor are compared even if their ranks run different
// commands. An example is the tied weight of the first and the last stage.
TEST(Pipeline, TiedGradientsThatWereNotSummedDiffer) {
  PipelineShape shape{3, 2, 2, /*reducesTied=*/false};
  PipelineReference reference(shape);
  ProgramHandle program(PipelineProgram(shape).p);
  SessionHandle session(program.get);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  for (int stage = 0; stage < 3; ++stage)
    cleave_session_scatter(session.get, ("w" + std::to_string(stage)).c_str(),
                           CLEAVE_F32, reference.weights[stage].data(), 16);
  cleave_session_scatter(session.get, "tied", CLEAVE_F32, reference.tied.data(),
                         16);
  for (int k = 0; k < 2; ++k) {
    cleave_session_scatter(session.get, "x", CLEAVE_F32,
                           reference.inputs[k].data(), 32);
    cleave_session_run(session.get, ("load." + std::to_string(k)).c_str());
  }
  ASSERT_EQ(cleave_session_run(session.get, "loss_grad"), CLEAVE_OK)
      << cleave_last_error();
  std::vector<float> values(16);
  cleave_gather_report report;
  cleave_session_gather(session.get, "g.tied", CLEAVE_F32, values.data(), 16,
                        &report);
  EXPECT_EQ(report.identical, 0);
  EXPECT_EQ(report.rank_a, 0);
  EXPECT_EQ(report.rank_b, 4);
  EXPECT_GT(report.max_difference, 0);
  EXPECT_EQ(values,
            reference.gradients[0]); // of the first rank class
}

TEST(Pipeline, ActionsOfSomeClasses) {
  ProgramHandle program(PipelineProgram({2, 1, 3}).p);
  EXPECT_TRUE(cleave_program_has_action(program.get, "load.2"));
  EXPECT_FALSE(cleave_program_has_action(program.get, ".F"));
  SessionHandle session(program.get);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  EXPECT_EQ(cleave_session_run(session.get, "load.2"), CLEAVE_OK);
  EXPECT_EQ(cleave_session_run(session.get, ".F"), CLEAVE_BAD_ARGUMENT);
  EXPECT_EQ(cleave_session_run(session.get, "load.3"), CLEAVE_BAD_ARGUMENT);
}

// A program with two rank classes (groups of ranks that run identical commands)
// of two ranks each. The buffer "tied" is in both classes with different
// shardings; other buffers are on all ranks, or in one class only.
Program programOfTwoClasses() {
  Program p;
  p.mesh = {{"pipeline", 2, ""}, {"tensor", 2, ""}};
  p.rankClass = {0, 0, 1, 1};
  addBuffer(p, "a", {4, 2});
  addBuffer(p, "tied", {4, 2}, {{{1, 1, 2}}, {}}); // rows
  p.boundary.back().rankClass = 0;
  addBuffer(p, "z", {});
  addBuffer(p, "tied", {4, 2}, {{}, {{1, 1, 2}}}); // columns
  p.boundary.back().rankClass = 1;
  addBuffer(p, "second", {3});
  p.boundary.back().rankClass = 1;
  addBuffer(p, "share", {3});
  p.boundary.back().rankClass = 1;
  p.boundary.back().partial = {{1, 1, 2}};
  return p;
}

// The ranks of a class run identical commands. A buffer that ranks of several
// classes hold, such as "tied", is listed only once by its name.
TEST(Pipeline, BuffersOfSomeClasses) {
  ProgramHandle program(programOfTwoClasses());
  ASSERT_EQ(program.status, CLEAVE_OK) << program.error;
  std::vector<std::string> names;
  std::vector<int64_t> owners;
  for (int i = 0; i < cleave_program_num_buffers(program.get); ++i) {
    cleave_buffer_info info;
    ASSERT_EQ(cleave_program_buffer(program.get, i, &info), CLEAVE_OK);
    names.push_back(info.name);
    owners.push_back(info.owners);
    EXPECT_EQ(cleave_program_find_buffer(program.get, info.name), i);
    if (names.back() == "tied")
      EXPECT_EQ(info.local_bytes, 16);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"a", "tied", "z", "second", "share"}));
  EXPECT_EQ(owners, (std::vector<int64_t>{4, 2, 4, 2, 1}));
}

// A test fixture that accesses the tiles of a rank by the names of their
// buffers.
class BuffersOfClasses : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_EQ(program.status, CLEAVE_OK) << program.error;
    ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  }
  float *tile(int rank, const char *name) {
    void *data = nullptr;
    EXPECT_EQ(cleave_session_buffer(session.get, rank, name, &data), CLEAVE_OK)
        << cleave_last_error();
    return static_cast<float *>(data);
  }

  ProgramHandle program{programOfTwoClasses()};
  SessionHandle session{program.get};
};

TEST_F(BuffersOfClasses, AreScatteredAndGatheredByTheShardingOfEach) {
  std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7}, back(8);
  ASSERT_EQ(
      cleave_session_scatter(session.get, "tied", CLEAVE_F32, values.data(), 8),
      CLEAVE_OK);
  EXPECT_EQ(std::vector<float>(tile(1, "tied"), tile(1, "tied") + 4),
            (std::vector<float>{4, 5, 6, 7}));
  EXPECT_EQ(std::vector<float>(tile(3, "tied"), tile(3, "tied") + 4),
            (std::vector<float>{1, 3, 5, 7}));
  cleave_gather_report report;
  ASSERT_EQ(cleave_session_gather(session.get, "tied", CLEAVE_F32, back.data(),
                                  8, &report),
            CLEAVE_OK);
  EXPECT_EQ(back, values);
  EXPECT_EQ(report.identical, 1);
  EXPECT_EQ(report.replicas, 2);
  // Changes the element in row 2, column 1: it is in the second rank's tile of
  // rows and in the second tile of columns.
  tile(3, "tied")[2] = 50;
  std::vector<double> wide(8);
  ASSERT_EQ(cleave_session_gather(session.get, "tied", CLEAVE_F64, wide.data(),
                                  8, &report),
            CLEAVE_OK);
  EXPECT_EQ(wide, std::vector<double>(values.begin(), values.end()));
  EXPECT_EQ(report.identical, 0);
  EXPECT_EQ(report.rank_a, 1);
  EXPECT_EQ(report.rank_b, 3);
  EXPECT_EQ(report.element, 2);
  EXPECT_EQ(report.max_difference, 45);
}

TEST_F(BuffersOfClasses, AreSetAndZeroedInAllClasses) {
  cleave_session_set_scalar(session.get, "z", 3);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(*tile(rank, "z"), 3);
  ASSERT_EQ(cleave_session_zero(session.get, "tied"), CLEAVE_OK);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(tile(rank, "tied")[2], 0);
}

TEST_F(BuffersOfClasses, AddPartialSumsOfTheRanksOfOneClass) {
  tile(2, "share")[1] = 2;
  tile(3, "share")[1] = 5;
  std::vector<float> back(3);
  cleave_gather_report report;
  ASSERT_EQ(cleave_session_gather(session.get, "share", CLEAVE_F32, back.data(),
                                  3, &report),
            CLEAVE_OK);
  EXPECT_EQ(back[1], 7);
}

TEST_F(BuffersOfClasses, AreNotThoseOfOtherClasses) {
  void *data = nullptr;
  EXPECT_EQ(cleave_session_buffer(session.get, 1, "second", &data),
            CLEAVE_BAD_ARGUMENT);
  EXPECT_NE(std::string(cleave_last_error()).find("rank 1 of class 0 holds "),
            std::string::npos)
      << cleave_last_error();
}

TEST(Pipeline, ArenasOfOtherClassesAreRefused) {
  Program p = PipelineProgram({2, 1, 2}).p;
  for (Action &action : p.actions)
    if (action.name == "zero" && action.rankClass == 0)
      std::get<Fill>(action.commands[0].op).dst = {8, 0, {}};
  ProgramHandle program(p);
  SessionHandle session(program.get);
  EXPECT_EQ(session.status, CLEAVE_BAD_PROGRAM);
  EXPECT_NE(session.error.find("action \"zero\", command 0 (zero): arena \"" +
                               p.arenas[8].name +
                               "\" is that of class 1, but rank 0 is of "
                               "class 0"),
            std::string::npos)
      << session.error;
}

// A pipeline with more stages than cores, and with many arenas that most ranks
// do not have.
TEST(Pipeline, ManyStages) {
  PipelineShape shape{12, 2, 20};
  PipelineReference reference(shape);
  ProgramHandle program(PipelineProgram(shape).p);
  SessionHandle session(program.get, 1, 30, true);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  for (int step = 0; step < 2; ++step)
    checkPipelineStep(session.get, shape, reference, step == 0);
}

// Each rank waits for another one, and the last of them waits for the rank that
// hangs. The watchdog names that rank.
TEST(Pipeline, TheWatchdogNamesWhoIsSilent) {
  ProgramHandle handle(PipelineProgram({4, 2, 2}).p);
  SessionHandle session(handle.get, 1, 0.3);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  cleave_session_inject_failure(session.get, 7, 0, 2, /*hang=*/1);
  EXPECT_EQ(cleave_session_run(session.get, "loss_grad"), CLEAVE_TIMEOUT);
  cleave_failure failure;
  cleave_session_failure(session.get, &failure);
  EXPECT_EQ(failure.rank, 7);
  std::string message = failure.message;
  EXPECT_NE(message.find("missing ranks: "), std::string::npos) << message;
  // If two ranks receive from each other before either sends, no rank is named
  // as silent.
  Program p = PipelineProgram({2, 1, 1}).p;
  for (Action &action : p.actions) {
    if (action.name != "loss_grad")
      continue;
    // Moves the first message that a rank receives to the front of the rank's
    // list of commands.
    for (size_t i = 0; i < action.commands.size(); ++i)
      if (auto *found = std::get_if<Collective>(&action.commands[i].op);
          found && found->kind == CollectiveKind::SendRecv &&
          found->positions[1] == int32_t(action.rankClass)) {
        std::rotate(action.commands.begin(), action.commands.begin() + i,
                    action.commands.begin() + i + 2);
        break;
      }
  }
  ProgramHandle crossed(p);
  ASSERT_EQ(crossed.status, CLEAVE_OK) << crossed.error;
  SessionHandle stuck(crossed.get, 1, 0.3);
  ASSERT_EQ(stuck.status, CLEAVE_OK) << stuck.error;
  EXPECT_EQ(cleave_session_run(stuck.get, "loss_grad"), CLEAVE_TIMEOUT);
  message = cleave_last_error();
  EXPECT_NE(message.find("all wait for each other"), std::string::npos)
      << message;
}

// The trace of every rank: calls with their labels, and transfers on a stream
// of their own, one after the other.
TEST(Pipeline, Traces) {
  PipelineShape shape{3, 1, 4};
  PipelineReference reference(shape);
  ProgramHandle program(PipelineProgram(shape).p);
  SessionHandle session(program.get);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  auto read = [&](int rank) {
    std::vector<cleave_trace_event> all, some(7);
    for (int64_t count = 1; count > 0;) {
      EXPECT_EQ(
          cleave_session_trace_read(session.get, rank, some.data(), 7, &count),
          CLEAVE_OK);
      all.insert(all.end(), some.begin(), some.begin() + count);
    }
    return all;
  };
  checkPipelineStep(session.get, shape, reference, true);
  EXPECT_TRUE(read(0).empty());
  ASSERT_EQ(cleave_session_trace(session.get, 1), CLEAVE_OK);
  ASSERT_EQ(cleave_session_run(session.get, "loss_grad"), CLEAVE_OK);
  ASSERT_EQ(cleave_session_trace(session.get, 0), CLEAVE_OK);
  ASSERT_EQ(cleave_session_run(session.get, "loss_grad"), CLEAVE_OK);
  std::map<std::string, const cleave_trace_event *> calls;
  std::vector<std::vector<cleave_trace_event>> events;
  for (int rank = 0; rank < 3; ++rank)
    events.push_back(read(rank));
  for (int rank = 0; rank < 3; ++rank) {
    int64_t last = 0;
    std::map<std::string, int> kinds;
    for (const cleave_trace_event &event : events[rank]) {
      EXPECT_LE(last, event.begin_ns);
      EXPECT_LE(event.begin_ns, event.end_ns);
      last = event.end_ns;
      std::string kind = event.kind;
      ++kinds[kind];
      EXPECT_EQ(event.stream, kind == "call" ? CLEAVE_STREAM_COMPUTE
                                             : CLEAVE_STREAM_TRANSFERS);
      if (kind == "call")
        calls[event.name] = &event;
    }
    int neighbours = rank == 1 ? 2 : 1;
    EXPECT_EQ(kinds["call"], 8);
    EXPECT_EQ(kinds["send_recv"], 8 * neighbours);
    EXPECT_EQ(kinds["wait"], 8 * neighbours);
    EXPECT_EQ(kinds["all_reduce"], rank == 1 ? 1 : 3);
  }
  EXPECT_EQ(calls.size(), 24u);
  checkMessages(events, 2 * 2 * 4);
  // All ranks use the same clock, so a stage must begin after the previous
  // stage has ended.
  for (int k = 0; k < 4; ++k)
    for (int stage = 0; stage < 2; ++stage) {
      std::string number = std::to_string(k);
      auto at = [&](int stage, const char *what) {
        return calls.at(std::to_string(stage) + what + number);
      };
      EXPECT_LE(at(stage, "F")->end_ns, at(stage + 1, "F")->begin_ns);
      EXPECT_LE(at(stage + 1, "B")->end_ns, at(stage, "B")->begin_ns);
    }
}

// Adds launches of random duration between all commands of the pipeline.
TEST(Pipeline, RandomDelaysNeverHang) {
  PipelineShape shape{4, 2, 8};
  PipelineReference reference(shape);
  Program p = PipelineProgram(shape).p;
  p.kernels = {{"delay", 0}};
  for (Action &action : p.actions) {
    std::vector<Command> commands;
    for (Command &command : action.commands) {
      commands.push_back({Launch{0, {}, 1, 1}, 0, 0});
      commands.push_back(std::move(command));
    }
    action.commands = std::move(commands);
    for (Lifetime &life : action.lifetimes)
      life.first = 2 * life.first + 1, life.last = 2 * life.last + 1;
  }
  ProgramHandle program(p);
  ASSERT_EQ(program.status, CLEAVE_OK) << program.error;
  cleave_program_add_kernel(
      program.get, "delay",
      [](const cleave_ctx *ctx, void *const *, int64_t, int64_t) {
        thread_local std::mt19937 engine(uint32_t(ctx->rank) + 1);
        if (engine() % 16 == 0)
          std::this_thread::sleep_for(
              std::chrono::microseconds(engine() % 1000));
        else if (engine() % 4 == 0)
          std::this_thread::yield();
      });
  SessionHandle session(program.get, 1, 30, true);
  ASSERT_EQ(session.status, CLEAVE_OK) << session.error;
  for (int step = 0; step < 40; ++step) {
    checkPipelineStep(session.get, shape, reference, step == 0);
    if (testing::Test::HasFailure())
      return;
  }
}
} // namespace
