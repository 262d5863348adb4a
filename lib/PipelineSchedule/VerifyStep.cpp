// Checks that the command lists of a training step match the pipeline schedule
// from which they were generated.

#include "cleave/PipelineSchedule/VerifyProgram.h"

#include "Deadlock.h"
#include "Touches.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace cleave::pipeline {

namespace {

// A command of a rank's list, and the action of the pipeline schedule that it
// performs: a forward or backward pass, or a transfer.
struct Entry {
  Action action;
  Phase phase = Phase::Run;
  std::string called; // the pass that a call runs, such as "F"; else ""
  size_t index = 0;   // in the list
  bool operator==(const Entry &other) const {
    return action == other.action && phase == other.phase &&
           called == other.called;
  }
};

std::string print(const Entry &entry) {
  std::string text = print(LoweredAction{entry.action, entry.phase, -1});
  if (!entry.called.empty() && entry.called != spelling(entry.action.kind))
    text += " (" + entry.called + ")";
  return text;
}

class RankList {
public:
  RankList(const program::Program &program, const StepOrigin &origin, int rank,
           std::vector<Finding> &findings)
      : program(program), origin(origin), rank(rank), findings(findings),
        step(program.findAction(origin.action, rank)) {
    while (globalRank < program.numRanks() &&
           program.classOf(globalRank) != static_cast<uint32_t>(rank))
      ++globalRank;
  }

  void run() {
    static const std::vector<program::Command> none;
    const std::vector<program::Command> &commands =
        step ? step->commands : none;
    std::vector<Entry> found = entriesOf(commands);
    compare(found, expected(found));
    checkSlots(commands);
  }

private:
  //--- The list against the schedule --------------------------------------//

  std::optional<Action> labelOf(const program::Command &command) const {
    std::string text = program.strings[command.source];
    if (size_t wait = text.find("WAIT_"); wait != std::string::npos)
      text.erase(wait, 5);
    Result<Action> action = parseAction(text);
    return action ? std::optional<Action>(*action) : std::nullopt;
  }

  // Returns the forward passes, backward passes and transfers of a command
  // list. Commands that move parameters, gradients or stored inputs are
  // omitted.
  std::vector<Entry> entriesOf(const std::vector<program::Command> &commands) {
    std::vector<Entry> found;
    std::map<int32_t, Action> started; // by token
    for (size_t i = 0; i < commands.size(); ++i) {
      if (auto *wait = std::get_if<program::Wait>(&commands[i].op)) {
        if (auto start = started.find(wait->token); start != started.end())
          found.push_back({start->second, Phase::Wait, "", i});
        continue;
      }
      std::optional<Action> action = labelOf(commands[i]);
      auto *call = std::get_if<program::Call>(&commands[i].op);
      if (call && !action && isPass(program.actions[call->action].name))
        report("once", i, "is no action of a table");
      if (!action)
        continue;
      if (call && isCompute(action->kind)) {
        found.push_back({*action, Phase::Run, partOf(i, *call, *action), i});
      } else if (auto *message =
                     std::get_if<program::Collective>(&commands[i].op);
                 message && isTransfer(action->kind)) {
        if (message->token >= 0)
          started[message->token] = *action;
        checkEnds(i, *message, *action);
        found.push_back({*action, Phase::Start, "", i});
      } else if (std::holds_alternative<program::Copy>(commands[i].op) &&
                 isTransfer(action->kind)) {
        // A message may consist of several copies.
        Entry entry{*action, Phase::Run, "", i};
        if (found.empty() || !(found.back() == entry))
          found.push_back(entry);
      }
    }
    return found;
  }

  // Returns whether a function that a command calls, such as ".F.0", is the
  // forward or backward pass of a stage.
  static bool isPass(const std::string &called) {
    for (ActionKind kind :
         {ActionKind::F, ActionKind::I, ActionKind::W, ActionKind::B})
      if (called.starts_with("." + std::string(spelling(kind)) + "."))
        return true;
    return false;
  }

  // Returns which pass of the stage the call runs: "F" (forward), "I" (input
  // gradient), "W" (weight gradient) or "B" (I and W). For example, a call of
  // the function ".F.0" runs "F". Reports a call of another function than the
  // one for the action in the call's label, such as 0F3.
  std::string partOf(size_t index, const program::Call &call,
                     const Action &action) {
    const std::string &name = program.actions[call.action].name;
    for (const std::string &part : partsOf(action.kind))
      if (name == nameOf(part, action.stage))
        return part;
    report("once", index, "calls " + name + ", which is not its action");
    return std::string(spelling(action.kind));
  }

