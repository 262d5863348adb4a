// Reads the schedule attribute of a module with pipeline stages.

#include "cleave/Target/Schedule.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"

#include "mlir/IR/Builders.h"

#include <set>

using namespace mlir;
using namespace cleave;
using namespace cleave::target;

void target::setSchedule(ModuleOp module, const PipelineSchedule &schedule) {
  Builder b(module);
  module->setAttr(pipe::kScheduleAttr,
                  pipe::ScheduleAttr::get(
                      b.getContext(), b.getStringAttr(schedule.axis),
                      b.getStringAttr(schedule.link), schedule.position,
                      b.getStringAttr(schedule.table.schedule),
                      b.getStringAttr(pipeline::writeTable(schedule.table)),
                      schedule.table.asynchronous));
}

bool target::isPipelined(ModuleOp module) {
  return module->hasAttr(pipe::kScheduleAttr);
}

FailureOr<std::optional<PipelineSchedule>> target::scheduleOf(ModuleOp module) {
  auto attr = module->getAttrOfType<pipe::ScheduleAttr>(pipe::kScheduleAttr);
  if (!attr)
    return std::optional<PipelineSchedule>();
  PipelineSchedule schedule;
  schedule.axis = attr.getAxis().str();
  schedule.link = attr.getLink().str();
  schedule.position = attr.getPosition();
  auto table =
      pipeline::readTableText(attr.getTable().str(), attr.getName().str());
  if (!table)
    return module.emitError() << pipe::kScheduleAttr << ": " << table.error();
  schedule.table = std::move(*table);
  schedule.table.schedule = attr.getName().str();
  schedule.table.asynchronous = attr.getAsynchronous();
  return std::optional(std::move(schedule));
}

pipeline::Result<pipeline::LoweredTable>
target::lowerSchedule(const PipelineSchedule &schedule) {
  using namespace pipeline;
  Result<LoweredTable> lowered = lower(schedule.table);
  if (!lowered)
    return lowered;
  for (auto [rank, list] : llvm::enumerate(lowered->actions)) {
    std::vector<int> &own = lowered->stagesOfRank[rank];
    // `here` has the forward passes that this rank runs. The adjacent stage may
    // be on several ranks, and then another rank may run it for this
    // microbatch.
    std::set<Action> here;
    for (const LoweredAction &entry : list)
      if (entry.action.kind == ActionKind::F)
        here.insert(entry.action);
    std::vector<LoweredAction> with;
    for (const LoweredAction &entry : list) {
      with.push_back(entry);
      const Action &done = entry.action;
      bool forward = done.kind == ActionKind::F;
      bool backward = done.kind == ActionKind::I || done.kind == ActionKind::B;
      int next = done.stage + (forward ? 1 : -1);
      if ((!forward && !backward) || !llvm::is_contained(own, next))
        continue;
      if (!here.count({next, ActionKind::F, done.microbatch}))
        continue;
      ActionKind send = forward ? ActionKind::SendF : ActionKind::SendB;
      ActionKind receive = forward ? ActionKind::RecvF : ActionKind::RecvB;
      with.push_back(
          {{done.stage, send, done.microbatch}, Phase::Run, int(rank)});
      with.push_back({{next, receive, done.microbatch}, Phase::Run, int(rank)});
    }
    list = std::move(with);
  }
  return lowered;
}

std::optional<pipeline::ValueClass> target::valueClassOf(int stage,
                                                         StringRef slot) {
  using namespace pipeline;
  auto event = [](StringRef name, bool starts) -> std::optional<Event> {
    Phase phase = starts ? Phase::Start : Phase::Wait;
    if (name == "recv_f")
      return Event{ActionKind::RecvF, phase};
    if (name == "recv_b")
      return Event{ActionKind::RecvB, phase};
    if (name == "send_f")
      return Event{ActionKind::SendF, phase};
    if (name == "send_b")
      return Event{ActionKind::SendB, phase};
    for (ActionKind kind :
         {ActionKind::F, ActionKind::I, ActionKind::W, ActionKind::B})
      if (name == StringRef(spelling(kind)))
        return Event{kind, Phase::Run};
    return std::nullopt;
  };
  auto [first, last] = slot.split(':');
  ValueClass parsed;
  parsed.stage = stage;
  if (std::optional<Event> begins = event(first, true))
    parsed.first = {*begins};
  SmallVector<StringRef> ends;
  last.split(ends, ',');
  for (StringRef name : ends)
    if (std::optional<Event> end = event(name, false))
      parsed.last.push_back(*end);
  // The lifetime of a value includes at least the event that it begins with,
  // such as the action that computes it, even if the value is never sent.
  if (!parsed.first.empty())
    parsed.last.push_back(parsed.first[0]);
  if (parsed.first.empty())
    return std::nullopt;
  return parsed;
}
