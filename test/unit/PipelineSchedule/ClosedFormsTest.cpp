// Tests the generated pipeline schedules and their simulation, replay(). Each
// row of test/schedules.csv has a formula, for example for the bubble time of a
// schedule, and the condition under which it holds. If the condition holds, the
// simulated quantity must equal the formula. In all cases, a second simulation
// in this file must give the same times, the verifier must accept the schedule
// after lower() has added the transfers between stages, and transfers that take
// no time must not delay the schedule.

#include "Expression.h"

#include "cleave/PipelineSchedule/Verify.h"

#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace cleave::pipeline;

namespace {

struct Row {
  std::string quantity, condition, formula;
  int used = 0;
};

std::map<std::string, std::vector<Row>> readRows() {
  std::ifstream file(CLEAVE_TEST_SCHEDULES);
  EXPECT_TRUE(bool(file));
  std::map<std::string, std::vector<Row>> rows;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#' || line.rfind("schedule,", 0) == 0)
      continue;
    std::stringstream cells(line);
    std::string name;
    Row row;
    std::getline(cells, name, ',');
    std::getline(cells, row.quantity, ',');
    std::getline(cells, row.condition, ',');
    std::getline(cells, row.formula, ',');
    rows[name].push_back(row);
  }
  return rows;
}

// A second simulation of a schedule, by recursion over the actions on which an
// action depends. If `pairs` is true, a forward pass (F) directly before its
// backward pass (B) is executed together with it as one action, which gives
// both results at its end.
class Oracle {
public:
  Oracle(const Table &table, const Times &times, bool pairs = false)
      : table(table), times(times),
        where(3, std::vector<Spot>(size_t(table.stages) * table.microbatches)) {
    for (int rank = 0; rank < table.ranks; ++rank) {
      const std::vector<Action> &list = table.actions[rank];
      for (size_t i = 0; i < list.size(); ++i)
        for (int pass = 0; pass < 3; ++pass)
          if (passOf(list[i].kind) == pass ||
              (pass == 2 && list[i].kind == ActionKind::B))
            where[pass][at(list[i].stage, list[i].microbatch)] = {rank, i};
      ends.emplace_back(list.size(), -1);
      paired.emplace_back(list.size(), false);
      for (size_t i = 0; pairs && i + 1 < list.size(); ++i)
        paired[rank][i] =
            list[i].kind == ActionKind::F && list[i + 1].kind == ActionKind::B;
    }
  }

  double makespan() {
    double latest = 0;
    for (int rank = 0; rank < table.ranks; ++rank)
      latest = std::max(latest, end({rank, table.actions[rank].size() - 1}));
    return latest;
  }

  double bubble() {
    double most = 0, whole = makespan();
    for (int rank = 0; rank < table.ranks; ++rank) {
      double busy = 0;
      for (const Action &action : table.actions[rank])
        busy += times.of(action);
      most = std::max(most, whole - busy);
    }
    return most;
  }

private:
  struct Spot {
    int rank = -1;
    size_t index = 0;
  };
  static int passOf(ActionKind kind) {
    return kind == ActionKind::F ? 0 : kind == ActionKind::W ? 2 : 1;
  }
  size_t at(int stage, int m) const {
    return size_t(stage) * table.microbatches + m;
  }

  // Returns the time at which the last input of the action at `spot` arrives,
  // transfers between ranks included.
  double inputs(Spot spot) {
    auto [stage, kind, m] = table.actions[spot.rank][spot.index];
    double latest = 0;
    auto read = [&](int pass, int s) {
      Spot from = where[pass][at(s, m)];
      latest = std::max(
          latest, end(from) + (from.rank == spot.rank ? 0 : times.transfer));
    };
    if (kind == ActionKind::F && stage > 0)
      read(0, stage - 1);
    if (kind == ActionKind::I || kind == ActionKind::B) {
      read(0, stage);
      if (stage + 1 < table.stages)
        read(1, stage + 1);
    }
    if (kind == ActionKind::W)
      read(1, stage);
    return latest;
  }

  double end(Spot spot) {
    double &known = ends[spot.rank][spot.index];
    if (known >= 0)
      return known;
    size_t first = spot.index, last = spot.index;
    if (first > 0 && paired[spot.rank][first - 1])
      --first;
    if (paired[spot.rank][last])
      ++last;
    double start = first ? end({spot.rank, first - 1}) : 0, length = 0;
    for (size_t i = first; i <= last; ++i) {
      start = std::max(start, inputs({spot.rank, i}));
      length += times.of(table.actions[spot.rank][i]);
    }
    for (size_t i = first; i <= last; ++i)
      ends[spot.rank][i] = start + length;
    return known;
  }

  const Table &table;
  const Times &times;
  std::vector<std::vector<Spot>> where; // by pass
  std::vector<std::vector<double>> ends;
  std::vector<std::vector<bool>> paired;
};

