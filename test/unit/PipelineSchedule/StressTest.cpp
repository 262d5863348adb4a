// Runs many programs of all schedules with random delays in computation, sends
// and receives. Every value must arrive at the right action, and no rank may
// hang. Nothing is timed except by the watchdog, whose message names the
// position of the waiting rank in its list of actions.

#include "../TriesAll.h"
#include "SleepingProgram.h"

#include "cleave/PipelineSchedule/Verify.h"
#include "cleave/PipelineSchedule/VerifyProgram.h"
#include "cleave/program_io.h"

#include <gtest/gtest.h>
#include <random>

using namespace cleave;
using namespace cleave::pipeline;
using namespace cleave::test;

namespace {
constexpr double delay =
    5e-5; // seconds on average; often zero, up to four times as long

// Runs the program; returns an error or an empty string.
std::string run(const program::Program &program, int stages, int microbatches,
                double watchdog) {
  std::string bytes = program::serialize(program);
  cleave_program *loaded = nullptr;
  cleave_session *session = nullptr;
  std::string failure;
  auto check = [&](cleave_status status) {
    if (status != CLEAVE_OK && failure.empty())
      failure = cleave_last_error();
    return status == CLEAVE_OK;
  };
  cleave_session_options options{};
  options.version = CLEAVE_RUNTIME_VERSION;
  options.threads_per_rank = 1;
  options.watchdog_seconds = watchdog;
  if (check(cleave_program_from_memory(bytes.data(), bytes.size(), nullptr,
                                       &loaded))) {
    addSleepingKernels(loaded);
    if (check(cleave_session_create(loaded, &options, &session))) {
      std::vector<double> times(4 * stages, -delay), ids(8 * microbatches);
      for (size_t i = 0; i < ids.size(); ++i)
        ids[i] = double(i / 8);
      double errors = 0, between = -delay;
      check(cleave_session_scatter(session, "times", CLEAVE_F64, times.data(),
                                   int64_t(times.size())));
      check(cleave_session_scatter(session, "ids", CLEAVE_F64, ids.data(),
                                   int64_t(ids.size())));
      check(cleave_session_scatter(session, "delay", CLEAVE_F64, &between, 1));
      check(cleave_session_run(session, "run"));
      check(cleave_session_gather(session, "errors", CLEAVE_F64, &errors, 1,
                                  nullptr));
      if (errors != 0 && failure.empty())
        failure = std::to_string(errors) +
                  " passes were given a value of another microbatch";
    }
  }
  cleave_session_free(session);
  cleave_program_free(loaded);
  return failure;
}

// Returns the program of a table; an empty program, and a test failure, if the
// table is rejected.
program::Program programOf(const Table &table, const LowerOptions &lowering,
                           int64_t messageBytes) {
  Result<LoweredTable> lowered = lower(table, lowering);
  EXPECT_TRUE(bool(lowered)) << lowered.error();
  if (!lowered)
    return {};
  std::string error;
  program::Program program = sleepingProgram(
      *lowered, error, {.delays = true, .messageBytes = messageBytes});
  for (const Finding &finding : verify(*lowered, 3))
    error += finding.message + "\n";
  for (const Finding &finding : verify(program, 3))
    error += finding.message + "\n";
  EXPECT_EQ(error, "");
  return program;
}

class Stress : public testing::TestWithParam<std::string> {};

TEST_P(Stress, RandomDelaysNeverHang) {
  std::mt19937 engine(std::hash<std::string>()(GetParam()) % 1000);
  auto among = [&](int from, int to) {
    return from + int(engine() % (to - from + 1));
  };
  int programs = 0;
  while (programs < (triesAll() ? 24 : 8)) {
    ScheduleSpec spec{GetParam(), among(2, 6), 0, among(1, 14)};
    if (spec.name == "interleaved" || spec.name == "looped-bfs")
      spec.chunks = among(1, 3);
    Result<Table> one = generate(spec);
    if (!one)
      continue; // a size that the schedule does not support
    LowerOptions lowering;
    lowering.lookahead = among(0, 4);
    lowering.spareSends = among(0, 3);
    // Some messages are small enough to be sent eagerly (before the receiver
    // has asked for them), others are larger.
    int64_t bytes = 64 << among(0, 12);
    int steps = among(1, 4);
    Table table = repeated(*one, steps);
    std::string what = std::to_string(spec.ranks) + " ranks, " +
                       std::to_string(spec.microbatches) + " microbatches, " +
                       std::to_string(steps) + " steps, lookahead " +
                       std::to_string(lowering.lookahead) + ", spare sends " +
                       std::to_string(lowering.spareSends) + ", messages of " +
                       std::to_string(bytes) + " bytes";
    program::Program program = programOf(table, lowering, bytes);
    ASSERT_FALSE(program.actions.empty()) << what;
    EXPECT_EQ(run(program, table.stages, table.microbatches, 60), "") << what;
    if (HasFailure())
      return;
    ++programs;
  }
}

std::vector<std::string> schedules() {
  std::vector<std::string> names = scheduleNames();
  std::erase(names, "custom");
  return names;
}

INSTANTIATE_TEST_SUITE_P(Schedules, Stress, testing::ValuesIn(schedules()),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

// Checks that the previous tests can fail: if one send is missing in a rank's
// list of actions, the run is aborted, and the message names the rank that
// waits, its position in its list, and its peer.
TEST(Stress, AMissingSendIsFound) {
  Result<Table> table = generate({"1f1b", 3, 0, 4});
  ASSERT_TRUE(bool(table));
  program::Program program = programOf(*table, {}, 64);
  for (program::Action &action : program.actions) {
    if (action.rankClass != 1 || action.name != "run")
      continue;
    int32_t token = -1;
    std::erase_if(action.commands, [&](const program::Command &command) {
      if (auto *message = std::get_if<program::Collective>(&command.op);
          message && program.strings[command.source] == "1SEND_F2") {
        token = message->token;
        return true;
      }
      auto *wait = std::get_if<program::Wait>(&command.op);
      return wait && token >= 0 && wait->token == token;
    });
    ASSERT_GE(token, 0);
  }
  std::string failure = run(program, table->stages, table->microbatches, 1);
  EXPECT_NE(failure.find("timed out"), std::string::npos) << failure;
  EXPECT_NE(failure.find("WAIT_"), std::string::npos) << failure;
  EXPECT_NE(failure.find("missing ranks"), std::string::npos) << failure;
}
} // namespace
