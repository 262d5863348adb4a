// Makes a program from a pipeline schedule. Its stages do not compute: each
// forward or backward pass sleeps for a given time.

#include "SleepingProgram.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <sys/prctl.h>
#include <thread>

using namespace cleave;
using namespace cleave::pipeline;
using program::BufferRef;
using test::SleepingOptions;

namespace {
constexpr int64_t idBytes = 64;

int column(ActionKind kind) { return static_cast<int>(kind); } // F, I, W, B

// The memory slots, one for each microbatch in flight, through which one action
// of a rank passes a value to another action.
struct Slots {
  BufferRef slot0;
  const SlotPlan *plan = nullptr;
};

class Builder {
public:
  Builder(const LoweredTable &table, std::string &error,
          const SleepingOptions &options)
      : table(table), error(error), options(options),
        slotBytes(options.messageBytes) {}

  program::Program build() {
    p.mesh = {{"pipeline", table.ranks, ""}};
    for (int rank = 0; rank < table.ranks; ++rank)
      p.rankClass.push_back(uint32_t(rank));
    p.arenas = {{"state", program::Lifespan::Persistent, 0, -1},
                {"transient", program::Lifespan::Transient, 0, -1}};
    times = addBuffer("times", table.stages * 4);
    errors = addBuffer("errors", 1);
    p.boundary.back().partial = {{0, 1, table.ranks}};
    norm = addBuffer("norm", 1);
    if (options.delays)
      delay = addBuffer("delay", 1);
    p.arenas.push_back({"ids", program::Lifespan::Persistent,
                        table.microbatches * idBytes, -1});
    program::Boundary ids;
    ids.name = "ids";
    ids.dtype = program::DType::F64;
    ids.globalShape = ids.localShape = {table.microbatches, idBytes / 8};
    ids.buffer = {2, 0, {}};
    p.boundary.push_back(ids);
    p.kernels = {{"pass", 5}, {"sleep", 1}};
    planSlots();
    for (int rank = 0; rank < table.ranks && error.empty(); ++rank)
      addRank(rank);
    return std::move(p);
  }

private:
  // The kinds of values that a rank has for each stage and direction: values
  // that it received, values that it sends, and values that stay on the rank
  // because the neighbouring stage is on the same rank.
  enum Role { Received, Sent, Stays };

  BufferRef addBuffer(const std::string &name, int64_t count) {
    program::Boundary entry;
    entry.name = name;
    entry.dtype = program::DType::F64;
    entry.globalShape = entry.localShape = {count};
    entry.buffer = {0, p.arenas[0].size, {}};
    p.arenas[0].size += (count * 8 + 63) / 64 * 64;
    p.boundary.push_back(entry);
    return entry.buffer;
  }

  void planSlots() {
    for (int stage = 0; stage < table.stages; ++stage)
      for (bool forward : {true, false}) {
        ActionKind own = forward ? ActionKind::F : ActionKind::I;
        ActionKind send = forward ? ActionKind::SendF : ActionKind::SendB;
        ActionKind receive = forward ? ActionKind::RecvF : ActionKind::RecvB;
        Event pass{own}, next{own, Phase::Run, forward ? 1 : -1};
        classes.push_back({stage, {{receive, Phase::Start}}, {pass}});
        classes.push_back({stage, {pass}, {{send, Phase::Wait}}});
        classes.push_back({stage, {pass}, {next}});
      }
    Result<std::vector<SlotPlan>> found = assignSlots(table, classes);
    if (!found) {
      error = found.error();
      return;
    }
    plans = *found;
    for (const SlotPlan &plan : plans) {
      p.arenas.push_back({"slots" + std::to_string(plan.valueClass),
                          program::Lifespan::Slots, plan.count * slotBytes,
                          plan.rank});
      slots[{plan.rank, plan.valueClass}] = {
          {int32_t(p.arenas.size()) - 1, 0, {}}, &plan};
    }
  }