  static std::vector<std::string> partsOf(ActionKind kind) {
    if (kind == ActionKind::B)
      return {"B", "I", "W"};
    return {std::string(spelling(kind))};
  }

  static std::string nameOf(const std::string &part, int stage) {
    return "." + part + "." + std::to_string(stage);
  }

  void checkEnds(size_t index, const program::Collective &message,
                 const Action &action) {
    for (const LoweredAction &entry : origin.table.actions[rank]) {
      if (entry.action != action)
        continue;
      std::vector<int> ends = {rank, entry.peer};
      if (isReceive(action.kind))
        std::swap(ends[0], ends[1]);
      std::vector<int> found;
      for (int64_t member : membersOf(program, message, globalRank))
        found.push_back(static_cast<int>(program.classOf(member)));
      if (message.kind != program::CollectiveKind::SendRecv || found != ends)
        report("transfer", index,
               "is not from rank " + std::to_string(ends[0]) + " to rank " +
                   std::to_string(ends[1]) + " of the pipeline");
      return;
    }
  }

  // Returns the list of passes and transfers that the pipeline schedule
  // requires. A pass is omitted if the stage has no such action, for example no
  // input gradient. A transfer is omitted if it is not in `found`, because an
  // empty message is not sent.
  std::vector<Entry> expected(const std::vector<Entry> &found) const {
    std::set<Action> moved;
    for (const Entry &entry : found)
      moved.insert(entry.action);
    std::vector<Entry> entries;
    for (const LoweredAction &entry : origin.table.actions[rank]) {
      const Action &action = entry.action;
      if (isCompute(action.kind)) {
        for (const std::string &part : partsOf(action.kind))
          if (action.kind == ActionKind::F ||
              program.findAction(nameOf(part, action.stage), rank))
            entries.push_back({action, Phase::Run, part, 0});
      } else if (isTransfer(action.kind) && moved.count(action)) {
        if (entry.peer == rank) { // copied at the receiving stage
          if (isReceive(action.kind))
            entries.push_back({action, Phase::Run, "", 0});
          continue;
        }
        if (entry.phase != Phase::Wait)
          entries.push_back({action, Phase::Start, "", 0});
        if (entry.phase != Phase::Start)
          entries.push_back({action, Phase::Wait, "", 0});
      }
    }
    return entries;
  }

  // Reports only the first difference, because later differences are its
  // consequences.
  void compare(const std::vector<Entry> &found,
               const std::vector<Entry> &wanted) {
    auto [at, want] =
        std::mismatch(found.begin(), found.end(), wanted.begin(), wanted.end());
    if (at == found.end() && want == wanted.end())
      return;
    auto count = [](const std::vector<Entry> &entries, const Entry &entry) {
      return std::count(entries.begin(), entries.end(), entry);
    };
    if (want != wanted.end() && count(found, *want) < count(wanted, *want)) {
      std::string text = "the list of rank " + std::to_string(rank) +
                         " lacks " + print(*want) +
                         (want->called.empty() ? "" : " (a call)");
      if (at != found.end())
        text += ", but has " + placed(at->index).text + " in its place";
      findings.push_back({"once", text, {}});
      if (at != found.end())
        findings.back().places = {placed(at->index)};
    } else if (want == wanted.end() || count(found, *at) > count(wanted, *at)) {
      report("once", at->index,
             "is there more often than in the table of its rank");
    } else {
      report("order", at->index, "is where the table has " + print(*want));
    }
  }

  //--- Slots --------------------------------------------------------------//

  // An arena has slots, each of which holds the values of one microbatch at a
  // time. This is the microbatch that occupies a slot, and the last command
  // that accessed the slot for this microbatch.
  struct Holder {
    int microbatch = -1;
    size_t last = 0;
  };

  int64_t slotBytes(int32_t arena) const {
    return arena < static_cast<int32_t>(origin.slotBytes.size())
               ? origin.slotBytes[arena]
               : 0;
  }