// Simulates a schedule with transfers, each of which completes as late as
// possible: it begins when the sender and the receiver have started it, and the
// sender's Wait ends only when the receiver has reached its own Wait. Returns
// the total time, or -1 if the ranks deadlock.
double loweredMakespan(const LoweredTable &table, const Times &times) {
  std::map<std::pair<Action, bool>, double> reached; // transfer, at its wait
  std::vector<size_t> next(table.ranks, 0);
  std::vector<double> now(table.ranks, 0);
  auto otherSide = [](const Action &action) {
    bool forward =
        action.kind == ActionKind::SendF || action.kind == ActionKind::RecvF;
    ActionKind kind = isSend(action.kind)
                          ? (forward ? ActionKind::RecvF : ActionKind::RecvB)
                          : (forward ? ActionKind::SendF : ActionKind::SendB);
    return Action{action.stage + (forward == isSend(action.kind) ? 1 : -1),
                  kind, action.microbatch};
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < table.ranks; ++rank)
      for (; next[rank] < table.actions[rank].size();
           ++next[rank], moved = true) {
        const LoweredAction &item = table.actions[rank][next[rank]];
        bool wait = item.phase == Phase::Wait;
        if (isTransfer(item.action.kind)) {
          reached.try_emplace({item.action, wait}, now[rank]);
          if (!wait)
            continue;
          Action other = otherSide(item.action);
          auto begun = reached.find({other, false}),
               met = reached.find({other, true});
          bool sends = isSend(item.action.kind);
          if (begun == reached.end() || (sends && met == reached.end()))
            break;
          double start =
              std::max(begun->second, reached.at({item.action, false}));
          now[rank] = std::max(
              {now[rank], start + times.transfer, sends ? met->second : 0.0});
          continue;
        }
        now[rank] += times.of(item.action);
      }
  }
  for (int rank = 0; rank < table.ranks; ++rank)
    if (next[rank] < table.actions[rank].size())
      return -1;
  return *std::max_element(now.begin(), now.end());
}

const double stageTimes[][3] = {{1, 1, 1}, {2, 2, 1}, {1, 2, 1}, {3, 2, 2},
                                {2, 2, 3}, {4, 2, 2}, {2, 1, 1}};

class ClosedForms : public testing::TestWithParam<std::string> {
protected:
  void check(const ScheduleSpec &spec, std::vector<Row> &rows) {
    Result<Table> generated = generate(spec);
    if (!generated) {
      ++refused;
      return;
    }
    const Table &table = *generated;
    SCOPED_TRACE(spec.name + " p=" + std::to_string(spec.ranks) +
                 " chunks=" + std::to_string(spec.chunks) +
                 " m=" + std::to_string(spec.microbatches));
    // The generated schedule satisfies the rules for schedules that are read
    // from files.
    Result<Table> read = readTableText(writeTable(table), "t.csv");
    ASSERT_TRUE(bool(read)) << read.error();
    ASSERT_EQ(read->stagesOfRank, table.stagesOfRank);
    // With few ranks, all entries of stageTimes are tried. With many ranks,
    // only the first entry (equal times) and a third of the others are tried.
    for (size_t k = 0; k < std::size(stageTimes); ++k)
      if (spec.ranks <= 6 || k == 0 ||
          (k + spec.ranks + spec.microbatches) % 3 == 0) {
        const auto &[f, i, w] = stageTimes[k];
        checkTimes(spec, table, Times::uniform(table.stages, f, i, w), rows);
      }
    // The stage times used for checking transfers vary from schedule to
    // schedule.
    const auto &[f, i, w] =
        stageTimes[(spec.ranks + spec.microbatches) % std::size(stageTimes)];
    checkLowered(table, Times::uniform(table.stages, f, i, w));
  }

  void checkTimes(const ScheduleSpec &spec, const Table &table,
                  const Times &times, std::vector<Row> &rows) {
    Result<Replay> replayed = replay(table, times);
    ASSERT_TRUE(bool(replayed)) << replayed.error();
    const Replay &r = *replayed;
    Oracle oracle(table, times);
    ASSERT_NEAR(r.makespan, oracle.makespan(), 1e-9);
    ASSERT_NEAR(r.bubble, oracle.bubble(), 1e-9);

    const StageTimes &t = times.stage[0];
    std::map<char, double> variables = {{'p', spec.ranks},
                                        {'v', table.stages / spec.ranks},
                                        {'m', spec.microbatches},
                                        {'F', t.f},
                                        {'I', t.i},
                                        {'W', t.w},
                                        {'B', t.backward()},
                                        {'d', 0}};
    for (Row &row : rows) {
      if (test::evaluate(row.condition, variables) == 0)
        continue;
      ++row.used;
      for (int d = 0; d < table.ranks; ++d) {
        variables['d'] = d;
        double formula = test::evaluate(row.formula, variables);
        if (row.quantity == "not_slower")
          checkSpeed(spec, table, t, r);
        else
          ASSERT_NEAR(measured(row.quantity, table, times, r, d), formula, 1e-9)
              << row.quantity << " of rank " << d << " at " << t.f << ", "
              << t.i << ", " << t.w << " should be " << row.formula;
        if (row.quantity.rfind("peak", 0) != 0)
          break; // equal for all ranks
      }
    }
  }