  // Returns the buffer in which the rank has a value of the stage and
  // microbatch, with the offset of the microbatch's slot. Returns an absent
  // reference if the rank has no such value.
  BufferRef find(int rank, int stage, bool forward, Role role, int microbatch,
                 std::vector<program::Rebase> *moved = nullptr) {
    if (stage < 0 || stage >= table.stages)
      return {};
    auto found = slots.find({rank, 6 * stage + (forward ? 0 : 3) + role});
    if (found == slots.end())
      return {};
    int slot = found->second.plan->slotOf[microbatch];
    if (slot < 0)
      return {};
    BufferRef ref = found->second.slot0;
    if (moved)
      moved->push_back({ref.arena, slot * slotBytes});
    else
      ref.offset += slot * slotBytes;
    return ref;
  }

  // Returns the index of the program::Action that performs the forward or
  // backward pass `action` of a stage, with the input `in` and the output
  // `out`. Creates it if it does not exist yet. The commands of the rank call
  // it for each microbatch.
  uint32_t actionFor(const Action &action, BufferRef in, BufferRef out) {
    std::string name = "." + std::string(spelling(action.kind)) +
                       std::to_string(action.stage) + "." +
                       std::to_string(in.arena) + "." +
                       std::to_string(out.arena);
    auto [found, isNew] = made.try_emplace({own, name}, 0);
    if (!isNew)
      return found->second;
    program::Action callee;
    callee.name = name;
    callee.rankClass = uint32_t(own);
    BufferRef time = times;
    time.offset += (4 * action.stage + column(action.kind)) * 8;
    bool passes = action.kind != ActionKind::W;
    program::Launch launch;
    launch.kernel = passes ? 0 : 1;
    launch.extent = 1;
    BufferRef id{2, 0, {}};
    // The first stage of the forward pass and the last stage of the backward
    // pass receive no value from another stage. They compute their value from
    // the number of the microbatch.
    if (passes)
      launch.args = {time, id, in.present() ? in : id,
                     out.present() ? out : BufferRef{scratchOf(own), 0, {}},
                     errors};
    else
      launch.args = {time};
    callee.commands.push_back({launch, p.intern(name), 0});
    made[{own, name}] = uint32_t(p.actions.size());
    p.actions.push_back(callee);
    return uint32_t(p.actions.size()) - 1;
  }

  int32_t scratchOf(int rank) {
    int32_t &arena = scratch[rank];
    if (!arena) {
      p.arenas.push_back(
          {"scratch", program::Lifespan::Slots, slotBytes, rank});
      arena = int32_t(p.arenas.size()) - 1;
    }
    return arena;
  }

  // Returns an all-reduce of one number over all ranks, like that of the
  // gradient norm in a training step.
  program::Command addUp() {
    program::Collective all;
    all.dtype = program::DType::F64;
    all.group = {{0, 1, table.ranks}};
    all.purpose = p.intern("norm");
    program::Transfer part;
    part.src = part.dst = norm;
    part.count = part.inner = part.dstInner = 1;
    all.parts = {part};
    return {all, p.intern("norm"), 0};
  }

  void addRank(int rank) {
    own = rank;
    program::Action run;
    run.name = "run";
    run.rankClass = uint32_t(rank);
    std::map<Action, int32_t> tokens;
    int32_t nextToken = 0;
    int step = 0;
    for (const LoweredAction &lowered : table.actions[rank]) {
      const Action &action = lowered.action;
      // The all-reduce between two steps comes after the last Start of the
      // first step, and before the second step waits for anything.
      if (options.stepOfNorm > 0 && lowered.phase != Phase::Start)
        for (; step < action.microbatch / options.stepOfNorm; ++step)
          run.commands.push_back(addUp());
      program::Command command;
      command.source = p.intern(print(lowered));
      if (options.delays && isTransfer(action.kind)) {
        program::Launch launch;
        launch.kernel = 1;
        launch.extent = 1;
        launch.args = {delay};
        run.commands.push_back({launch, command.source, 0});
      }
      if (lowered.phase == Phase::Wait) {
        command.op = program::Wait{tokens.at(action)};
      } else if (isTransfer(action.kind)) {
        bool sends = isSend(action.kind);
        bool forward = action.kind == ActionKind::SendF ||
                       action.kind == ActionKind::RecvF;
        program::Collective transfer;
        transfer.kind = program::CollectiveKind::SendRecv;
        transfer.dtype = program::DType::F64;
        transfer.group = {{0, 1, table.ranks}};
        transfer.positions = {sends ? rank : lowered.peer,
                              sends ? lowered.peer : rank};
        transfer.purpose = p.intern("pipeline");
        transfer.token = tokens[action] = nextToken++;
        program::Transfer part;
        part.count = slotBytes / 8;
        (sends ? part.src : part.dst) =
            find(rank, action.stage, forward, sends ? Sent : Received,
                 action.microbatch);
        transfer.parts = {part};
        command.op = transfer;
      } else if (isCompute(action.kind)) {
        program::Call call;
        call.label = command.source;
        call.rebase = {{2, action.microbatch * idBytes}};
        bool forward = action.kind == ActionKind::F;
        BufferRef in, out;
        if (action.kind != ActionKind::W) {
          in = find(rank, action.stage, forward, Received, action.microbatch,
                    &call.rebase);
          if (!in.present())
            in = find(rank, action.stage + (forward ? -1 : 1), forward, Stays,
                      action.microbatch, &call.rebase);
          out = find(rank, action.stage, forward, Sent, action.microbatch,
                     &call.rebase);
          if (!out.present())
            out = find(rank, action.stage, forward, Stays, action.microbatch,
                       &call.rebase);
        }
        call.action = actionFor(action, in, out);
        command.op = call;
      } else {
        error = "the program has no " + print(action);
        return;
      }
      run.commands.push_back(command);
    }
    p.actions.push_back(run);
  }

