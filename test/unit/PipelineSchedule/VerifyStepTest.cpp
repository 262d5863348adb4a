// Tests that the verifiers find errors in the command lists of ranks: commands
// that deviate from the pipeline schedule, commands that access the memory slot
// of another microbatch, and accesses to a buffer while a transfer is in
// flight.

#include "StepProgram.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace cleave;
using namespace cleave::pipeline;
using test::StepProgram;

namespace {

program::Command copyInto(program::BufferRef to, program::StringId source) {
  program::Copy copy;
  copy.src = {to.arena, to.offset + 64, {}};
  copy.dst = std::move(to);
  copy.shape = {4};
  copy.srcStrides = copy.dstStrides = {1};
  return {copy, source, 0};
}

program::Collective &messageOf(StepProgram &step, int rank,
                               const std::string &label) {
  return std::get<program::Collective>(
      step.list(rank)[step.find(rank, label)].op);
}

program::Call &callOf(StepProgram &step, int rank, const std::string &label) {
  return std::get<program::Call>(step.list(rank)[step.find(rank, label)].op);
}

} // namespace

TEST(VerifyStep, GoodProgramsPass) {
  for (const char *schedule : {"gpipe", "1f1b"})
    for (int microbatches : {1, 2, 3, 8})
      EXPECT_EQ(StepProgram(schedule, microbatches).verdict(), "")
          << schedule << " " << microbatches;
  // A program for inference has no training step to verify.
  StepProgram inference;
  for (program::Action &action : inference.p.actions)
    if (action.name == "loss_grad")
      action.name = "forward";
  EXPECT_TRUE(verifyStep(inference.p, inference.origin).empty());
}

TEST(VerifyStep, CallsThatAreMissingOrRepeated) {
  StepProgram missing;
  missing.list(0).erase(missing.list(0).begin() + missing.find(0, "0B1"));
  EXPECT_NE(missing.verdict().find("once: @loss_grad: the list of rank 0 lacks "
                                   "0B1 (a call), but has "),
            std::string::npos)
      << missing.verdict();
  StepProgram twice;
  std::vector<program::Command> &list = twice.list(1);
  size_t place = twice.find(1, "1B1");
  list.insert(list.begin() + place, program::Command(list[place]));
  EXPECT_EQ(twice.verdict(),
            "once: @loss_grad: rank 1, action " + std::to_string(place + 1) +
                ": 1B1 is there more often than in the table of its rank\n");
  StepProgram other;
  callOf(other, 1, "1B1").action = callOf(other, 1, "1F1").action;
  EXPECT_NE(other.verdict().find("1B1 calls .F.1, which is not its action"),
            std::string::npos)
      << other.verdict();
  StepProgram unnamed;
  unnamed.list(1)[unnamed.find(1, "1B1")].source = unnamed.p.intern("update");
  EXPECT_NE(unnamed.verdict().find("update is no action of a table"),
            std::string::npos)
      << unnamed.verdict();
  // The whole command list of rank 1 is missing.
  StepProgram none;
  none.p.actions.pop_back();
  EXPECT_NE(none.verdict().find("the list of rank 1 lacks "), std::string::npos)
      << none.verdict();
}

TEST(VerifyStep, AnotherOrder) {
  StepProgram step;
  std::swap(step.list(0)[step.find(0, "0B1")],
            step.list(0)[step.find(0, "0B2")]);
  EXPECT_NE(step.verdict().find(": 0B2 is where the table has 0B1\n"),
            std::string::npos)
      << step.verdict();
  // A pass runs before its input has arrived.
  StepProgram early;
  std::vector<program::Command> &list = early.list(1);
  size_t start = early.find(1, "1RECV_F0"), reader = early.find(1, "1F0");
  std::rotate(list.begin() + start, list.begin() + reader,
              list.begin() + reader + 1);
  EXPECT_NE(early.verdict().find("order: @loss_grad: rank 1, action " +
                                 std::to_string(start) +
                                 ": 1F0 is where the table has 1RECV_F"),
            std::string::npos)
      << early.verdict();
}

