// Runs every pipeline schedule with stages that sleep instead of computing, and
// checks that a step takes the time that the simulation of the schedule,
// replay(), predicts. A run has 20 training steps in one list of actions,
// either without a barrier between steps, or with an all-reduce over all ranks
// after each step, as for the norm of all gradients.
//
// Each schedule runs once, and the median over its steps counts. A busy machine
// wakes stages up late: the trace records how long they slept in this run, and
// the predicted time is scaled accordingly. If stages were woken up late and a
// step still takes longer than predicted, the test is skipped, because the
// result says nothing about the schedule. Otherwise the test fails.

#include "SleepingProgram.h"

#include "cleave/PipelineSchedule/Replay.h"
#include "cleave/PipelineSchedule/VerifyProgram.h"
#include "cleave/program_io.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <gtest/gtest.h>
#include <map>

using namespace cleave;
using namespace cleave::pipeline;
using namespace cleave::test;

namespace {
constexpr double tolerance = 0.05;
// A machine counts as busy if it delays stages by more than this share, on
// average.
constexpr double busy = 0.01;
// Seconds that each of F, I and W takes for a rank's share of one microbatch.
// If a rank has several stages, they divide these seconds.
constexpr double unit = 5e-3;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

// Returns the median time between the ends of adjacent steps.
double stepTime(const std::vector<double> &ends) {
  std::vector<double> lengths;
  for (size_t step = 1; step < ends.size(); ++step)
    lengths.push_back(ends[step] - ends[step - 1]);
  return median(lengths);
}

struct Outcome {
  double asked = 0;   // simulated, with the requested sleeps
  double stretch = 1; // ratio of actual to requested sleep
  double measured = 0;

  double replay() const { return asked * stretch; }
  bool isDisturbed() const { return stretch > 1 + busy; }
};

const char *const disturbed = "SKIPPED: stages that sleep are not woken up in "
                              "time on this machine, now";

struct Shape {
  int ranks = 8, microbatches = 16, steps = 20;
  double unit = ::unit;
  LowerOptions lowering = {};
  bool norm = false; // an all-reduce over all ranks between steps
};

class Schedule {
public:
  explicit Schedule(const std::string &name, const Shape &shape = {})
      : shape(shape) {
    const double unit = shape.unit;
    Result<Table> one = generate({name, shape.ranks, 0, shape.microbatches});
    if (!one) {
      error = one.error();
      return;
    }
    table = repeated(*one, shape.steps);
    Times times = Times::uniform(table.stages, unit / one->chunks(),
                                 unit / one->chunks(), unit / one->chunks());
    // Chimera has as many stages as ranks. Each rank holds two stages, but
    // computes half of the microbatches of each.
    if (name == "chimera")
      times = Times::uniform(table.stages, unit, unit, unit);
    replayAll(times, *one);
    LowerOptions options = shape.lowering;
    options.times = times;
    Result<LoweredTable> lowered = lower(table, options);
    if (!lowered) {
      error = lowered.error();
      return;
    }
    for (const Finding &finding : verify(*lowered, 3))
      error += finding.message + "\n";
    if (error.empty())
      program = sleepingProgram(
          *lowered, error, {.stepOfNorm = shape.norm ? shape.microbatches : 0});
    for (const Finding &finding : verify(program, 3))
      error += finding.message + "\n";
    for (int stage = 0; stage < table.stages; ++stage)
      for (ActionKind kind :
           {ActionKind::F, ActionKind::I, ActionKind::W, ActionKind::B})
        seconds.push_back(times.of({stage, kind, 0}));
  }

  // Runs all steps once; returns an empty string or an error.
  std::string run(bool atRandom = false) {
    std::vector<double> seconds = this->seconds;
    for (double &length : seconds)
      length *= atRandom ? -1 : 1;
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
    options.watchdog_seconds = 60;
    if (check(cleave_program_from_memory(bytes.data(), bytes.size(), nullptr,
                                         &loaded))) {
      addSleepingKernels(loaded);
      if (check(cleave_session_create(loaded, &options, &session))) {
        std::vector<double> ids(table.microbatches * 8);
        for (size_t i = 0; i < ids.size(); ++i)
          ids[i] = double(i / 8);
        double errors = 0;
        check(cleave_session_scatter(session, "times", CLEAVE_F64,
                                     seconds.data(), int64_t(seconds.size())));
        check(cleave_session_scatter(session, "ids", CLEAVE_F64, ids.data(),
                                     int64_t(ids.size())));
        check(cleave_session_trace(session, 1));
        check(cleave_session_run(session, "run"));
        check(cleave_session_gather(session, "errors", CLEAVE_F64, &errors, 1,
                                    nullptr));
        if (errors != 0 && failure.empty())
          failure = std::to_string(errors) + " passes were given a value of "
                                             "another microbatch";
        if (failure.empty())
          readTrace(session);
      }
    }
    cleave_session_free(session);
    cleave_program_free(loaded);
    return failure;
  }

