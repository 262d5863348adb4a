// Computes how many bytes a command reads and writes, from the sizes of its
// operands.

#include "traffic.h"

#include "cleave/accesses.h"

using namespace cleave;
using namespace cleave::program;

int64_t cleave::trafficOf(const Program &program, const Command &command) {
  int64_t bytes = 0;
  if (auto *repeat = std::get_if<Repeat>(&command.op))
    for (const Command &inner : program.actions[repeat->action].commands)
      bytes += repeat->trips * trafficOf(program, inner);
  accesses(program.kernels, command, [&](const auto &x) {
    if (x.kind == OperandKind::Data && x.isUsed())
      bytes +=
          (int(x.isRead) + int(x.isWritten)) * x.elements() * x.elementSize;
  });
  return bytes;
}
