// Randomly mutates correct programs. A program that the verifier accepts must
// not fail in any interleaving, and a deadlock that the verifier reports must
// occur in an interleaving.

#include "Interleave.h"

#include <gtest/gtest.h>
#include <random>

using namespace cleave::pipeline;

namespace {

class Mutator {
public:
  explicit Mutator(unsigned seed) : random(seed) {}

  int below(int bound) {
    return std::uniform_int_distribution<int>(0, bound - 1)(random);
  }

  // A correct program on 2 or 3 ranks, with gathered parameters, reductions and
  // a collective over all ranks.
  Program good() {
    static const char *const tables[] = {
        // ZB-H1 on two ranks, a V placement, a table with separate I and W, and
        // a placement in which stages wrap around.
        "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n",
        "0F0,0F1,3F0,3B0,0B0,3F1,3B1,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n",
        "0F0,0F1,0B0,0I1,0W1\n1F0,1F1,1I0,1I1,1W0,1W1\n2F0,2B0,2F1,2B1\n",
        "0F0,0F1,2F0,2B0,2F1,2B1,0B0,0B1\n1F0,1F1,1B0,1B1\n",
    };
    int pick = below(8);
    Table table = pick < 4 ? *readTableText(tables[pick], "t.csv")
                           : *generate({pick < 6 ? "1f1b" : "gpipe",
                                        2 + pick % 2, 0, 1 + below(2)});
    LowerOptions options;
    options.lookahead = below(3);
    options.spareSends = below(2);
    ShardActions shards;
    shards.reduce = below(5) > 0;
    shards.reducePerMicrobatch = below(2);
    shards.unshard = below(2);
    shards.gathered = below(2);
    table = *withShardActions(table, shards);
    Program program = programOf(*lower(table, options));
    Communicator all{"all", {}};
    for (size_t rank = 0; rank < program.ranks.size(); ++rank)
      all.ranks.push_back(static_cast<int>(rank));
    program.communicators = {all};
    for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
      Item norm;
      norm.communicator = 0;
      norm.what = "norm";
      program.ranks[rank].items.push_back(norm);
    }
    // Some transfers are blocking.
    if (below(2))
      for (Program::Rank &rank : program.ranks)
        for (size_t i = 0; i < rank.items.size(); ++i)
          if (below(4) == 0)
            block(rank.items, i);
    return program;
  }

  void mutate(Program &program) {
    std::vector<Item> &items = program.ranks[below(program.ranks.size())].items;
    if (items.empty())
      return;
    int place = below(items.size()), other = below(items.size());
    Item item = items[place];
    switch (below(10)) {
    case 0:
    case 1: // two neighbours are swapped
      if (place > 0)
        std::swap(items[place], items[place - 1]);
      break;
    case 2:
      std::swap(items[place], items[other]);
      break;
    case 3: // moved
    case 4:
      items.erase(items.begin() + place);
      items.insert(items.begin() + std::min<size_t>(other, items.size()), item);
      break;
    case 5:
      items.erase(items.begin() + place);
      break;
    case 6:
      items.insert(items.begin() + other, item);
      break;
    case 7: { // the microbatch or stage changes
      Action &action = items[place].action.action;
      if (item.isCollective())
        break;
      if (below(2))
        action.stage = below(program.stages);
      else if (action.kind == ActionKind::ReduceGrad)
        action.microbatch = below(program.microbatches + 1) - 1;
      else if (hasMicrobatch(action.kind))
        action.microbatch = below(program.microbatches);
      items[place].action.peer = -1;
      break;
    }
    case 8:
      block(items, place);
      break;
    case 9: { // gathers and reductions are moved or removed
      static constexpr ActionKind kinds[] = {
          ActionKind::Unshard, ActionKind::Reshard, ActionKind::ReduceGrad};
      Item shard;
      shard.action.action = {below(program.stages), kinds[below(3)],
                             below(program.microbatches + 1) - 1};
      if (shard.action.action.kind != ActionKind::ReduceGrad)
        shard.action.action.microbatch = -1;
      items.insert(items.begin() + place, shard);
      break;
    }
    }
  }

private:
  // Replaces the Start of a transfer by a blocking transfer, and removes its
  // Wait.
  void block(std::vector<Item> &items, size_t place) {
    if (items[place].action.phase != Phase::Start ||
        items[place].isCollective())
      return;
    items[place].action.phase = Phase::Run;
    for (size_t i = place + 1; i < items.size(); ++i)
      if (items[i].action.phase == Phase::Wait &&
          items[i].action.action == items[place].action.action) {
        items.erase(items.begin() + i);
        return;
      }
  }

  std::mt19937 random;
};

std::string show(const Program &program) {
  std::string text;
  for (const Program::Rank &rank : program.ranks) {
    for (const Item &item : rank.items)
      text += print(item) + ",";
    text += "\n";
  }
  return text;
}

} // namespace

TEST(Mutation, AcceptedIsHarmless) {
  Mutator mutator(4);
  int accepted = 0, deadlocks = 0, wrong = 0;
  for (int round = 0; round < 1000; ++round) {
    Program program = mutator.good();
    for (int n = 1 + mutator.below(3); n > 0; --n)
      mutator.mutate(program);
    std::vector<Finding> findings = verify(program);
    test::Outcome outcome = test::interleave(program);
    std::string found;
    bool onlyDeadlock = !findings.empty();
    for (const Finding &finding : findings) {
      found += finding.rule + ": " + finding.message + "\n";
      onlyDeadlock &= finding.rule == "deadlock";
    }
    if (findings.empty())
      EXPECT_TRUE(outcome.harmless())
          << "accepted, but " << outcome.wrong << outcome.deadlock << "\n"
          << show(program);
    else
      EXPECT_FALSE(outcome.harmless()) << found << show(program);
    if (onlyDeadlock) {
      EXPECT_EQ(outcome.wrong, "") << found << show(program);
      EXPECT_NE(outcome.deadlock, "") << found << show(program);
      ++deadlocks;
    }
    accepted += findings.empty();
    wrong += !outcome.wrong.empty();
    if (HasFailure())
      break;
  }
  RecordProperty("accepted", accepted);
  RecordProperty("deadlocks", deadlocks);
  // The test is meaningful only if enough mutations are accepted and enough are
  // rejected.
  EXPECT_GT(accepted, 100);
  EXPECT_GT(deadlocks, 30);
  EXPECT_GT(wrong, 300);
}
