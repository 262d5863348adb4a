// Tests pipeline schedules that are generated or read from files, and that
// invalid schedule files are rejected.

#include "cleave/PipelineSchedule/Replay.h"
#include "cleave/PipelineSchedule/Verify.h"

#include <gtest/gtest.h>
#include <random>
#include <set>

using namespace cleave::pipeline;

namespace {
std::string readError(std::string_view text) {
  Result<Table> table = readTableText(text, "t.csv");
  return table ? "read" : table.error();
}

std::string generateError(const ScheduleSpec &spec) {
  Result<Table> table = generate(spec);
  return table ? "generated" : table.error();
}
} // namespace

TEST(Table, OneForwardOneBackward) {
  Table table = *generate({"1f1b", 2, 0, 3});
  EXPECT_EQ(writeTable(table), "0F0,0F1,0B0,0F2,0B1,0B2\n"
                               "1F0,1B0,1F1,1B1,1F2,1B2\n");
}

TEST(Table, FilesReadBack) {
  Table table = *generate({"gpipe", 3, 0, 4});
  Table read = *readTableText(writeTable(table), "t.csv");
  EXPECT_EQ(read.actions, table.actions);
  EXPECT_EQ(read.stagesOfRank, table.stagesOfRank);
  EXPECT_EQ(read.ranks, 3);
  EXPECT_EQ(read.stages, 3);
  EXPECT_EQ(read.microbatches, 4);
  // Empty cells mean idle time. They do not affect the order of actions.
  EXPECT_EQ(readTableText("0F0,,0B0\r\n,1F0,1B0,\r\n", "t.csv")->actions,
            generate({"gpipe", 2, 0, 1})->actions);
}

TEST(Table, BlankLinesAtTheEndAndByteOrderMark) {
  for (const char *text :
       {"0F0,0B0\r\n1F0,1B0\r\n\r\n", "0F0,0B0\n1F0,1B0\n   ",
        "0F0,0B0\n1F0,1B0 \t\r\n \n\n",
        "\xEF\xBB\xBF"
        "0F0,0B0\n1F0,1B0"}) {
    Result<Table> table = readTableText(text, "t.csv");
    ASSERT_TRUE(bool(table)) << table.error();
    EXPECT_EQ(table->actions, generate({"gpipe", 2, 0, 1})->actions) << text;
  }
  EXPECT_EQ(readError("0F0,0B0\n  \n1F0,1B0\n"),
            "t.csv: row 2 has no action; expected a row for each "
            "rank of the pipeline");
  EXPECT_EQ(readError("0F0,0B0\n1F0,1B0\n,\n"),
            "t.csv: row 3 has no action; expected a row for each "
            "rank of the pipeline");
  EXPECT_EQ(readError(" \r\n \n"), readError(""));
}

// A rank that only gathers the parameters of a stage does not hold the stage.
TEST(Table, RanksThatComputeNothing) {
  EXPECT_EQ(readError("0F0,0B0\n1F0,1B0\n0UNSHARD\n"),
            "t.csv: row 3 computes nothing; expected a row for each "
            "rank of the pipeline");
  EXPECT_EQ(readError("0F0,0B0,1UNSHARD\n1F0,1B0\n"),
            "t.csv: row 1: 1UNSHARD is of stage 1, which the row does not run");
  LoweredTable lowered = *readLoweredText("0F0,0B0\n0UNSHARD\n", "t.csv");
  EXPECT_EQ(lowered.stagesOfRank, (std::vector<std::vector<int>>{{0}, {}}));
}

