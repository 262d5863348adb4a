// Tests lower(), which adds transfers between stages to a pipeline schedule,
// and assignSlots(), which assigns a memory slot to each value of a microbatch
// in flight.

#include "cleave/PipelineSchedule/Lower.h"

#include <gtest/gtest.h>

using namespace cleave::pipeline;

TEST(Lower, OneForwardOneBackward) {
  LoweredTable lowered = *lower(*generate({"1f1b", 2, 0, 2}));
  EXPECT_EQ(
      writeLowered(lowered),
      "0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0RECV_B1,0WAIT_RECV_B0,0B0,"
      "0WAIT_RECV_B1,0B1,0WAIT_SEND_F0,0WAIT_SEND_F1\n"
      "1RECV_F0,1WAIT_RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1WAIT_RECV_F1,1F1,1B1,"
      "1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\n");
  EXPECT_EQ(lowered.actions[0][1].peer, 1);
  LoweredTable read = *readLoweredText(writeLowered(lowered), "t.csv");
  EXPECT_EQ(writeLowered(read), writeLowered(lowered));
  EXPECT_EQ(read.actions[0][1].phase, Phase::Start);
}

TEST(Lower, NothingCrossesInsideARank) {
  // V placement: stages 1 and 2 share rank 1.
  Table table = *readTableText("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "t.csv");
  LoweredTable lowered = *lower(table, {/*lookahead=*/0, {}});
  EXPECT_EQ(
      writeLowered(lowered),
      "0F0,0SEND_F0,3RECV_F0,3WAIT_RECV_F0,3F0,3B0,3SEND_B0,"
      "0RECV_B0,0WAIT_RECV_B0,0B0,0WAIT_SEND_F0,3WAIT_SEND_B0\n"
      "1RECV_F0,1WAIT_RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2WAIT_RECV_B0,2B0,1B0,"
      "1SEND_B0,1WAIT_SEND_B0,2WAIT_SEND_F0\n");
}

TEST(Slots, CountsAreThePeaks) {
  Table table = *generate({"1f1b", 4, 0, 8});
  LoweredTable lowered = *lower(table);
  Replay replayed = *replay(table);
  std::vector<ValueClass> classes;
  for (int stage = 0; stage < 4; ++stage)
    classes.push_back({stage, {{ActionKind::F}}, {{ActionKind::W}}});
  std::vector<SlotPlan> plans = *assignSlots(lowered, classes);
  ASSERT_EQ(plans.size(), 4u);
  for (const SlotPlan &plan : plans) {
    EXPECT_EQ(plan.count, replayed.rank[plan.rank].peak);
    EXPECT_EQ(plan.count, 4 - plan.rank);
    for (int m = 0; m < 8; ++m)
      EXPECT_EQ(plan.slotOf[m], m % plan.count);
  }
}

// For every schedule and every kind of value, walks the action lists of all
// ranks and checks that a value stays in its memory slot until its last reader.
TEST(Slots, NoValueIsOverwritten) {
  for (const std::string &name : scheduleNames()) {
    if (name == "custom")
      continue;
    Table table = *generate({name, 4, 0, 11});
    LoweredTable lowered = *lower(table);
    std::vector<ValueClass> classes;
    for (int stage = 0; stage < table.stages; ++stage) {
      using K = ActionKind;
      classes.push_back(
          {stage, {{K::RecvF, Phase::Start}, {K::F}}, {{K::I}, {K::W}}});
      classes.push_back({stage, {{K::F}}, {{K::SendF, Phase::Wait}}});
      classes.push_back({stage, {{K::F}}, {{K::F, Phase::Run, 1}}});
      classes.push_back({stage, {{K::RecvB, Phase::Start}}, {{K::I}}});
      classes.push_back({stage, {{K::I}}, {{K::W}, {K::SendB, Phase::Wait}}});
    }
    std::vector<SlotPlan> plans = *assignSlots(lowered, classes);
    int values = 0;
    for (const SlotPlan &plan : plans) {
      const ValueClass &valueClass = classes[plan.valueClass];
      std::vector<int> owner(plan.count, -1); // microbatch
      std::vector<int> left(table.microbatches, 0);
      auto matches = [&](const LoweredAction &item, const Event &event) {
        bool whole =
            item.action.kind == ActionKind::B &&
            (event.kind == ActionKind::I || event.kind == ActionKind::W);
        return item.action.stage == valueClass.stage + event.offset &&
               (item.action.kind == event.kind || whole) &&
               item.phase == event.phase;
      };
      const std::vector<LoweredAction> &list = lowered.actions[plan.rank];
      for (const LoweredAction &item : list)
        for (const Event &event : valueClass.last)
          if (matches(item, event))
            ++left[item.action.microbatch];
      for (const LoweredAction &item : list) {
        int m = item.action.microbatch;
        if (m < 0 || plan.slotOf[m] < 0)
          continue;
        bool begins = false;
        for (const Event &event : valueClass.first)
          begins |= matches(item, event);
        int &slot = owner[plan.slotOf[m]];
        if (begins && slot != m) {
          EXPECT_EQ(slot, -1)
              << name << " rank " << plan.rank << " " << print(item);
          slot = m;
          ++values;
        }
        for (const Event &event : valueClass.last)
          if (matches(item, event)) {
            EXPECT_EQ(slot, m)
                << name << " rank " << plan.rank << " " << print(item);
            if (--left[m] == 0)
              slot = -1;
          }
      }
    }
    EXPECT_GT(values, 4 * 11 * 3) << name;
  }
}

TEST(Slots, ClassesWithoutValues) {
  LoweredTable lowered = *lower(*generate({"gpipe", 2, 0, 3}));
  std::vector<ValueClass> classes = {
      // The values that a stage sends to the next one. The last stage does not
      // send any.
      {0, {{ActionKind::F}}, {{ActionKind::SendF, Phase::Wait}}},
      {1, {{ActionKind::F}}, {{ActionKind::SendF, Phase::Wait}}},
      // The input of a stage, which stage 0 does not receive.
      {0,
       {{ActionKind::RecvF, Phase::Start}, {ActionKind::F}},
       {{ActionKind::W}}},
      {1,
       {{ActionKind::RecvF, Phase::Start}, {ActionKind::F}},
       {{ActionKind::W}}},
  };
  std::vector<SlotPlan> plans = *assignSlots(lowered, classes);
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_EQ(plans[0].valueClass, 0);
  EXPECT_EQ(plans[1].valueClass, 2);
  EXPECT_EQ(plans[1].count, 3);
  EXPECT_EQ(plans[2].valueClass, 3);
  EXPECT_EQ(plans[2].rank, 1);
  EXPECT_FALSE(
      bool(assignSlots(lowered, {{0, {{ActionKind::W}}, {{ActionKind::F}}}})));
}
