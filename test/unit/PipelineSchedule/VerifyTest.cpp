// Tests the verifier of schedules: it accepts good programs, and rejects bad
// ones with the rule that they break and the actions at fault.

#include "Interleave.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace cleave::pipeline;

namespace {

std::string messages(const std::vector<Finding> &findings) {
  std::string text;
  for (const Finding &finding : findings)
    text += finding.rule + ": " + finding.message + "\n";
  return text;
}

Program parse(std::string_view text) {
  Result<LoweredTable> table = readLoweredText(text, "t.csv");
  EXPECT_TRUE(bool(table)) << (table ? "" : table.error());
  return programOf(*table);
}

std::string verdict(const Program &program) {
  return messages(verify(program));
}

std::string verdict(std::string_view text) { return verdict(parse(text)); }

Item collective(int communicator, const std::string &what,
                Phase phase = Phase::Run) {
  Item item;
  item.action.phase = phase;
  item.communicator = communicator;
  item.what = what;
  return item;
}

void insert(Program &program, int rank, size_t place, const Item &item) {
  std::vector<Item> &items = program.ranks[rank].items;
  items.insert(items.begin() + place, item);
}

// Two stages on two ranks, one microbatch, and only blocking transfers.
const char *const plain = "0F0,0SEND_F0,0RECV_B0,0B0\n"
                          "1RECV_F0,1F0,1B0,1SEND_B0\n";

} // namespace

TEST(Verify, GoodTablesPass) {
  EXPECT_EQ(verdict(plain), "");
  for (const char *name : {"gpipe", "1f1b", "pipedream-async"})
    for (int ranks : {1, 2, 3, 4, 8})
      for (int microbatches : {1, 2, 5, 16})
        for (int lookahead : {0, 1, 3}) {
          LowerOptions options;
          options.lookahead = lookahead;
          options.spareSends = lookahead % 2;
          LoweredTable table =
              *lower(*generate({name, ranks, 0, microbatches}), options);
          EXPECT_EQ(messages(verify(table)), "") << name << " " << ranks;
        }
}

// 1
TEST(Verify, CrossedReceives) {
  EXPECT_EQ(
      verdict(
          "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0WAIT_RECV_B0,0B0,0RECV_B1,0B1,"
          "0WAIT_SEND_F0,0WAIT_SEND_F1\n"
          "1RECV_F1,1RECV_F0,1WAIT_RECV_F0,1F0,1B0,1SEND_B0,1WAIT_RECV_F1,1F1,"
          "1B1,"
          "1SEND_B1\n"),
      "transfer: rank 0, action 1: 0SEND_F0 is message 0 from rank 0 to rank "
      "1, where "
      "1RECV_F1 (rank 1, action 0) is expected: sends and receives are "
      "crossed\n");
}