TEST(Table, FilesAreRefused) {
  EXPECT_EQ(readError("0F0,0X0\n"),
            "t.csv: row 1, cell 2: '0X0' is no action: stage 0: "
            "unknown kind 'X'; known are F, I, W, B, SEND_F, "
            "RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, "
            "REDUCE_GRAD");
  EXPECT_EQ(readError("0F0,0B0\n1F0\n"),
            "t.csv: stage 1: 1I0 is missing; a forward pass "
            "needs I and W, or B");
  EXPECT_EQ(readError("0F0,0B0,0F1,0B1\n1F0,1B0\n"),
            "t.csv: stage 1: 1F1 is missing; every stage runs every microbatch "
            "of 0 to 1");
  EXPECT_EQ(readError("0F0,0B0,0F0\n"),
            "t.csv: stage 0: 0F0 appears twice, on rank 0 and "
            "on rank 0; every action runs once");
  EXPECT_EQ(readError("0F0,0B0,0W0\n"),
            "t.csv: stage 0: 0W0 repeats part of 0B0, which is I and W");
  EXPECT_EQ(readError("0F0,1F0\n1B0,0B0\n"),
            "t.csv: stage 0: 0B0 is on rank 1, but 0F0 on rank 0; activations "
            "stay where "
            "they are");
  EXPECT_EQ(readError("0F0,2F0,0B0,2B0\n"),
            "t.csv: stage 1 runs nowhere; expected F of stages 0 to 2, without "
            "a gap");
  EXPECT_EQ(readError("0F0,0SEND_F0\n"),
            "t.csv: row 1, cell 2: 0SEND_F0 is a transfer; the table of a "
            "schedule has "
            "none, they follow from the placement of the stages");
  EXPECT_EQ(readError(""),
            "t.csv: the table has no action; expected a row per rank with "
            "cells like 0F0,0B0");
  EXPECT_EQ(readError("0F0,0B0\n\n1F0,1B0\n"),
            "t.csv: row 2 has no action; expected a row for each "
            "rank of the pipeline");
  EXPECT_EQ(readError("0F0,0B0\n1F0,1B0,0REDUCE_GRAD\n"),
            "t.csv: row 2: 0REDUCE_GRAD is of stage 0, which the row does not "
            "run");
}

TEST(Table, GeneratorsAreRefused) {
  EXPECT_EQ(generateError({"1f1b", 2, 2, 4}),
            "schedule 1f1b: it has 1 stage per rank, but chunks is 2; leave "
            "chunks at 0, "
            "or take interleaved or looped-bfs, where it is free");
  EXPECT_EQ(generateError({"chimera", 3, 0, 4}),
            "schedule chimera: it needs an even number of ranks and at least 2 "
            "microbatches, as half of them go up the pipeline; there are 3 "
            "ranks and 4 "
            "microbatches");
  EXPECT_EQ(generateError({"dualpipe-v", 4, 0, 7}),
            "schedule dualpipe-v: it needs at least as many microbatches as "
            "stages; there "
            "are 7 microbatches and 8 stages");
  EXPECT_EQ(generateError({"custom", 4, 0, 7}),
            "schedule custom: it is read from a table, not generated");
  EXPECT_EQ(generateError({"interleaved", 4, -1, 7}),
            "schedule interleaved: chunks is -1; expected a number of stages "
            "per rank, or "
            "0 for what the schedule needs");
  EXPECT_EQ(generateError({"1f1b", 2, 0, 0}),
            "schedule 1f1b: microbatches is 0; expected 1 to 65536");
  EXPECT_NE(generateError({"1f2b", 2, 0, 1}).find("did you mean '1f1b'"),
            std::string::npos);
}

// Any text is either read or rejected; no text crashes the reader.
TEST(Table, AnyTextIsReadOrRefused) {
  std::mt19937 random(5);
  auto below = [&](int bound) {
    return std::uniform_int_distribution<int>(0, bound - 1)(random);
  };
  const std::string letters = "0123456789FIWBSENDRCV_UHAGT,;()\n\r \t-\x80";
  int read = 0, refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::vector<std::string> names = scheduleNames();
    Table table = *generate({names[below(4)], 2, 0, 1 + below(3)});
    std::string text =
        below(2) ? writeTable(table) : writeLowered(*lower(table));
    for (int n = below(4); n > 0; --n) {
      int place = below(text.size());
      if (below(3) == 0)
        text.erase(place, 1 + below(6));
      else if (below(2))
        text[place] = letters[below(letters.size())];
      else
        text.insert(place, 1, letters[below(letters.size())]);
    }
    if (Result<Table> result = readTableText(text, "t.csv")) {
      ++read;
      EXPECT_EQ(readTableText(writeTable(*result), "t.csv")->actions,
                result->actions);
      if (Result<LoweredTable> lowered = lower(*result)) {
        std::vector<Finding> findings = verify(*lowered);
        EXPECT_TRUE(findings.empty() || findings[0].rule == "reduction" ||
                    findings[0].rule == "shard")
            << text;
      }
    } else {
      ++refused;
      EXPECT_NE(result.error(), "");
    }
    if (Result<LoweredTable> result = readLoweredText(text, "t.csv"))
      verify(*result);
  }
  EXPECT_GT(read, 300);
  EXPECT_GT(refused, 1000);
  EXPECT_EQ(readError("0F0,0B0,0F1048575,0B1048575\n"),
            "t.csv: microbatch 1048575 is in a table of 4 actions; "
            "microbatches are "
            "numbered from 0 without a gap");
  EXPECT_EQ(readError("0F0,0B0,0F3,0B3\n1F0,1B0\n"),
            "t.csv: stage 0: 0F1 is missing; every stage runs every microbatch "
            "of 0 to 3");
}

