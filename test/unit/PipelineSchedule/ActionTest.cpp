// Tests how actions and cells of schedule tables are written.

#include "cleave/PipelineSchedule/Action.h"

#include <gtest/gtest.h>

using namespace cleave::pipeline;

TEST(Action, PrintsWhatItParses) {
  for (const char *text :
       {"0F3", "12I0", "1W7", "2B0", "1SEND_F3", "2RECV_F0", "2SEND_B1",
        "2RECV_B0", "0UNSHARD", "3RESHARD", "1REDUCE_GRAD", "1REDUCE_GRAD2"}) {
    Result<Action> action = parseAction(text);
    ASSERT_TRUE(bool(action)) << action.error();
    EXPECT_EQ(print(*action), text);
  }
  EXPECT_EQ(*parseAction(" 2F0\r"), (Action{2, ActionKind::F, 0}));
}

TEST(Action, RefusesWhatIsNone) {
  auto error = [](const char *text) {
    Result<Action> action = parseAction(text);
    return action ? "parsed" : action.error();
  };
  EXPECT_EQ(error("F3"),
            "'F3' is no action: expected the number of a stage first, "
            "as in 0F3");
  EXPECT_EQ(error("1X3"),
            "'1X3' is no action: stage 1: unknown kind 'X'; known are F, "
            "I, W, B, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, "
            "REDUCE_GRAD");
  EXPECT_EQ(error("1F"),
            "'1F' is no action: stage 1: F needs the number of a microbatch");
  EXPECT_EQ(error("0UNSHARD2"),
            "'0UNSHARD2' is no action: UNSHARD has no microbatch");
  EXPECT_EQ(
      error("1F3x"),
      "'1F3x' is no action: expected the number of a microbatch at the end");
  EXPECT_NE(error("99999999999999999999F0"), "parsed");
  EXPECT_NE(error(""), "parsed");
}

TEST(Action, CellsHoldNothingOneOrAGroup) {
  EXPECT_TRUE(parseCell("  ")->empty());
  EXPECT_EQ(parseCell("0F3")->size(), 1u);
  std::vector<Action> group = *parseCell("(0F3;7B2)OVERLAP_F_B");
  ASSERT_EQ(group.size(), 2u);
  EXPECT_EQ(print(group[0]), "0F3");
  EXPECT_EQ(print(group[1]), "7B2");
  EXPECT_FALSE(bool(parseCell("(0F3;7B2)")));
  EXPECT_FALSE(bool(parseCell("(0F3;7B2OVERLAP_F_B")));
  EXPECT_FALSE(bool(parseCell("(0F3;1SEND_F3)OVERLAP_F_B")));
}