// 2
TEST(Verify, MissingSend) {
  EXPECT_EQ(verdict("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "transfer: rank 0, action 0: 0F0 has no send of what it computes: "
            "0SEND_F0 is "
            "missing on rank 0\n");
}

// 3
TEST(Verify, WeightsAfterTheirReduction) {
  EXPECT_EQ(verdict("0F0,0SEND_F0,0RECV_B0,0I0,0REDUCE_GRAD,0W0\n"
                    "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n"),
            "reduction: rank 0, action 5: 0W0 computes gradients after "
            "0REDUCE_GRAD (rank "
            "0, action 4) has reduced them\n");
}

// 4
TEST(Verify, CollectiveBeforeSendAgainstReceiveBeforeCollective) {
  Program program = parse(plain);
  program.communicators = {{"world", {0, 1}}};
  insert(program, 0, 1, collective(0, "all_reduce of loss")); // before 0SEND_F0
  insert(program, 1, 1, collective(0, "all_reduce of loss")); // after 1RECV_F0
  EXPECT_EQ(verdict(program), "deadlock: ranks wait for each other in a "
                              "circle: rank 0, action 1: all_reduce "
                              "of loss comes before action 2: 0SEND_F0, for "
                              "which the next waits; rank 1, "
                              "action 0: 1RECV_F0 comes before action 1: "
                              "all_reduce of loss, for which the "
                              "first waits\n");
  // If the all-reduce is on the same side of the transfer on both ranks, the
  // program is correct.
  std::swap(program.ranks[1].items[0], program.ranks[1].items[1]);
  EXPECT_EQ(verdict(program), "");
}

// 5
TEST(Verify, TwoCommunicatorsInOppositeOrder) {
  Program program = parse(plain);
  program.communicators = {{"data", {0, 1}}, {"tensor", {0, 1}}};
  insert(program, 0, 0, collective(0, "gather"));
  insert(program, 0, 1, collective(1, "sum"));
  insert(program, 1, 0, collective(1, "sum"));
  insert(program, 1, 1, collective(0, "gather"));
  EXPECT_EQ(verdict(program),
            "deadlock: ranks wait for each other in a circle: rank 0, action "
            "0: gather "
            "comes before action 1: sum, for which the next waits; rank 1, "
            "action 0: sum "
            "comes before action 1: gather, for which the first waits\n");
}

// 6
TEST(Verify, ReplicasWithDifferentTables) {
  Program program =
      parse("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
  EXPECT_EQ(verdict(program), "");
  Program other =
      parse("0F1,0SEND_F1,0F0,0SEND_F0,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F1,1F1,1RECV_F0,1F0,1B0,1SEND_B0,1B1,1SEND_B1\n");
  EXPECT_EQ(verdict(other), "");
  for (Program::Rank rank : other.ranks) {
    rank.replica = 1;
    program.ranks.push_back(rank);
  }
  EXPECT_EQ(verdict(program),
            "replicas: rank 2, action 0: 0F1 differs from 0F0 (rank 0, action "
            "0): replicas "
            "of rank 0 of the pipeline must have equal lists\n"
            "replicas: rank 3, action 0: 1RECV_F1 differs from 1RECV_F0 (rank "
            "1, action "
            "0): replicas of rank 1 of the pipeline must have equal lists\n");
}

// 7
TEST(Verify, SendsAgainstSends) {
  // Rank 0 holds stages 0 and 2, rank 1 holds stage 1. Both ranks send first,
  // so neither reaches its receive.
  std::string found = verdict("0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2B0,"
                              "2SEND_B0,2RECV_F1,2F1,2B1,2SEND_B1,"
                              "0RECV_B0,0B0,0RECV_B1,0B1\n"
                              "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,"
                              "1RECV_B0,1B0,1SEND_B0,1RECV_B1,1B1,"
                              "1SEND_B1\n");
  EXPECT_EQ(
      found,
      "deadlock: ranks wait for each other in a circle: rank 0, action 3: "
      "0SEND_F1 "
      "comes before action 4: 2RECV_F0, for which the next waits; rank 1, "
      "action 2: "
      "1SEND_F0 comes before action 3: 1RECV_F1, for which the first waits\n");
}

// 8
TEST(Verify, WaitBeforeItsStart) {
  EXPECT_EQ(
      verdict("0F0,0WAIT_SEND_F0,0SEND_F0,0RECV_B0,0B0\n"
              "1RECV_F0,1F0,1B0,1SEND_B0\n"),
      "wait: rank 0, action 1: 0WAIT_SEND_F0 precedes its start\n"
      "wait: rank 0, action 2: 0SEND_F0 is started and never waited for\n");
}

// 9
TEST(Verify, ReadBeforeItIsThere) {
  EXPECT_EQ(verdict("0F0,0SEND_F0,0RECV_B0,0B0\n"
                    "1RECV_F0,1F0,1WAIT_RECV_F0,1B0,1SEND_B0\n"),
            "transfer: rank 1, action 2: 1WAIT_RECV_F0 is complete only after "
            "1F0 (rank 1, "
            "action 1) has read it\n");
}

// 10
TEST(Verify, SentBeforeItIsComputed) {
  EXPECT_EQ(verdict("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "transfer: rank 0, action 0: 0SEND_F0 sends before 0F0 (rank 0, "
            "action 1) "
            "computes it\n");
}

// 11
TEST(Verify, MissingAndRepeatedPasses) {
  EXPECT_EQ(verdict("0F0,0SEND_F0,0RECV_B0,0I0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "once: stage 0: 0W0 is missing\n");
  EXPECT_EQ(
      verdict("0F0,0SEND_F0,0RECV_B0,0B0,0W0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
      "once: rank 0, action 4: 0W0 repeats 0W0 of 0B0 (rank 0, action 3)\n");
}

// 12
TEST(Verify, CollectiveThatAMemberMisses) {
  Program program = parse(plain);
  program.communicators = {{"data", {0, 1}}};
  insert(program, 0, 0, collective(0, "gather of wte"));
  EXPECT_EQ(verdict(program), "collective: rank 0, action 0: gather of wte is "
                              "number 0 on communicator data, "
                              "which rank 1 does not join: it has 0 there\n");
  insert(program, 1, 0, collective(0, "gather of wpe"));
  EXPECT_EQ(
      verdict(program),
      "collective: rank 1, action 0: gather of wpe meets gather of wte (rank "
      "0, "
      "action 0) as number 0 on communicator data: all members run the same "
      "collectives in the same order\n");
}

// 13
TEST(Verify, BackwardBeforeForward) {
  EXPECT_EQ(verdict("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1B0,1SEND_B0,1F0\n"),
            "order: rank 1, action 3: 1F0 comes after 1B0 (rank 1, action 1), "
            "which reads its result\n");
}

// 14
TEST(Verify, SlotsOfSendsThatAreReusedTooEarly) {
  // Rank 1 needs F1 first and waits for its arrival. Rank 0 sends F1 only after
  // F0 has been received.
  std::string found = verdict(
      "0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0,"
      "0WAIT_SEND_F1\n"
      "1RECV_F0,1RECV_F1,1WAIT_RECV_F1,1F1,1WAIT_RECV_F0,1F0,1B1,1SEND_B1,1B0,"
      "1SEND_B0\n");
  EXPECT_EQ(
      found,
      "deadlock: ranks wait for each other in a circle: rank 0, action 2: "
      "0WAIT_SEND_F0 comes before action 4: 0SEND_F1, for which the next "
      "waits; rank "
      "1, action 2: 1WAIT_RECV_F1 comes before action 4: 1WAIT_RECV_F0, for "
      "which "
      "the first waits\n");
}

// 15
TEST(Verify, ParametersThatAreNotGathered) {
  EXPECT_EQ(
      verdict("0UNSHARD,0F0,0SEND_F0,0RESHARD,0RECV_B0,0B0\n"
              "1RECV_F0,1F0,1B0,1SEND_B0\n"),
      "shard: rank 0, action 5: 0B0 reads parameters of stage 0 that are not "
      "gathered; an UNSHARD must precede it\n");
}

TEST(Verify, WeightsReadParameters) {
  const std::string early = "0UNSHARD,0F0,0I0,0RESHARD,0W0\n";
  EXPECT_EQ(verdict(early),
            "shard: rank 0, action 4: 0W0 reads parameters of stage 0 that are "
            "not gathered; an UNSHARD must precede it\n");
  Program known = parse(early);
  known.traits = {{/*reduces=*/true, /*weightsRead=*/false}};
  EXPECT_EQ(verdict(known), "");
}

// All gradients must be reduced, once, and on the rank that computes them.
TEST(Verify, ReductionsOfSomeGradients) {
  const std::string onePart =
      "0F0,0F1,0I0,0W0,0REDUCE_GRAD0,0I1,0W1,0REDUCE_GRAD1";
  EXPECT_EQ(verdict(onePart), "");
  EXPECT_EQ(verdict("0F0,0F1,0I0,0W0,0REDUCE_GRAD0,0I1,0W1\n"),
            "reduction: rank 0, action 6: 0W1 computes gradients that are not "
            "reduced on its rank, as others are by 0REDUCE_GRAD0 (rank 0, "
            "action 4)\n");
  EXPECT_EQ(verdict(onePart + ",0REDUCE_GRAD\n"),
            "reduction: rank 0, action 8: 0REDUCE_GRAD reduces again what "
            "0REDUCE_GRAD0 (rank 0, action 4) has reduced\n");
  EXPECT_EQ(verdict(onePart + ",0REDUCE_GRAD1\n"),
            "reduction: rank 0, action 8: 0REDUCE_GRAD1 reduces again what "
            "0REDUCE_GRAD1 (rank 0, action 7) has reduced\n");
  EXPECT_EQ(verdict("0F0,0F1,0B0,0B1,0REDUCE_GRAD,0REDUCE_GRAD0\n"),
            "reduction: rank 0, action 5: 0REDUCE_GRAD0 reduces again what "
            "0REDUCE_GRAD (rank 0, action 4) has reduced\n");
  Program oneStage = parse("0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n"
                           "1RECV_F0,1F0,1B0,1SEND_B0\n");
  EXPECT_EQ(verdict(oneStage),
            "reduction: rank 1, action 2: 1B0 computes gradients that are not "
            "reduced on its rank, as others are by 0REDUCE_GRAD (rank 0, "
            "action 4)\n");
  oneStage.traits = {{}, {/*reduces=*/false, /*weightsRead=*/true}};
  EXPECT_EQ(verdict(oneStage), "");
  Program beyond = parse("0F0,0B0,0REDUCE_GRAD0\n");
  beyond.ranks[0].items[2].action.action.microbatch = 5;
  EXPECT_TRUE(verdict(beyond).starts_with(
      "range: rank 0, action 2: 0REDUCE_GRAD5 is beyond the 1 stages and "
      "1 microbatches\n"))
      << verdict(beyond);
}

TEST(Verify, ShardActionsOfOtherRanks) {
  EXPECT_EQ(verdict("0F0,0SEND_F0,0RECV_B0,0B0,1REDUCE_GRAD,0REDUCE_GRAD\n"
                    "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n"),
            "reduction: rank 0, action 4: 1REDUCE_GRAD reduces gradients that "
            "its rank does not compute\n");
  const std::string third = verdict(std::string(plain) + "0UNSHARD\n");
  EXPECT_NE(third.find("shard: rank 2, action 0: 0UNSHARD is of a stage that "
                       "its rank does not compute\n"),
            std::string::npos)
      << third;
  EXPECT_EQ(verdict("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0\n"
                    "0UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "shard: rank 1, action 0: 0UNSHARD is of a stage that its rank "
            "does not compute\n");
}

// 16
TEST(Verify, PeakOfActivations) {
  Program program = parse(plain);
  program.ranks[0].peak = 1;
  program.ranks[1].peak = 2;
  EXPECT_EQ(verdict(program),
            "peak: rank 1 holds 1 activations at its peak, but its "
            "table's replay 2\n");
  // The program has the actions of a GPipe schedule, but it states the peak
  // numbers of activations that replay() simulates for a 1F1B schedule. It
  // holds more activations at once than it states.
  Table table = *generate({"1f1b", 2, 0, 4});
  EXPECT_EQ(verdict(programOf(*lower(table), *replay(table))), "");
  EXPECT_EQ(
      verdict(programOf(*lower(*generate({"gpipe", 2, 0, 4})), *replay(table))),
      "peak: rank 0 holds 4 activations at its peak, but its table's replay 2\n"
      "peak: rank 1 holds 4 activations at its peak, but its table's replay "
      "1\n");
}

// 17
TEST(Verify, NumbersBeyondTheProgram) {
  Program program = parse(plain);
  program.microbatches = 1;
  program.ranks[0].items[0].action.action.microbatch = 7;
  EXPECT_NE(verdict(program).find(
                "range: rank 0, action 0: 0F7 is beyond the 2 stages "
                "and 1 microbatches"),
            std::string::npos);
  program.ranks[1].pipeline = 0;
  EXPECT_EQ(verdict(program),
            "range: rank 1 has index 0 of pipeline 0, as another rank has\n");
}

// Stages 1 and 2 share rank 1, so a send and a receive on that rank represent a
// copy.
TEST(Verify, HandOverOnARank) {
  const std::string rank0 =
      "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n";
  EXPECT_EQ(verdict(rank0 +
                    "1RECV_F0,1F0,1SEND_F0,2RECV_F0,2F0,2SEND_F0,2RECV_B0,2B0,"
                    "1B0,1SEND_B0\n"),
            "");
  EXPECT_EQ(verdict(rank0 +
                    "1RECV_F0,1F0,1SEND_F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,"
                    "1SEND_B0\n"),
            "transfer: rank 1, action 3: 2F0 has no receive of what it reads: "
            "2RECV_F0 is "
            "missing on rank 1\n");
  EXPECT_EQ(verdict(rank0 +
                    "1RECV_F0,1F0,2RECV_F0,1SEND_F0,2F0,2SEND_F0,2RECV_B0,2B0,"
                    "1B0,1SEND_B0\n"),
            "transfer: rank 1, action 2: 2RECV_F0 must hand over between 1F0 "
            "(rank 1, "
            "action 1) and 2F0 (rank 1, action 4), after its send\n");
}

// Collectives on streams, which start early and whose Waits come late.
TEST(Verify, CollectivesInFlight) {
  Program program = parse(plain);
  program.communicators = {{"data", {0, 1}}, {"tensor", {0, 1}}};
  Item gather = collective(0, "gather", Phase::Start),
       sum = collective(1, "sum");
  Item wait = collective(0, "gather", Phase::Wait);
  for (int rank : {0, 1}) {
    insert(program, rank, 0, gather);
    insert(program, rank, 1, sum);
    insert(program, rank, 2, wait);
  }
  EXPECT_EQ(verdict(program), "");
  // The ranks start the collectives in different orders. That is correct if the
  // collectives run concurrently, but a deadlock if both run on one stream.
  std::swap(program.ranks[1].items[0], program.ranks[1].items[1]);
  EXPECT_EQ(verdict(program), "");
  for (Program::Rank &rank : program.ranks)
    for (Item &item : rank.items)
      if (item.isCollective())
        item.stream = 0;
  EXPECT_NE(verdict(program).find("deadlock"), std::string::npos);
}

// Pipeline x data x tensor = 2 x 2 x 2: all-reduces over tensor ranks inside of
// forward and backward passes, reductions over data ranks after the last W, and
// the all-reduce of the gradient norm over all ranks.
TEST(Verify, AllAxes) {
  for (const char *name : {"1f1b", "zb-v", "interleaved", "chimera"}) {
    Table table = *generate({name, 2, 0, 4});
    Program one = programOf(*lower(*withShardActions(table, {})));
    Program program;
    program.stages = one.stages;
    program.microbatches = one.microbatches;
    auto rankOf = [](int p, int d, int t) { return p * 4 + d * 2 + t; };
    program.communicators = {{"world", {0, 1, 2, 3, 4, 5, 6, 7}}};
    for (int p : {0, 1})
      for (int d : {0, 1})
        for (int t : {0, 1}) {
          Program::Rank rank;
          rank.pipeline = p;
          rank.replica = d * 2 + t;
          int tensor = 1 + p * 2 + d, data = 5 + p * 2 + t,
              both = 9 + d * 2 + t;
          program.communicators.resize(13);
          program.communicators[tensor] = {"tensor",
                                           {rankOf(p, d, 0), rankOf(p, d, 1)}};
          program.communicators[data] = {"data",
                                         {rankOf(p, 0, t), rankOf(p, 1, t)}};
          program.communicators[both] = {"stage",
                                         {rankOf(0, d, t), rankOf(1, d, t)}};
          bool shared = std::string(name) == "chimera"; // stages on two ranks
          for (Item item : one.ranks[p].items) {
            if (item.action.action.kind == ActionKind::ReduceGrad) {
              item.communicator = data;
              item.what = "reduce " + print(item.action);
              rank.items.push_back(item);
              if (shared) {
                item.communicator = both;
                rank.items.push_back(item);
              }
              continue;
            }
            rank.items.push_back(item);
            if (isCompute(item.action.action.kind) &&
                item.action.action.kind != ActionKind::W)
              rank.items.push_back(
                  collective(tensor, "sum of " + print(item.action)));
          }
          rank.items.push_back(collective(0, "norm"));
          program.ranks.push_back(rank);
        }
    EXPECT_EQ(verdict(program), "") << name;
    // On one rank only, the all-reduce of the norm comes before the last
    // reduction.
    std::vector<Item> &items = program.ranks[5].items;
    if (std::string(name) == "1f1b") {
      auto reduction =
          std::find_if(items.begin(), items.end(), [](const Item &item) {
            return item.action.action.kind == ActionKind::ReduceGrad;
          });
      std::rotate(reduction, items.end() - 1, items.end());
      std::string found = verdict(program);
      EXPECT_NE(found.find("replicas: rank 5"), std::string::npos) << found;
      EXPECT_NE(found.find("deadlock"), std::string::npos) << found;
    }
  }
}
