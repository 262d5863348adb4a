#include "StepProgram.h"

#include <algorithm>

namespace cleave::pipeline::test {

constexpr int64_t slotBytes = 16;

StepProgram::StepProgram(const std::string &schedule, int microbatches) {
  origin.action = "loss_grad";
  origin.table = *lower(*generate({schedule, 2, 0, microbatches}));
  p.mesh = {{"pipeline", 2, ""}};
  p.rankClass = {0, 1};
  const ActionKind receives[] = {ActionKind::RecvB, ActionKind::RecvF};
  const ActionKind makes[] = {ActionKind::F, ActionKind::B};
  const ActionKind sends[] = {ActionKind::SendF, ActionKind::SendB};
  std::vector<ValueClass> classes;
  for (int stage : {0, 1}) {
    classes.push_back({stage,
                       {{receives[stage], Phase::Start}},
                       {{ActionKind::B, Phase::Run}}});
    classes.push_back(
        {stage, {{makes[stage], Phase::Run}}, {{sends[stage], Phase::Wait}}});
  }
  const std::vector<SlotPlan> plans = *assignSlots(origin.table, classes);
  for (const SlotPlan &plan : plans) {
    int stage = plan.valueClass / 2;
    bool comes = plan.valueClass % 2 == 0;
    Values &values = comes ? incoming[stage] : outgoing[stage];
    values.slotOf = plan.slotOf;
    values.arena =
        addArena(std::string(comes ? "in." : "out.") + std::to_string(stage),
                 program::Lifespan::Slots, plan.count * slotBytes, stage);
  }
  origin.slotBytes.assign(p.arenas.size(), slotBytes);
  for (int stage : {0, 1}) {
    int32_t state = addArena("state." + std::to_string(stage),
                             program::Lifespan::Persistent, 64, stage);
    std::string suffix = "." + std::to_string(stage);
    addAction(".F" + suffix, stage, stage == 0 ? state : incoming[stage].arena,
              stage == 0 ? outgoing[stage].arena : state);
    actions[stage][0] = p.actions.size() - 1;
    addAction(".B" + suffix, stage, incoming[stage].arena,
              stage == 0 ? state : outgoing[stage].arena);
    actions[stage][1] = p.actions.size() - 1;
  }
  for (int rank : {0, 1}) {
    tokens.clear();
    steps.push_back(p.actions.size());
    p.actions.emplace_back();
    p.actions.back().name = origin.action;
    p.actions.back().rankClass = rank;
    for (const LoweredAction &entry : origin.table.actions[rank])
      addEntry(rank, entry);
  }
}

std::vector<program::Command> &StepProgram::list(int rank) {
  return p.actions[steps[rank]].commands;
}

size_t StepProgram::find(int rank, const std::string &label, int nth) {
  for (size_t i = 0; i < list(rank).size(); ++i)
    if (p.strings[list(rank)[i].source] == label && nth-- == 0)
      return i;
  return list(rank).size();
}

std::string StepProgram::verdict() const {
  std::string text;
  for (const std::vector<Finding> &findings :
       {verify(p), verifyStep(p, origin)})
    for (const Finding &finding : findings)
      text += finding.rule + ": " + finding.message + "\n";
  return text;
}

int32_t StepProgram::addArena(const std::string &name,
                              program::Lifespan lifespan, int64_t bytes,
                              int rank) {
  p.arenas.push_back({name, lifespan, bytes, rank});
  return static_cast<int32_t>(p.arenas.size() - 1);
}

void StepProgram::addAction(const std::string &name, int rank, int32_t from,
                            int32_t to) {
  p.actions.emplace_back();
  p.actions.back().name = name;
  p.actions.back().rankClass = rank;
  program::Copy copy;
  copy.src = {from, 0, {}};
  copy.dst = {to, 0, {}};
  copy.shape = {slotBytes};
  copy.srcStrides = copy.dstStrides = {1};
  p.actions.back().commands.push_back({copy, p.intern("body"), 0});
}

void StepProgram::add(int rank, decltype(program::Command::op) op,
                      const std::string &label) {
  list(rank).push_back({std::move(op), p.intern(label), 0});
}

program::BufferRef StepProgram::at(const Values &values, int microbatch) const {
  return {values.arena, values.slotOf[microbatch] * slotBytes, {}};
}

void StepProgram::addEntry(int rank, const LoweredAction &entry) {
  auto [stage, kind, m] = entry.action;
  const std::string label = print(entry);
  if (isCompute(kind)) {
    program::Call call;
    call.action = actions[stage][kind == ActionKind::B];
    call.label = p.intern(label);
    for (const Values *values : {&incoming[stage], &outgoing[stage]})
      call.rebase.push_back({values->arena, at(*values, m).offset});
    add(rank, call, label);
  } else if (entry.phase == Phase::Wait) {
    for (const auto &[action, token] : tokens)
      if (action == entry.action)
        add(rank, program::Wait{token}, label);
  } else {
    bool sends = isSend(kind);
    program::Collective message;
    message.kind = program::CollectiveKind::SendRecv;
    message.dtype = program::DType::U8;
    message.group = {{0, 1, 2}};
    message.positions = {sends ? rank : entry.peer, sends ? entry.peer : rank};
    message.token = static_cast<int32_t>(tokens.size());
    program::Transfer part;
    part.src = part.dst = at(sends ? outgoing[stage] : incoming[stage], m);
    part.count = part.inner = part.dstInner = slotBytes;
    message.parts = {part};
    tokens.push_back({entry.action, message.token});
    add(rank, message, label);
  }
}

} // namespace cleave::pipeline::test