TEST(Table, ShardActions) {
  ShardActions zero3;
  zero3.unshard = true;
  zero3.gathered = 1;
  Table table = *withShardActions(*generate({"looped-bfs", 2, 2, 1}), zero3);
  EXPECT_EQ(writeTable(table), "0UNSHARD,0F0,0RESHARD,2UNSHARD,2F0,2B0,"
                               "2RESHARD,2REDUCE_GRAD,0UNSHARD,0B0,"
                               "0RESHARD,0REDUCE_GRAD\n"
                               "1UNSHARD,1F0,1RESHARD,3UNSHARD,3F0,3B0,"
                               "3RESHARD,3REDUCE_GRAD,1UNSHARD,1B0,"
                               "1RESHARD,1REDUCE_GRAD\n");
  // UNSHARD, RESHARD and REDUCE_GRAD take no time and do not block transfers.
  EXPECT_TRUE(verify(*lower(table)).empty());
  EXPECT_EQ(replay(table)->makespan,
            replay(*generate({"looped-bfs", 2, 2, 1}))->makespan);
  zero3.gathered = 0;
  EXPECT_EQ(writeTable(*withShardActions(*generate({"gpipe", 1, 0, 2}), zero3)),
            "0UNSHARD,0F0,0F1,0B0,0B1,0RESHARD,0REDUCE_GRAD\n");
  // W reads gathered parameters as well.
  EXPECT_EQ(writeTable(*withShardActions(*generate({"zb-h1", 1, 0, 2}), zero3)),
            "0UNSHARD,0F0,0I0,0W0,0F1,0I1,0W1,0RESHARD,0REDUCE_GRAD\n");
  // The two ranks of a stage reduce its gradients in the same order.
  EXPECT_EQ(writeTable(*withShardActions(*generate({"chimera", 2, 0, 2}), {})),
            "0F0,1F1,1B1,0B0,0REDUCE_GRAD,1REDUCE_GRAD\n"
            "0F1,1F0,1B0,0B1,0REDUCE_GRAD,1REDUCE_GRAD\n");
  ShardActions zero2;
  zero2.reducePerMicrobatch = true;
  EXPECT_EQ(writeTable(*withShardActions(*generate({"zb-h1", 1, 0, 2}), zero2)),
            "0F0,0I0,0W0,0REDUCE_GRAD0,0F1,0I1,0W1,0REDUCE_GRAD1\n");
  EXPECT_FALSE(bool(withShardActions(table, {})));
}

TEST(Table, ShardActionsOfSomeStages) {
  // Only the first stage gathers parameters, and its W reads the gathered
  // parameters. Only the second stage reduces gradients.
  ShardActions some;
  some.unshard = true;
  some.stages = {{/*reduce=*/false, /*unshard=*/true, /*weightsRead=*/true},
                 {/*reduce=*/true, /*unshard=*/false, /*weightsRead=*/false}};
  EXPECT_EQ(writeTable(*withShardActions(*generate({"zb-h1", 2, 0, 2}), some)),
            "0UNSHARD,0F0,0F1,0I0,0W0,0I1,0W1,0RESHARD\n"
            "1F0,1I0,1F1,1I1,1W0,1W1,1REDUCE_GRAD\n");
  some.stages[0].weightsRead = false;
  EXPECT_NE(writeTable(*withShardActions(*generate({"zb-h1", 2, 0, 2}), some))
                .find("0I1,0RESHARD,0W1"),
            std::string::npos);
}

