// An action is one entry in the ordered list of what a pipeline rank does. It
// is written as in the CSV files of torch.distributed.pipelining: `0F3` is the
// forward pass of stage 0 on microbatch 3, `1SEND_F3` sends the result of stage
// 1 for microbatch 3 to the next stage, `0UNSHARD` gathers the parameters of
// stage 0.
//
// Plain C++: no LLVM, no exceptions.

#ifndef CLEAVE_PIPELINESCHEDULE_ACTION_H
#define CLEAVE_PIPELINESCHEDULE_ACTION_H

#include "cleave/Config/Load.h"

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::pipeline {

// Functions that can fail return a value or an error.
using Error = ConfigError;
template <typename T> using Result = ConfigResult<T>;

enum class ActionKind {
  F, // forward pass
  I, // backward pass: the gradient of the stage's input
  W, // backward pass: the gradients of the stage's weights
  B, // complete backward pass: I and W as one action
  SendF,
  RecvF,
  SendB, // sends the gradient of the stage's input to the previous stage
  RecvB, // receives the gradient of the stage's output from the next stage
  Unshard,
  Reshard,
  ReduceGrad,
};

struct Action {
  int stage = 0;
  ActionKind kind = ActionKind::F;
  int microbatch = -1; // -1 where there is none
  auto operator<=>(const Action &) const = default;
};

// "F", "SEND_F", "REDUCE_GRAD".
std::string_view spelling(ActionKind kind);

// F, I, W, B.
bool isCompute(ActionKind kind);
// SEND_F, SEND_B; RECV_F, RECV_B.
bool isSend(ActionKind kind);
bool isReceive(ActionKind kind);
inline bool isTransfer(ActionKind kind) {
  return isSend(kind) || isReceive(kind);
}
// Returns whether an action of this kind has a microbatch. For REDUCE_GRAD the
// microbatch is optional, and the result is false.
bool hasMicrobatch(ActionKind kind);

// "1SEND_F3".
std::string print(const Action &action);
Result<Action> parseAction(std::string_view text);

// Parses a cell of a schedule's CSV file. A cell is empty, or has one action,
// or has a group of actions that run together, such as `(0F3;7B2)OVERLAP_F_B`.
// Returns the actions in order.
Result<std::vector<Action>> parseCell(std::string_view text);

} // namespace cleave::pipeline

#endif // CLEAVE_PIPELINESCHEDULE_ACTION_H