TEST(VerifyStep, Messages) {
  StepProgram ends;
  std::reverse(messageOf(ends, 0, "0SEND_F1").positions.begin(),
               messageOf(ends, 0, "0SEND_F1").positions.end());
  EXPECT_NE(ends.verdict().find(": 0SEND_F1 is not from rank 0 to rank 1 of "
                                "the pipeline\n"),
            std::string::npos)
      << ends.verdict();
  // A transfer that moves no data may be missing, if it is missing on both
  // sides.
  StepProgram nothing("gpipe", 1);
  for (int rank : {0, 1})
    std::erase_if(nothing.list(rank), [&](const program::Command &command) {
      return nothing.p.strings[command.source].ends_with("_F0");
    });
  EXPECT_EQ(nothing.verdict(), "");
  StepProgram oneSide("gpipe", 1);
  std::erase_if(oneSide.list(0), [&](const program::Command &command) {
    return oneSide.p.strings[command.source].ends_with("_F0");
  });
  EXPECT_NE(oneSide.verdict().find("collective: "), std::string::npos);
}

TEST(VerifyStep, SlotsOfOtherMicrobatches) {
  // A call accesses the slots of another microbatch.
  StepProgram call;
  callOf(call, 1, "1F1").rebase = callOf(call, 1, "1F0").rebase;
  EXPECT_EQ(call.verdict(),
            "slot: @loss_grad: rank 1, action " +
                std::to_string(call.find(1, "1F1")) +
                ": 1F1 touches slot 0 of in.1, but the values of its "
                "microbatch are in slot 1 since 1RECV_F1 (action " +
                std::to_string(call.find(1, "1RECV_F1")) + ")\n");
  // Two messages write into each other's slots.
  StepProgram receives;
  std::swap(messageOf(receives, 1, "1RECV_F0").parts,
            messageOf(receives, 1, "1RECV_F1").parts);
  EXPECT_NE(receives.verdict().find("slot: @loss_grad: rank 1, action "),
            std::string::npos)
      << receives.verdict();
}

// All values of microbatch 1 are stored in the slot of microbatch 0 while an
// action still reads that slot.
TEST(VerifyStep, SlotsThatAreReusedTooEarly) {
  StepProgram step;
  int32_t arena = messageOf(step, 1, "1RECV_F1").parts[0].dst.arena;
  messageOf(step, 1, "1RECV_F1").parts = messageOf(step, 1, "1RECV_F0").parts;
  for (const char *label : {"1F1", "1B1"})
    for (program::Rebase &rebase : callOf(step, 1, label).rebase)
      if (rebase.arena == arena)
        rebase.offset = 0;
  const std::string verdict = step.verdict();
  EXPECT_TRUE(verdict.find("needs slot 0 of in.1, which 1") !=
                  std::string::npos ||
              verdict.find("still writes") != std::string::npos)
      << verdict;
}

TEST(VerifyStep, TransfersUnderWay) {
  // Writes to a buffer that is being sent, between the Start and the Wait of
  // the send.
  StepProgram sent;
  size_t start = sent.find(0, "0SEND_F0");
  program::BufferRef src = messageOf(sent, 0, "0SEND_F0").parts[0].src;
  sent.list(0).insert(sent.list(0).begin() + start + 1,
                      copyInto(src, sent.p.intern("stray")));
  EXPECT_EQ(
      sent.verdict(),
      "transfer: @loss_grad: rank 0, action " + std::to_string(start + 1) +
          ": stray writes out.0 at byte 0, which 0SEND_F0 (action " +
          std::to_string(start) + ") still reads: its wait must come first\n");
  // A forward pass reads a buffer that is being received.
  StepProgram received;
  start = received.find(1, "1RECV_F1");
  callOf(received, 1, "1F0").rebase.clear();
  for (program::Rebase rebase : callOf(received, 1, "1F1").rebase)
    callOf(received, 1, "1F0").rebase.push_back(rebase);
  EXPECT_EQ(
      received.verdict().substr(0, received.verdict().find('\n')),
      "transfer: @loss_grad: rank 1, action " +
          std::to_string(received.find(1, "1F0")) +
          ": 1F0 (body) touches in.1 at byte 16, which 1RECV_F1 (action " +
          std::to_string(start) + ") still writes: its wait must come first");
  // After the Wait, the same access is correct.
  StepProgram after;
  size_t wait = after.find(0, "0WAIT_SEND_F0");
  after.list(0).insert(after.list(0).begin() + wait + 1,
                       copyInto(src, after.p.intern("stray")));
  EXPECT_EQ(after.verdict(), "");
}
