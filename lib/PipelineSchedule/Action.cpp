// The text form of actions.

#include "cleave/PipelineSchedule/Action.h"

#include <array>
#include <cctype>
#include <climits>

namespace cleave::pipeline {

namespace {

struct Spelling {
  ActionKind kind;
  std::string_view text;
};

constexpr std::array<Spelling, 11> spellings = {{
    {ActionKind::F, "F"},
    {ActionKind::I, "I"},
    {ActionKind::W, "W"},
    {ActionKind::B, "B"},
    {ActionKind::SendF, "SEND_F"},
    {ActionKind::RecvF, "RECV_F"},
    {ActionKind::SendB, "SEND_B"},
    {ActionKind::RecvB, "RECV_B"},
    {ActionKind::Unshard, "UNSHARD"},
    {ActionKind::Reshard, "RESHARD"},
    {ActionKind::ReduceGrad, "REDUCE_GRAD"},
}};

std::string_view trim(std::string_view text) {
  while (!text.empty() &&
         std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return text;
}

// Removes the number at the front of `text` and returns it; -1 if there is no
// number or it is larger than any table allows.
int takeNumber(std::string_view &text) {
  constexpr int most = 1 << 20;
  int value = 0;
  size_t digits = 0;
  for (; digits < text.size() &&
         std::isdigit(static_cast<unsigned char>(text[digits]));
       ++digits)
    if (value <= most)
      value = value * 10 + (text[digits] - '0');
  text.remove_prefix(digits);
  return digits == 0 || value > most ? -1 : value;
}

Error malformed(std::string_view text, const std::string &why) {
  return {"'" + std::string(text) + "' is no action: " + why};
}

} // namespace

std::string_view spelling(ActionKind kind) {
  return spellings[static_cast<size_t>(kind)].text;
}

bool isCompute(ActionKind kind) { return kind <= ActionKind::B; }

bool isSend(ActionKind kind) {
  return kind == ActionKind::SendF || kind == ActionKind::SendB;
}

bool isReceive(ActionKind kind) {
  return kind == ActionKind::RecvF || kind == ActionKind::RecvB;
}

bool hasMicrobatch(ActionKind kind) { return kind <= ActionKind::RecvB; }

std::string print(const Action &action) {
  std::string text = std::to_string(action.stage);
  text += spelling(action.kind);
  if (action.microbatch >= 0)
    text += std::to_string(action.microbatch);
  return text;
}

Result<Action> parseAction(std::string_view text) {
  std::string_view rest = trim(text), whole = rest;
  Action action;
  action.stage = takeNumber(rest);
  if (action.stage < 0)
    return malformed(whole, "expected the number of a stage first, as in 0F3");
  size_t letters = 0;
  while (letters < rest.size() &&
         !std::isdigit(static_cast<unsigned char>(rest[letters])))
    ++letters;
  std::string_view kind = rest.substr(0, letters);
  rest.remove_prefix(letters);
  const Spelling *found = nullptr;
  for (const Spelling &known : spellings)
    if (known.text == kind)
      found = &known;
  if (!found)
    return malformed(whole,
                     "stage " + std::to_string(action.stage) +
                         ": unknown kind '" + std::string(kind) +
                         "'; known are F, I, W, B, SEND_F, RECV_F, SEND_B, "
                         "RECV_B, UNSHARD, RESHARD, REDUCE_GRAD");
  action.kind = found->kind;
  if (!rest.empty()) {
    action.microbatch = takeNumber(rest);
    if (action.microbatch < 0 || !rest.empty())
      return malformed(whole, "expected the number of a microbatch at the end");
  }
  if (hasMicrobatch(action.kind) && action.microbatch < 0)
    return malformed(whole, "stage " + std::to_string(action.stage) + ": " +
                                std::string(kind) +
                                " needs the number of a microbatch");
  if ((action.kind == ActionKind::Unshard ||
       action.kind == ActionKind::Reshard) &&
      action.microbatch >= 0)
    return malformed(whole, std::string(kind) + " has no microbatch");
  return action;
}

Result<std::vector<Action>> parseCell(std::string_view text) {
  std::string_view rest = trim(text), whole = rest;
  std::vector<Action> actions;
  if (rest.empty())
    return actions;
  if (rest.front() != '(') {
    Result<Action> action = parseAction(rest);
    if (!action)
      return Error{action.error()};
    actions.push_back(*action);
    return actions;
  }
  size_t close = rest.find(')');
  if (close == std::string_view::npos ||
      rest.substr(close + 1) != "OVERLAP_F_B")
    return malformed(whole, "a group is written (0F3;7B2)OVERLAP_F_B");
  rest = rest.substr(1, close - 1);
  while (true) {
    size_t end = rest.find(';');
    Result<Action> action = parseAction(rest.substr(0, end));
    if (!action)
      return Error{action.error()};
    if (!isCompute(action->kind))
      return malformed(whole, print(*action) + " does not compute");
    actions.push_back(*action);
    if (end == std::string_view::npos)
      return actions;
    rest.remove_prefix(end + 1);
  }
}

} // namespace cleave::pipeline
