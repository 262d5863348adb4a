// Computes the memory that the commands of a rank access, and the ranks that
// take part in a collective.

#include "Touches.h"

#include "cleave/accesses.h"

#include <algorithm>
#include <type_traits>

namespace cleave::pipeline {

using namespace program;

namespace {

// Returns the difference in rank number between adjacent positions on the
// sub-axis.
int64_t stepOf(const Program &program, const SubAxis &sub) {
  int64_t below = 1; // ranks per step of the axis
  for (size_t axis = sub.axis + 1; axis < program.mesh.size(); ++axis)
    below *= program.mesh[axis].size;
  return below * (program.mesh[sub.axis].size / (sub.pre * sub.size));
}

class Reader {
public:
  Reader(const Program &program, int64_t rank) : program(program), rank(rank) {}

  std::vector<Touch> run(const Command &command) {
    read(command);
    return std::move(touches);
  }

private:
  void read(const Command &command) {
    std::visit([&](const auto &op) { read(op); }, command.op);
    add(command.when, Access::Read, conditionOf(command).spannedBytes());
  }

  void add(const BufferRef &ref, Access access, int64_t bytes) {
    if (!ref.present() || bytes <= 0)
      return;
    int64_t begin = ref.offset, end = begin + bytes;
    for (const AxisTerm &term : ref.terms) {
      int64_t low = 0, high = 0;
      if (term.dependsOnTrip())
        (term.coef < 0 ? low : high) = term.coef * (term.period() - 1);
      else
        low = high =
            term.coef * (rank / stepOf(program, term.on) % term.on.size);
      begin += low;
      end += high;
    }
    touches.push_back({ref.arena, begin, end, access});
  }

  // Operands of kernels and library calls are strided, and their gaps may hold
  // other values, so only the first byte is recorded.
  template <class Op> void read(const Op &op) {
    constexpr bool isLaunch = std::is_same_v<Op, Launch>;
    constexpr bool isLibraryCall = requires { op.workspace; };
    operands(program.kernels, op, [&](const auto &operand) {
      bool isScratch = operand.kind == OperandKind::Scratch;
      bool isWhole = isScratch || !(isLaunch || isLibraryCall);
      if (operand.isUsed())
        add(operand.buffer,
            isLaunch            ? Access::Unknown
            : operand.isWritten ? Access::Write
                                : Access::Read,
            isWhole ? operand.spannedBytes() : 1);
    });
  }

  // All iterations of a loop: what each reads and writes are slices of tensors
  // of which the loop reads or writes the whole.
  void read(const Repeat &repeat) {
    for (const Command &command : program.actions[repeat.action].commands)
      read(command);
  }

  void read(const Collective &collective) {
    std::vector<int64_t> members = membersOf(program, collective, rank);
    auto self = std::find(members.begin(), members.end(), rank);
    if (self == members.end())
      return;
    operands(program.kernels, collective, [&](const auto &operand) {
      if (operand.isUsed() &&
          isOfMember(collective, operand.kind, self - members.begin()))
        add(operand.buffer, operand.isWritten ? Access::Write : Access::Read,
            operand.spannedBytes());
    });
  }

  const Program &program;
  const int64_t rank;
  std::vector<Touch> touches;
};

} // namespace

std::vector<Touch> touchesOf(const Program &program, const Command &command,
                             int64_t rank) {
  return Reader(program, rank).run(command);
}

std::vector<int64_t> membersOf(const Program &program,
                               const Collective &collective, int64_t rank) {
  // The ranks that differ from this rank only in their positions on the group's
  // sub-axes; the first sub-axis varies slowest.
  std::vector<int64_t> members = {rank};
  for (const SubAxis &sub : collective.group) {
    int64_t step = stepOf(program, sub);
    std::vector<int64_t> next;
    for (int64_t member : members)
      for (int64_t i = 0; i < sub.size; ++i)
        next.push_back(member + (i - member / step % sub.size) * step);
    members = std::move(next);
  }
  if (collective.positions.empty())
    return members;
  std::vector<int64_t> some;
  for (int32_t position : collective.positions)
    some.push_back(members[position]);
  if (!std::count(some.begin(), some.end(), rank))
    some.clear();
  return some;
}

std::string nameOf(const Program &program, const Touch &touch) {
  return program.arenas[touch.arena].name + " at byte " +
         std::to_string(touch.begin);
}

} // namespace cleave::pipeline