// withShardActions() adds the collectives of data parallelism to a schedule: it
// gathers and frees parameters and reduces gradients. In the simulation this
// delays no schedule, even if a rank frees gathered parameters early to keep
// those of only one or two stages at once.
TEST(Table, ShardActionsStandNowhereInTheWay) {
  for (const std::string &name : scheduleNames())
    for (int gathered : {0, 1, 2}) {
      if (name == "custom")
        continue;
      Table plain = *generate({name, 4, 0, 9});
      ShardActions zero3;
      zero3.unshard = true;
      zero3.gathered = gathered;
      Table table = *withShardActions(plain, zero3);
      LoweredTable lowered = *lower(table);
      std::vector<Finding> findings = verify(lowered);
      EXPECT_TRUE(findings.empty()) << name << ": " << findings[0].message;
      EXPECT_EQ(replay(table)->makespan, replay(plain)->makespan) << name;
      for (int rank = 0; rank < 4; ++rank) {
        std::set<int> held, reduced;
        for (const Action &action : table.actions[rank]) {
          if (action.kind == ActionKind::Unshard)
            held.insert(action.stage);
          if (action.kind == ActionKind::Reshard)
            held.erase(action.stage);
          if (action.kind == ActionKind::ReduceGrad) {
            EXPECT_TRUE(reduced.insert(action.stage).second);
          }
          EXPECT_LE(held.size(), gathered ? size_t(gathered) : size_t(2))
              << name;
        }
        EXPECT_TRUE(held.empty()) << name;
        EXPECT_EQ(reduced.size(), table.stagesOfRank[rank].size()) << name;
      }
    }
}

TEST(Replay, SaysWhoWaits) {
  Table table = *readTableText("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "t.csv");
  Result<Replay> result = replay(table);
  ASSERT_FALSE(bool(result));
  EXPECT_EQ(result.error(),
            "schedule custom: no rank can go on: rank 0 is at 0B0 (action 1); "
            "rank 1 is at "
            "1F1 (action 0); each waits for a later action of another rank");
}

TEST(Replay, WaitsForMessages) {
  // Rank 0: F0 F1 B0 B1. Rank 1: F0 B0 F1 B1, where F1 arrives in time.
  Table table = *generate({"1f1b", 2, 0, 2});
  Times times = Times::uniform(2, 1, 1, 1, /*transfer=*/0.5);
  Replay same = *replay(table, times);
  EXPECT_EQ(same.makespan, 10);
  EXPECT_EQ(same.rank[0].messages, 1);
  EXPECT_EQ(same.rank[0].waits, 1);
  EXPECT_EQ(same.rank[1].messages, 1);
  EXPECT_EQ(same.rank[1].waits, 0.5);
  EXPECT_EQ(same.rank[0].makespanIdle, 4);
  // Here the time of a transfer depends on the stage boundary and on the
  // direction.
  times.fromBefore = {0, 0.25};
  times.fromEnd = {0.75, 0};
  Replay own = *replay(table, times);
  EXPECT_EQ(own.makespan, 10);
  EXPECT_EQ(own.rank[0].messages, 1.5);
  EXPECT_EQ(own.rank[0].waits, 1.5);
  EXPECT_EQ(own.rank[1].messages, 0.5);
  EXPECT_EQ(own.rank[1].waits, 0.25);
}

TEST(Replay, TimesOfStagesAndTransfers) {
  Times times = Times::uniform(2, 1, 1, 1, /*transfer=*/0.5);
  times.stage[1] = {2, 1, 3};
  Replay r = *replay(*generate({"1f1b", 2, 0, 1}), times);
  EXPECT_EQ(r.spans[1][0].start, 1.5);
  EXPECT_EQ(r.spans[1][1].end, 7.5);
  EXPECT_EQ(r.makespan, 10);
  EXPECT_EQ(r.rank[0].spanIdle, 7);
  EXPECT_EQ(r.rank[1].spanIdle, 0);
  EXPECT_EQ(r.rank[1].makespanIdle, 4);
  EXPECT_DOUBLE_EQ(r.bubbleFraction, (7 + 4) / 20.0);
}