  double measured(const std::string &quantity, const Table &table,
                  const Times &times, const Replay &r, int d) {
    if (quantity == "bubble")
      return r.bubble;
    if (quantity == "span_bubble")
      return r.spanBubble;
    if (quantity == "pair_bubble")
      return Oracle(table, times, /*pairs=*/true).bubble();
    if (quantity == "step")
      return *stepWithoutBarrier(table, times);
    if (quantity == "norm")
      return r.makespan - *stepWithoutBarrier(table, times);
    if (quantity == "fraction")
      return r.bubbleFraction;
    if (quantity == "of_ideal")
      return r.bubbleOfIdeal;
    if (quantity == "peak")
      return r.rank[d].peak;
    if (quantity == "peak_b")
      return r.rank[d].peakB;
    if (quantity == "peak_w")
      return r.rank[d].peakW;
    auto [least, most] =
        std::minmax_element(r.rank.begin(), r.rank.end(),
                            [](const RankReplay &a, const RankReplay &b) {
                              return a.peak < b.peak;
                            });
    if (quantity == "max_peak")
      return most->peak;
    if (quantity == "min_peak")
      return least->peak;
    ADD_FAILURE() << "unknown quantity " << quantity;
    return -1;
  }

  void checkSpeed(const ScheduleSpec &spec, const Table &table,
                  const StageTimes &t, const Replay &r) {
    int v = table.stages / spec.ranks;
    Table plain = *generate({"1f1b", spec.ranks, 0, spec.microbatches});
    Replay reference =
        *replay(plain, Times::uniform(spec.ranks, v * t.f, v * t.i, v * t.w));
    ASSERT_LE(r.makespan, reference.makespan + 1e-9)
        << "slower than 1F1B at " << t.f << ", " << t.i << ", " << t.w;
  }

  // Checks that transfers that take no time do not make any rank wait.
  void checkLowered(const Table &table, const Times &times) {
    if (table.stages * table.microbatches > 1200)
      return; // to save time
    Replay r = *replay(table, times);
    // lower() starts a receive one compute action before the action that reads
    // its message. replay() simulates no receives: it assumes that a transfer
    // overlaps with any computation. If a transfer is shorter than an action,
    // both simulations give the same time.
    Times slow = times;
    slow.transfer = 0.5;
    LowerOptions options;
    options.times = slow;
    ASSERT_NEAR(loweredMakespan(*lower(table, options), slow),
                replay(table, slow)->makespan, 1e-9);
    options.times = times;
    options.spareSends = 0;
    LoweredTable lowered = *lower(table, options);
    ASSERT_NEAR(loweredMakespan(lowered, times), r.makespan, 1e-9);
    std::vector<Finding> findings = verify(lowered);
    ASSERT_TRUE(findings.empty()) << findings[0].message;
    // Activations of microbatches in flight are stored in slots. A rank needs
    // at least as many slots as replay() counts activations held at once, and
    // exactly as many if it has one stage.
    std::vector<ValueClass> classes;
    for (int stage = 0; stage < table.stages; ++stage)
      classes.push_back({stage, {{ActionKind::F}}, {{ActionKind::W}}});
    std::vector<int> slots(table.ranks, 0);
    std::vector<SlotPlan> plans = *assignSlots(lowered, classes);
    for (const SlotPlan &plan : plans)
      slots[plan.rank] += plan.count;
    for (int rank = 0; rank < table.ranks; ++rank) {
      ASSERT_GE(slots[rank], r.rank[rank].peak);
      if (table.stagesOfRank[rank].size() == 1) {
        ASSERT_EQ(slots[rank], r.rank[rank].peak);
      }
    }
  }

  int refused = 0;
};

TEST_P(ClosedForms, HoldWithinTheirConditions) {
  std::map<std::string, std::vector<Row>> all = readRows();
  std::vector<Row> &rows = all[GetParam()];
  ASSERT_FALSE(rows.empty());
  bool free = GetParam() == "interleaved" || GetParam() == "looped-bfs";
  for (int p = 2; p <= 16; ++p)
    for (int chunks = free ? 1 : 0; chunks <= (free ? 4 : 0); ++chunks)
      for (int m : {1,  2,  3,  4,  5,  6,  7,  8,  9,  11,
                    12, 15, 16, 20, 24, 31, 32, 48, 63, 64}) {
        check({GetParam(), p, chunks, m}, rows);
        if (HasFatalFailure())
          return;
      }
  for (const Row &row : rows)
    EXPECT_GT(row.used, 0) << row.quantity << " is never checked";
  if (GetParam() != "chimera" && GetParam() != "dualpipe-v") {
    EXPECT_EQ(refused, 0);
  }
}

std::vector<std::string> generated() {
  std::vector<std::string> names = scheduleNames();
  names.pop_back(); // custom
  return names;
}

INSTANTIATE_TEST_SUITE_P(Schedules, ClosedForms, testing::ValuesIn(generated()),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

} // namespace

TEST(ClosedForms, RowsAreOfKnownSchedules) {
  std::vector<std::string> names = generated();
  std::map<std::string, std::vector<Row>> rows = readRows();
  EXPECT_EQ(rows.size(), names.size());
  for (const std::string &name : names)
    EXPECT_TRUE(rows.count(name)) << name;
}