  std::string error;
  Outcome outcome;
  program::Program program;

private:
  int stepOf(int microbatch) const { return microbatch / shape.microbatches; }

  void replayAll(const Times &times, const Table &one) {
    Result<Replay> replayed = replay(shape.norm ? one : table, times);
    if (!replayed) {
      error = replayed.error();
      return;
    }
    if (shape.norm) { // steps do not overlap
      outcome.asked = replayed->makespan;
      return;
    }
    std::vector<double> ends(shape.steps);
    for (size_t rank = 0; rank < table.actions.size(); ++rank)
      for (size_t i = 0; i < table.actions[rank].size(); ++i) {
        double &end = ends[stepOf(table.actions[rank][i].microbatch)];
        end = std::max(end, replayed->spans[rank][i].end);
      }
    outcome.asked = stepTime(ends);
  }

  void readTrace(cleave_session *session) {
    std::vector<double> ends(shape.steps);
    std::vector<cleave_trace_event> events(1024);
    double asked = 0, slept = 0;
    for (int rank = 0; rank < shape.ranks; ++rank)
      for (int64_t count = 1; count > 0;) {
        cleave_session_trace_read(session, rank, events.data(),
                                  int64_t(events.size()), &count);
        for (int64_t i = 0; i < count; ++i) {
          const cleave_trace_event &event = events[i];
          if (std::string_view(event.kind) != "call")
            continue;
          Result<Action> action = parseAction(event.name);
          ASSERT_TRUE(bool(action)) << event.name;
          double &end = ends[stepOf(action->microbatch)];
          end = std::max(end, double(event.end_ns) * 1e-9);
          asked += seconds[4 * action->stage + int(action->kind)];
          slept += double(event.end_ns - event.begin_ns) * 1e-9;
        }
      }
    outcome.measured = stepTime(ends);
    outcome.stretch = slept / asked;
  }

