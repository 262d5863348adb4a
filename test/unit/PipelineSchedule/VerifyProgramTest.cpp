// Verification of programs in the runtime's format.

#include "cleave/PipelineSchedule/VerifyProgram.h"

#include <gtest/gtest.h>

using namespace cleave;
using namespace cleave::pipeline;

namespace {

// Pipeline x data = 2 x 2: stage 0 sends to stage 1, which sends back. Both
// stages all-reduce over data in a called action, and over all ranks at the
// end.
class TwoStages {
public:
  TwoStages() {
    p.mesh = {{"pipeline", 2, ""}, {"data", 2, ""}};
    p.rankClass = {0, 0, 1, 1};
    for (uint32_t stage : {0, 1}) {
      begin(".sum", stage);
      add(collective({{1, 1, 2}}, {}), "sum over data");
      begin("step", stage);
    }
    list(0) = {};
    send(0, 0, 1, 0, "0SEND_F0");
    wait(0, 0, "0WAIT_SEND_F0");
    send(0, 1, 0, 1, "0RECV_B0");
    wait(0, 1, "0WAIT_RECV_B0");
    send(1, 0, 1, 0, "1RECV_F0");
    wait(1, 0, "1WAIT_RECV_F0");
    send(1, 1, 0, 1, "1SEND_B0");
    wait(1, 1, "1WAIT_SEND_B0");
    for (uint32_t stage : {0, 1}) {
      program::Call call;
      call.action = 2 * stage;
      add(stage, call, "reduce");
      add(stage, collective({{0, 1, 2}, {1, 1, 2}}, {}), "norm");
    }
  }

  program::Program p;

  std::vector<program::Command> &list(int stage) {
    return p.actions[2 * stage + 1].commands;
  }

  static program::Collective collective(std::vector<program::SubAxis> group,
                                        std::vector<int32_t> positions) {
    program::Collective c;
    c.group = std::move(group);
    c.positions = std::move(positions);
    program::Transfer part;
    part.count = part.inner = part.dstInner = 4;
    c.parts = {part};
    return c;
  }

  std::string verdict() const {
    std::string text;
    for (const Finding &finding : verify(p))
      text += finding.rule + ": " + finding.message + "\n";
    return text;
  }

private:
  void begin(const std::string &name, uint32_t stage) {
    p.actions.emplace_back();
    p.actions.back().name = name;
    p.actions.back().rankClass = stage;
  }
  void add(decltype(program::Command::op) op, const std::string &source) {
    p.actions.back().commands.push_back({std::move(op), p.intern(source), 0});
  }
  void add(int stage, decltype(program::Command::op) op,
           const std::string &source) {
    list(stage).push_back({std::move(op), p.intern(source), 0});
  }
  void send(int stage, int from, int to, int token, const std::string &label) {
    program::Collective c = collective({{0, 1, 2}}, {from, to});
    c.kind = program::CollectiveKind::SendRecv;
    c.token = token;
    add(stage, c, label);
  }
  void wait(int stage, int token, const std::string &label) {
    add(stage, program::Wait{token}, label);
  }
};

} // namespace

TEST(VerifyProgram, GoodProgram) {
  TwoStages program;
  EXPECT_EQ(program.verdict(), "");
  Program seen = programOf(program.p, "step");
  ASSERT_EQ(seen.ranks.size(), 2u);
  EXPECT_EQ(seen.ranks[0].items.size(), 6u);
  ASSERT_EQ(seen.communicators.size(), 5u);
  EXPECT_EQ(seen.communicators[2].ranks,
            std::vector<int>({0})); // data, of class 0
  EXPECT_EQ(seen.communicators[3].ranks, std::vector<int>({0, 1}));
}

TEST(VerifyProgram, Deadlock) {
  TwoStages program;
  // On stage 1, the all-reduce over all ranks comes before the receive.
  std::vector<program::Command> &list = program.list(1);
  std::rotate(list.begin(), list.end() - 1, list.end());
  EXPECT_EQ(program.verdict(), "deadlock: @step: ranks wait for each other in "
                               "a circle: rank 0, action 1: "
                               "0WAIT_SEND_F0 comes before action 5: norm, for "
                               "which the next waits; rank 1, "
                               "action 0: norm comes before action 2: "
                               "1WAIT_RECV_F0, for which the first "
                               "waits\n");
}

TEST(VerifyProgram, SizesAndMissingEnds) {
  TwoStages program;
  std::get<program::Collective>(program.list(1)[0].op).parts[0].count = 5;
  EXPECT_EQ(program.verdict(), "collective: @step: rank 1, action 0: 1RECV_F0 "
                               "meets 0SEND_F0 (rank 0, action "
                               "0) as number 0 on communicator pipeline: 0 to "
                               "1: all members run the same "
                               "collectives in the same order\n");
  TwoStages other;
  other.list(1).erase(other.list(1).begin(), other.list(1).begin() + 2);
  EXPECT_EQ(other.verdict(),
            "collective: @step: rank 0, action 0: 0SEND_F0 is number 0 on "
            "communicator "
            "pipeline: 0 to 1, which rank 1 does not join: it has 0 there\n");
  TwoStages third;
  third.list(0).erase(third.list(0).begin() + 1);
  EXPECT_EQ(third.verdict(), "wait: @step: rank 0, action 0: 0SEND_F0 is "
                             "started and never waited for\n");
  TwoStages fourth;
  fourth.list(0).erase(fourth.list(0).begin());
  EXPECT_NE(fourth.verdict().find(
                "wait: @step: rank 0, action 0: 0WAIT_SEND_F0 waits for "
                "a transfer that is not started"),
            std::string::npos)
      << fourth.verdict();
}