  // Returns the slots that a command accesses, each as its arena and its number
  // in the arena.
  std::set<std::pair<int32_t, int64_t>>
  slotsOf(const program::Command &command) {
    std::vector<Touch> touches;
    auto *call = std::get_if<program::Call>(&command.op);
    if (call) {
      auto [entry, isNew] = calledTouches.try_emplace(call->action);
      if (isNew)
        for (const program::Command &inner :
             program.actions[call->action].commands)
          for (const Touch &touch : touchesOf(program, inner, globalRank))
            if (slotBytes(touch.arena) > 0)
              entry->second.push_back(touch);
      touches = entry->second;
      for (Touch &touch : touches)
        for (const program::Rebase &rebase : call->rebase)
          if (rebase.arena == touch.arena)
            touch.begin += rebase.offset;
    } else {
      touches = touchesOf(program, command, globalRank);
    }
    std::set<std::pair<int32_t, int64_t>> slots;
    for (const Touch &touch : touches)
      if (int64_t bytes = slotBytes(touch.arena))
        slots.insert({touch.arena, touch.begin / bytes});
    return slots;
  }

  void checkSlots(const std::vector<program::Command> &commands) {
    readLoads();
    std::map<int32_t, size_t> started; // starts by token
    for (size_t i = 0; i < commands.size(); ++i) {
      size_t what = i; // a wait accesses the slots of its start
      if (auto *wait = std::get_if<program::Wait>(&commands[i].op)) {
        auto start = started.find(wait->token);
        if (start == started.end())
          continue;
        what = start->second;
      } else if (auto *message =
                     std::get_if<program::Collective>(&commands[i].op)) {
        started[message->token] = i;
      }
      std::optional<Action> action = labelOf(commands[what]);
      if (!action || action->microbatch < 0)
        continue;
      for (auto [arena, slot] : slotsOf(commands[what]))
        if (!hold(i, action->microbatch, arena, slot))
          return; // later findings are consequences
    }
  }

  // Records in which slots the host stores the inputs of a step before the step
  // runs.
  void readLoads() {
    for (int m = 0; m < origin.table.microbatches; ++m)
      if (const program::Action *load =
              program.findAction(program::loadAction(m), rank))
        for (const program::Command &command : load->commands)
          for (auto [arena, slot] : slotsOf(command))
            slotOf.try_emplace({arena, m}, std::pair(slot, "@" + load->name));
  }

  bool hold(size_t index, int microbatch, int32_t arena, int64_t slot) {
    const std::string where =
        "slot " + std::to_string(slot) + " of " + program.arenas[arena].name;
    auto [own, isFirst] = slotOf.try_emplace({arena, microbatch}, slot,
                                             placed(index).text + " (action " +
                                                 std::to_string(index) + ")");
    if (own->second.first != slot) {
      report("slot", index,
             "touches " + where + ", but the values of its microbatch are in " +
                 "slot " + std::to_string(own->second.first) + " since " +
                 own->second.second);
      return false;
    }
    Holder &holder = holders[{arena, slot}];
    if (holder.microbatch != microbatch) {
      if (!taken.insert({arena, microbatch}).second) {
        report("slot", index,
               "needs " + where + ", which " + placed(holder.last).text +
                   " (action " + std::to_string(holder.last) +
                   ") has taken for another microbatch");
        return false;
      }
      holder.microbatch = microbatch;
    }
    holder.last = index;
    return true;
  }

  //--- Findings -----------------------------------------------------------//

  Place placed(size_t index) const {
    return {rank, index, program.strings[step->commands[index].source]};
  }

  void report(const std::string &rule, size_t index, const std::string &why) {
    const Place place = placed(index);
    findings.push_back({rule, describe(place) + " " + why, {place}});
  }

  const program::Program &program;
  const StepOrigin &origin;
  const int rank;
  std::vector<Finding> &findings;
  const program::Action *step; // null: nothing is called
  int64_t globalRank = 0;      // the first rank with this list
  std::map<uint32_t, std::vector<Touch>> calledTouches;
  // For each arena and microbatch: the slot that holds the values of the
  // microbatch, and the first command that accessed this slot for it.
  std::map<std::pair<int32_t, int>, std::pair<int64_t, std::string>> slotOf;
  std::map<std::pair<int32_t, int64_t>, Holder> holders;
  std::set<std::pair<int32_t, int>> taken;
};

} // namespace

std::vector<Finding> verifyStep(const program::Program &program,
                                const StepOrigin &origin, size_t most) {
  std::vector<Finding> findings;
  // A program that is only for inference has no step.
  if (std::none_of(program.actions.begin(), program.actions.end(),
                   [&](const program::Action &action) {
                     return action.name == origin.action;
                   }))
    return findings;
  for (int rank = 0; rank < origin.table.ranks; ++rank)
    RankList(program, origin, rank, findings).run();
  for (Finding &finding : findings)
    finding.message = "@" + origin.action + ": " + finding.message;
  findings.resize(std::min(findings.size(), most));
  return findings;
}

} // namespace cleave::pipeline