  const Shape shape;
  Table table;
  std::vector<double> seconds;
};

// Returns the result of a schedule, which runs once and is cached for all
// tests.
const Outcome &outcomeOf(const std::string &name, bool norm = false) {
  static std::map<std::string, Outcome> known;
  auto [entry, isNew] =
      known.try_emplace(name + (norm ? " with a norm" : ""), Outcome());
  Outcome &outcome = entry->second;
  if (!isNew)
    return outcome;
  Shape shape;
  shape.norm = norm;
  Schedule schedule(name, shape);
  EXPECT_EQ(schedule.error, "") << name;
  if (!schedule.error.empty())
    return outcome;
  EXPECT_EQ(schedule.run(), "") << name;
  outcome = schedule.outcome;
  std::printf("%-18s step %7.2f ms   replay %7.2f ms, stretched by %4.1f %%: "
              "%7.2f ms   %+.1f %%\n",
              entry->first.c_str(), 1e3 * outcome.measured, 1e3 * outcome.asked,
              100 * (outcome.stretch - 1), 1e3 * outcome.replay(),
              100 * (outcome.measured / outcome.replay() - 1));
  std::fflush(stdout);
  return outcome;
}

// Checks the measured time of a step against the simulation of its schedule. A
// step is not faster than simulated with the requested sleeps, except for small
// deviations of single passes. It is slower than simulated with the actual
// sleeps by at most `tolerance`.
void expectReplayed(const Outcome &outcome) {
  ASSERT_GT(outcome.measured, 0);
  bool isLonger = outcome.measured > outcome.replay() * (1 + tolerance);
  if (isLonger && outcome.isDisturbed())
    GTEST_SKIP() << disturbed;
  EXPECT_GT(outcome.measured, outcome.asked * 0.98);
  EXPECT_LT(outcome.measured, outcome.replay() * (1 + tolerance));
}

class SleepingStages : public testing::TestWithParam<std::string> {};

TEST_P(SleepingStages, TakesTheTimeOfItsReplay) {
  expectReplayed(outcomeOf(GetParam()));
}

// Whatever times the forward and backward passes take, every value arrives at
// the right action and no rank hangs, whether receives start late or early.
TEST_P(SleepingStages, RandomTimesNeverHang) {
  for (int ranks : {2, 4})
    for (int lookahead : {0, 1, 4}) {
      Schedule schedule(GetParam(),
                        {ranks,
                         2 * ranks,
                         20,
                         1e-4,
                         {lookahead, {}, /*spareSends=*/lookahead}});
      ASSERT_EQ(schedule.error, "");
      EXPECT_EQ(schedule.run(/*atRandom=*/true), "")
          << ranks << " ranks, lookahead " << lookahead;
    }
}

// Checks that the previous test can fail: swaps two messages of a channel.
TEST(SleepingStages, SwappedMessagesAreFound) {
  Schedule schedule("gpipe", {2, 4, 2, 1e-4});
  ASSERT_EQ(schedule.error, "");
  EXPECT_EQ(schedule.run(), "");
  std::vector<program::Transfer *> received;
  for (program::Action &action : schedule.program.actions)
    for (program::Command &command : action.commands)
      if (auto *found = std::get_if<program::Collective>(&command.op);
          found && found->positions[1] == 1 && action.rankClass == 1)
        received.push_back(&found->parts[0]);
  ASSERT_EQ(received.size(), 8u);
  std::swap(received[0]->dst, received[1]->dst);
  EXPECT_NE(schedule.run().find("of another microbatch"), std::string::npos);
}

std::vector<std::string> schedules() {
  std::vector<std::string> names = scheduleNames();
  std::erase(names, "custom");
  return names;
}

INSTANTIATE_TEST_SUITE_P(Schedules, SleepingStages,
                         testing::ValuesIn(schedules()), [](const auto &info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

// Checks that the first schedule is faster than the second one, by as much as
// the simulations of both schedules predict.
void expectFaster(const Outcome &fast, const Outcome &slow) {
  ASSERT_GT(fast.measured, 0);
  ASSERT_GT(slow.measured, 0);
  ASSERT_LT(fast.asked, slow.asked);
  // In each of the two runs, the forward and backward passes sleep longer than
  // requested, by the factor `stretch` of the run. Dividing the measured time
  // by this factor makes the two runs comparable.
  double quick = fast.measured / fast.stretch,
         late = slow.measured / slow.stretch;
  double gain = late / quick, said = slow.asked / fast.asked;
  std::printf("faster by %.1f %%, the replay says %.1f %%\n", 100 * (gain - 1),
              100 * (said - 1));
  bool isSo = quick < late && std::abs(gain / said - 1) <= tolerance;
  if (!isSo && (fast.isDisturbed() || slow.isDisturbed()))
    GTEST_SKIP() << disturbed;
  EXPECT_LT(quick, late);
  EXPECT_NEAR(gain / said, 1, tolerance);
}

class ZeroBubble : public testing::TestWithParam<std::string> {};

TEST_P(ZeroBubble, BeatsOneForwardOneBackward) {
  expectFaster(outcomeOf(GetParam()), outcomeOf("1f1b"));
}

// If all ranks wait for each other after each step, because they all-reduce the
// norm of all gradients, then the steps of a zero-bubble schedule do not
// overlap and each step takes longer. (Under zb-h1, steps never overlap.)
TEST_P(ZeroBubble, PaysItsSkewForANorm) {
  const Outcome &joined = outcomeOf(GetParam(), /*norm=*/true);
  expectReplayed(joined);
  if (GetParam() == "zb-h1") // its steps do not overlap in any case
    EXPECT_NEAR(joined.asked, outcomeOf("zb-h1").asked, 1e-9);
  else
    expectFaster(outcomeOf(GetParam()), joined);
}

INSTANTIATE_TEST_SUITE_P(SleepingStages, ZeroBubble,
                         testing::Values("zb-h1", "zb-h2", "zb-v"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });
} // namespace
