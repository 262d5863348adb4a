// Every schedule runs for real, with stages that sleep, and takes the time that
// its replay says: 20 steps in one list, without a barrier between them.
//
// What disturbs a run only makes it longer, so the best of a few attempts
// counts, and of each the median over its steps. A machine on which sleeping
// threads are not woken up in time cannot tell: that is measured and said.

#include "SleepingProgram.h"

#include "cleave/Pipeline/Replay.h"
#include "cleave/Pipeline/Verify.h"
#include "cleave/program_io.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <thread>

using namespace cleave;
using namespace cleave::pipeline;
using namespace cleave::test;

namespace {
constexpr int attempts = 4;
constexpr double tolerance = 0.05;
// Of a rank's share of one microbatch: F, I, W; a rank of several stages
// divides it among them.
constexpr double unit = 5e-3;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

// From the end of a step to the end of the next, the median over the steps.
double stepTime(const std::vector<double> &ends) {
  std::vector<double> lengths;
  for (size_t step = 1; step < ends.size(); ++step)
    lengths.push_back(ends[step] - ends[step - 1]);
  return median(lengths);
}

struct Outcome {
  double replay = 0, measured = 0;
};

struct Shape {
  int ranks = 8, microbatches = 16, steps = 20;
  double unit = ::unit;
  LowerOptions lowering = {};
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
    // Chimera has as many stages as ranks. Each rank holds two of them, but
    // does half of the microbatches of each.
    if (name == "chimera")
      times = Times::uniform(table.stages, unit, unit, unit);
    replayAll(times);
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
      program = sleepingProgram(*lowered, error);
    for (int stage = 0; stage < table.stages; ++stage)
      for (ActionKind kind :
           {ActionKind::F, ActionKind::I, ActionKind::W, ActionKind::B})
        seconds.push_back(times.of({stage, kind, 0}));
  }

  // Runs all steps once; empty, or what went wrong.
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

  void replayAll(const Times &times) {
    Result<Replay> replayed = replay(table, times);
    if (!replayed) {
      error = replayed.error();
      return;
    }
    std::vector<double> ends(shape.steps);
    for (size_t rank = 0; rank < table.actions.size(); ++rank)
      for (size_t i = 0; i < table.actions[rank].size(); ++i) {
        double &end = ends[stepOf(table.actions[rank][i].microbatch)];
        end = std::max(end, replayed->spans[rank][i].end);
      }
    outcome.replay = stepTime(ends);
  }

  void readTrace(cleave_session *session) {
    std::vector<double> ends(shape.steps);
    std::vector<cleave_trace_event> events(1024);
    for (int rank = 0; rank < shape.ranks; ++rank)
      for (int64_t count = 1; count > 0;) {
        cleave_session_trace_read(session, rank, events.data(),
                                  int64_t(events.size()), &count);
        for (int64_t i = 0; i < count; ++i) {
          if (std::string_view(events[i].kind) != "call")
            continue;
          Result<Action> action = parseAction(events[i].name);
          ASSERT_TRUE(bool(action)) << events[i].name;
          double &end = ends[stepOf(action->microbatch)];
          end = std::max(end, double(events[i].end_ns) * 1e-9);
        }
      }
    double found = stepTime(ends);
    if (outcome.measured == 0 || found < outcome.measured)
      outcome.measured = found;
  }

  const Shape shape;
  Table table;
  std::vector<double> seconds;
};

// By how much a thread that sleeps and then wakes another one up is late, as a
// part of what it sleeps: as many of them as there are ranks, in a ring.
double lateness() {
  const int ranks = Shape().ranks;
  std::mutex mutex;
  std::condition_variable changed;
  const int rounds = 8 * ranks;
  int turn = 0;
  std::vector<double> lengths;
  auto last = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int own = 0; own < ranks; ++own)
    threads.emplace_back([&, own] {
      for (int at = own; at < rounds; at += ranks) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return turn == at; });
        lock.unlock();
        sleepFor(unit);
        lock.lock();
        auto now = std::chrono::steady_clock::now();
        lengths.push_back(std::chrono::duration<double>(now - last).count());
        last = now;
        ++turn;
        changed.notify_all();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return median(lengths) / unit - 1;
}

std::map<std::string, Outcome> &outcomes() {
  static std::map<std::string, Outcome> all;
  return all;
}

// The outcome of a schedule, run once whichever test asks first.
const Outcome &outcomeOf(const std::string &name) {
  if (auto found = outcomes().find(name); found != outcomes().end())
    return found->second;
  Outcome &outcome = outcomes()[name];
  Schedule schedule(name);
  EXPECT_EQ(schedule.error, "") << name;
  if (!schedule.error.empty())
    return outcome;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    std::string failure = schedule.run();
    EXPECT_EQ(failure, "") << name;
    outcome = schedule.outcome;
    if (!failure.empty() ||
        outcome.measured <= outcome.replay * (1 + tolerance))
      break;
  }
  std::printf("%-16s replay %8.2f ms   measured %8.2f ms   %+.1f %%\n",
              name.c_str(), 1e3 * outcome.replay, 1e3 * outcome.measured,
              100 * (outcome.measured / outcome.replay - 1));
  std::fflush(stdout);
  return outcome;
}

// Whether this machine, now, can tell at all.
bool isPunctual() {
  double late = lateness();
  std::printf("waking up is late by %.1f %% of %g ms\n", 100 * late,
              1e3 * unit);
  return late < tolerance / 2;
}

class SleepingStages : public testing::TestWithParam<std::string> {};

TEST_P(SleepingStages, TakesTheTimeOfItsReplay) {
  const Outcome &outcome = outcomeOf(GetParam());
  ASSERT_GT(outcome.measured, 0);
  // Nothing is faster than its replay; single passes may be, a little.
  EXPECT_GT(outcome.measured, outcome.replay * 0.98);
  if (outcome.measured > outcome.replay * (1 + tolerance) && !isPunctual())
    GTEST_SKIP() << "SKIPPED: threads that sleep are not woken up in time on "
                    "this machine, now: nothing can be said of schedules";
  EXPECT_LT(outcome.measured, outcome.replay * (1 + tolerance));
}

// Whatever its passes take, every value arrives where it belongs, and nobody
// waits for ever, with receives started late and early.
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

// The test above can fail: two messages of a channel change places.
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

// By as much as the replays say.
TEST(SleepingStages, ZeroBubbleSchedulesBeatOneForwardOneBackward) {
  const Outcome plain = outcomeOf("1f1b");
  ASSERT_GT(plain.measured, 0);
  for (const char *name : {"zb-h1", "zb-h2", "zb-v"}) {
    const Outcome &outcome = outcomeOf(name);
    ASSERT_GT(outcome.measured, 0);
    ASSERT_LT(outcome.replay, plain.replay) << name;
    double gain = plain.measured / outcome.measured,
           said = plain.replay / outcome.replay;
    std::printf("%s is faster than 1f1b by %.1f %%, the replay says %.1f %%\n",
                name, 100 * (gain - 1), 100 * (said - 1));
    if ((outcome.measured >= plain.measured ||
         std::abs(gain / said - 1) > tolerance) &&
        !isPunctual())
      GTEST_SKIP() << "SKIPPED: threads that sleep are not woken up in time on "
                      "this machine, now";
    EXPECT_LT(outcome.measured, plain.measured) << name;
    EXPECT_NEAR(gain / said, 1, tolerance) << name;
  }
}
} // namespace
