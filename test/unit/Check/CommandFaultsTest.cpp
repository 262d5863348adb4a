// Faults injected into command lists.

#include "cleave/Check/Faults.h"

#include "gtest/gtest.h"

using namespace cleave;
using namespace cleave::program;

namespace {

BufferRef at(int64_t offset) { return {1, offset, {}}; }

Command copy(int64_t from, int64_t to) {
  Copy copy;
  copy.src = at(from);
  copy.dst = at(to);
  return {copy};
}

Command allReduce(int64_t from, int64_t to, int64_t count, int32_t token) {
  Collective collective;
  collective.group = {{0, 1, 2}};
  Transfer part;
  part.src = at(from);
  part.dst = at(to);
  part.count = count;
  collective.parts = {part};
  collective.token = token;
  return {collective};
}

Program programOf(std::vector<Command> commands) {
  Program program;
  program.mesh = {{"data", 2, ""}};
  Action action;
  action.name = "loss_grad";
  action.commands = std::move(commands);
  program.actions = {action};
  return program;
}

enum Kind { isCollective, isWait, isCopy, isOther };

std::vector<Kind> kinds(const Program &program) {
  std::vector<Kind> kinds;
  for (const Command &command : program.actions[0].commands)
    if (std::holds_alternative<Collective>(command.op))
      kinds.push_back(isCollective);
    else if (std::holds_alternative<Wait>(command.op))
      kinds.push_back(isWait);
    else
      kinds.push_back(std::holds_alternative<Copy>(command.op) ? isCopy
                                                               : isOther);
  return kinds;
}

TEST(CommandFaults, TransferEndsAfterItsReader) {
  Program program = programOf({copy(0, 64), allReduce(64, 128, 4, -1),
                               copy(0, 256), copy(136, 256), copy(0, 320)});
  std::string where;
  ASSERT_TRUE(succeeded(check::injectFault(program, "missing-wait", -1, where)))
      << where;
  EXPECT_EQ(kinds(program),
            (std::vector<Kind>{isCopy, isCopy, isCopy, isCollective, isCopy}));
  EXPECT_NE(where.find("@loss_grad"), std::string::npos);
}

TEST(CommandFaults, WaitMoves) {
  Program program = programOf(
      {allReduce(64, 128, 4, 7), copy(0, 256), {Wait{7}}, copy(128, 256)});
  std::string where;
  ASSERT_TRUE(succeeded(check::injectFault(program, "missing-wait", 0, where)));
  EXPECT_EQ(kinds(program),
            (std::vector<Kind>{isCollective, isCopy, isCopy, isWait}));
}

TEST(CommandFaults, OnADeviceALaterOneOfTheGroupEndsItToo) {
  Program program = programOf({allReduce(64, 128, 4, 7),
                               allReduce(64, 192, 4, 8),
                               {Wait{8}},
                               {Wait{7}},
                               copy(128, 256)});
  std::string where;
  program.device = Device::Cuda;
  EXPECT_TRUE(failed(check::injectFault(program, "missing-wait", 0, where)));
  program.device = Device::Cpu;
  EXPECT_TRUE(succeeded(check::injectFault(program, "missing-wait", 0, where)));
}

TEST(CommandFaults, NobodyReads) {
  Program program = programOf({allReduce(64, 128, 4, -1), copy(144, 256)});
  std::string where;
  EXPECT_TRUE(failed(check::injectFault(program, "missing-wait", -1, where)));
  EXPECT_EQ(where, "this program cannot have the fault missing-wait: it has no "
                   "transfer that a later command reads");
}

TEST(CommandFaults, IndexOutOfRange) {
  Program program = programOf({allReduce(64, 128, 4, -1), copy(128, 256)});
  std::string where;
  EXPECT_TRUE(failed(check::injectFault(program, "missing-wait", 1, where)));
  EXPECT_NE(where.find("has 1 place for it"), std::string::npos);
}

} // namespace