  const LoweredTable &table;
  std::string &error;
  const SleepingOptions &options;
  const int64_t slotBytes;
  program::Program p;
  BufferRef times, errors, norm, delay;
  std::vector<ValueClass> classes;
  std::vector<SlotPlan> plans;
  std::map<std::pair<int, int>, Slots> slots; // by rank and value class
  std::map<std::pair<int, std::string>, uint32_t> made;
  std::map<int, int32_t> scratch;
  int own = 0;
};

// The forward or backward pass of a stage adds one unit to its input. The first
// stage of the forward pass and the last stage of the backward pass begin with
// the number of the microbatch. A value therefore encodes its microbatch and
// how many stages it has passed; the value of a wrong microbatch differs by a
// whole number.
constexpr double passUnit = 1.0 / 1024;

void pass(const cleave_ctx *, void *const *args, int64_t, int64_t) {
  auto at = [&](int i) { return static_cast<double *>(args[i]); };
  double in = *at(2), id = *at(1);
  if (in < id || in >= id + 0.5)
    *at(4) += 1;
  test::sleepFor(*at(0));
  *at(3) = in + passUnit;
}

void justSleep(const cleave_ctx *, void *const *args, int64_t, int64_t) {
  test::sleepFor(*static_cast<double *>(args[0]));
}
} // namespace

program::Program test::sleepingProgram(const LoweredTable &table,
                                       std::string &error,
                                       const SleepingOptions &options) {
  return Builder(table, error, options).build();
}

void test::addSleepingKernels(cleave_program *program) {
  cleave_program_add_kernel(program, "pass", pass);
  cleave_program_add_kernel(program, "sleep", justSleep);
}

void test::sleepFor(double seconds) {
  using Clock = std::chrono::steady_clock;
  if (seconds < 0) {
    static std::atomic<uint32_t> seeds;
    thread_local std::mt19937 engine(++seeds);
    // Random delays: often none, sometimes a long one.
    double share = double(engine() % 1024) / 1024;
    std::this_thread::sleep_for(
        std::chrono::duration<double>(-seconds * 4 * share * share * share));
    return;
  }
  // By default, Linux may wake a thread up to 50 microseconds late to save
  // power, so the timer slack is set to the minimum.
  thread_local bool isPunctual = prctl(PR_SET_TIMERSLACK, 1UL) == 0;
  (void)isPunctual;
  // A running mean of how late this thread is woken up, in seconds. The thread
  // requests to be woken up earlier by this amount.
  thread_local double late = 0;
  auto begin = Clock::now();
  double asked = seconds - std::min(late, seconds / 4);
  std::this_thread::sleep_until(begin +
                                std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(asked)));
  double slept = std::chrono::duration<double>(Clock::now() - begin).count();
  late += 0.1 * (std::min(slept - asked, seconds / 4) - late);
}
