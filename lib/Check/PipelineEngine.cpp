// The oracle for pipelines: every rank of every stage, in the order of the
// lowered table, with values in slots.
//
// A rank goes on until it has to wait, the first one first. A message is moved
// as late as it may be, at the receiver's wait, and its place is poisoned when
// its receive starts: a slot that is reused too early shows.

#include "PipelineEngine.h"

#include "cleave/Check/Compare.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/StageAttrs.h"

#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace cleave;
using namespace cleave::check;
using namespace cleave::pipeline;

/// NAME.STAGE without the stage.
static StringRef baseName(func::FuncOp func) {
  return func.getName().rsplit('.').first;
}

static std::string slotOf(const Port &port) {
  auto slot = port.attrs ? port.attrs.getAs<StringAttr>(kSlotAttr) : nullptr;
  return slot ? slot.str() : std::string();
}

void check::addTo(RankTensors &total, const RankTensors &more) {
  for (auto [sum, addend] : llvm::zip_equal(total, more))
    for (auto [x, y] : llvm::zip_equal(sum.floats, addend.floats))
      x += y;
}

RankTensors *StageInstance::find(const std::string &key, int64_t microbatch) {
  auto found = buffers.find(key);
  if (found == buffers.end())
    return nullptr;
  Buffer &buffer = found->second;
  auto slots = slotOf.find(buffer.slot);
  int slot = 0;
  if (slots != slotOf.end() && microbatch < int64_t(slots->second.size()))
    slot = std::max(slots->second[microbatch], 0);
  if (slot >= int(buffer.values.size()))
    buffer.values.resize(slot + 1);
  return &buffer.values[slot];
}

//===----------------------------------------------------------------------===//
// Stages on ranks
//===----------------------------------------------------------------------===//

FailureOr<std::unique_ptr<Engine>> check::makePipelineEngine(ModuleOp module) {
  auto engine = std::make_unique<PipelineEngine>(module);
  if (failed(engine->load()))
    return failure();
  return std::unique_ptr<Engine>(std::move(engine));
}

LogicalResult PipelineEngine::load() {
  for (auto op : module.getOps<dist::MeshOp>())
    mesh = op.getMesh();
  FailureOr<std::optional<target::PipelineSchedule>> found =
      target::scheduleOf(module);
  if (failed(found))
    return failure();
  schedule = std::move(**found);
  auto lowered = target::lowerSchedule(schedule);
  if (!lowered)
    return module.emitError() << lowered.error();
  table = std::move(*lowered);
  for (int rank = 0; rank < table.ranks; ++rank)
    for (int stage : table.stagesOfRank[rank])
      if (failed(addInstance(rank, stage)))
        return failure();
  for (auto [rank, list] : llvm::enumerate(table.actions))
    for (const LoweredAction &entry : list)
      if (entry.action.kind == ActionKind::F)
        at(rank, entry.action.stage)
            .microbatches.insert(entry.action.microbatch);
  return planSlots();
}

LogicalResult PipelineEngine::addInstance(int rank, int stage) {
  StageInstance &instance = instances[{rank, stage}];
  instance.rank = rank;
  instance.stage = stage;
  for (auto func : module.getOps<func::FuncOp>()) {
    auto own = func->getAttrOfType<IntegerAttr>(kStageAttr);
    StringRef name = baseName(func);
    // A loss that is read has another layout than one that is added up.
    if (!own || own.getInt() != stage || func.isDeclaration() ||
        name == nn::kLossFunc || name == nn::kInitStateFunc)
      continue;
    instance.functions[name.str()] = func;
    auto note = [&](const std::vector<Port> &ports) {
      for (const Port &port : ports) {
        StageInstance::Buffer &buffer = instance.buffers[port.key()];
        if (buffer.port.value && buffer.slot != slotOf(port))
          return LogicalResult(func.emitError("has ")
                               << port.role << " '" << port.name
                               << "' in slots of class '" << slotOf(port)
                               << "', but others of its stage in '"
                               << buffer.slot << "'");
        buffer.port = port;
        buffer.slot = slotOf(port);
      }
      return success();
    };
    if (failed(note(argumentsOf(func))) || failed(note(resultsOf(func))))
      return failure();
  }
  return success();
}

LogicalResult PipelineEngine::planSlots() {
  std::vector<ValueClass> classes;
  std::vector<std::string> names;
  std::set<std::pair<int, std::string>> seen;
  for (auto &[place, instance] : instances) {
    // What is taken in: a slot for every microbatch.
    std::vector<int> &store = instance.slotOf["store"];
    store.resize(table.microbatches);
    std::iota(store.begin(), store.end(), 0);
    for (auto &[key, buffer] : instance.buffers) {
      if (!seen.insert({instance.stage, buffer.slot}).second)
        continue;
      if (std::optional<ValueClass> parsed =
              target::valueClassOf(instance.stage, buffer.slot)) {
        classes.push_back(*parsed);
        names.push_back(buffer.slot);
      }
    }
  }
  auto plans = assignSlots(table, classes);
  if (!plans)
    return module.emitError() << plans.error();
  for (const SlotPlan &plan : *plans)
    at(plan.rank, classes[plan.valueClass].stage)
        .slotOf[names[plan.valueClass]] = plan.slotOf;
  return success();
}

//===----------------------------------------------------------------------===//
// What a host sees
//===----------------------------------------------------------------------===//

bool PipelineEngine::hasFunction(StringRef name) const {
  std::string part = name == nn::kLossGradFunc ? "F"
                     : name == nn::kUpdateFunc ? (name + ".0").str()
                                               : name.str();
  return llvm::any_of(instances, [&](const auto &entry) {
    return entry.second.functions.count(part) != 0;
  });
}

LogicalResult PipelineEngine::set(const Port &port, const Tensor &whole) {
  for (auto &[place, instance] : instances) {
    auto found = instance.buffers.find(port.key());
    if (found == instance.buffers.end() || !found->second.slot.empty())
      continue;
    FailureOr<RankTensors> tiles = tilesOf(mesh, found->second.port, whole);
    if (failed(tiles))
      return failure();
    found->second.values[0] = std::move(*tiles);
  }
  return success();
}

/// In the whole mesh, from the number on the stage's.
int64_t PipelineEngine::rankOf(const StageInstance &instance,
                               int64_t inner) const {
  int64_t below = 1;
  for (dist::MeshAxisAttr axis :
       mesh.getAxes().drop_front(schedule.position + 1))
    below *= axis.getSize();
  return (inner / below * table.ranks + instance.rank) * below + inner % below;
}

/// From all stages that have it: a tied parameter is the same on each. Outputs
/// are those of an evaluation, by owners.
FailureOr<Gathered> PipelineEngine::gatherAll(
    const Port &port,
    llvm::function_ref<const RankTensors *(StageInstance::Buffer &)> value) {
  std::optional<Gathered> result;
  for (auto &[place, instance] : instances) {
    auto found = instance.buffers.find(port.key());
    if (port.role == "output" && !instance.isOwner())
      continue;
    const RankTensors *tiles =
        found == instance.buffers.end() ? nullptr : value(found->second);
    if (!tiles || tiles->empty())
      continue;
    Gathered own = gather(mesh, found->second.port, *tiles);
    own.rankOf = [this, &instance, inner = own.rankOf](int64_t element) {
      return rankOf(instance, inner ? inner(element) : 0);
    };
    if (!result) {
      result = std::move(own);
      continue;
    }
    Difference between = difference(own.whole, result->whole);
    for (double found : {own.replicaDifference, between.largest})
      if (!(found <= result->replicaDifference)) // NaN, too
        result->replicaDifference = found;
  }
  if (!result)
    return emitError(port.value.getLoc())
           << port.role << " '" << port.name << "' has no value";
  return std::move(*result);
}

FailureOr<Gathered> PipelineEngine::get(const Port &port) {
  return gatherAll(port,
                   [](StageInstance::Buffer &buffer) -> const RankTensors * {
                     return buffer.slot.empty() ? &buffer.values[0] : nullptr;
                   });
}

FailureOr<Gathered> PipelineEngine::getTap(const Port &port,
                                           int64_t microbatch) {
  return gatherAll(
      port, [&](StageInstance::Buffer &buffer) -> const RankTensors * {
        auto found = buffer.history.find(microbatch);
        return found == buffer.history.end() ? nullptr : &found->second;
      });
}

LogicalResult PipelineEngine::run(StringRef function) {
  if (function == nn::kUpdateFunc)
    return runUpdate();
  if (function != nn::kLossGradFunc)
    return runChain(function);
  // All microbatches are taken in first.
  for (auto &[place, instance] : instances)
    if (instance.microbatches.count(loaded) &&
        failed(call(instance, "load", loaded)))
      return failure();
  if (++loaded < table.microbatches)
    return success();
  loaded = 0;
  return runStep();
}

//===----------------------------------------------------------------------===//
// Actions
//===----------------------------------------------------------------------===//

/// Nothing where the stage has no such action.
LogicalResult PipelineEngine::call(StageInstance &instance, StringRef name,
                                   int64_t microbatch) {
  auto found = instance.functions.find(name.str());
  if (found == instance.functions.end())
    return success();
  func::FuncOp func = found->second;
  std::vector<RankTensors> arguments;
  for (const Port &port : argumentsOf(func)) {
    const RankTensors &value = *instance.find(port.key(), microbatch);
    if (value.empty())
      return func.emitError("argument ")
             << port.role << " '" << port.name << "' of microbatch "
             << microbatch << " has no value";
    arguments.push_back(value);
  }
  FailureOr<std::vector<RankTensors>> results =
      interpretOn(mesh, func, arguments);
  if (failed(results))
    return failure();
  for (auto [port, value] : llvm::zip_equal(resultsOf(func), *results)) {
    if (port.role == "tap")
      instance.buffers[port.key()].history[microbatch] = value;
    *instance.find(port.key(), microbatch) = std::move(value);
  }
  return success();
}

/// Keys of what `from` hands to `to`: made by one of `makers` there and read
/// here.
std::vector<std::string> PipelineEngine::handedOver(const StageInstance &from,
                                                    const StageInstance &to,
                                                    ArrayRef<StringRef> makers,
                                                    StringRef role) const {
  std::vector<std::string> keys;
  for (StringRef maker : makers)
    if (auto func = from.functions.find(maker.str());
        func != from.functions.end())
      for (const Port &port : resultsOf(func->second))
        if (port.role == role && to.buffers.count(port.key()))
          keys.push_back(port.key());
  return keys;
}

LogicalResult PipelineEngine::move(const Channel::End &from,
                                   const Channel::End &to) {
  auto name = [](const Channel::End &end) {
    return ("stage " + Twine(end.instance->stage) + ", microbatch " +
            Twine(end.microbatch))
        .str();
  };
  if (from.keys.size() != to.keys.size())
    return module.emitError("a message of ")
           << from.keys.size() << " tensors (" << name(from)
           << ") meets a receive of " << to.keys.size() << " (" << name(to)
           << ")";
  for (auto [given, taken] : llvm::zip_equal(from.keys, to.keys)) {
    const RankTensors &value = *from.instance->find(given, from.microbatch);
    const Port &there = to.instance->buffers.at(taken).port;
    if (value.empty())
      return module.emitError("'")
             << given << "' of " << name(from) << " is sent before it is made";
    const Port &here = from.instance->buffers.at(given).port;
    if (here.type != there.type || shardingOf(here) != shardingOf(there))
      return module.emitError("'")
             << given << "' of " << name(from) << " lies otherwise than '"
             << taken << "' of " << name(to) << ": " << here.type << " with "
             << shardingOf(here) << ", and " << there.type << " with "
             << shardingOf(there);
    *to.instance->find(taken, to.microbatch) = value;
  }
  return success();
}

LogicalResult PipelineEngine::compute(const Action &action, int rank) {
  StageInstance &own = at(rank, action.stage);
  if (action.kind == ActionKind::Unshard)
    return call(own, kUnshardFunc, 0);
  if (action.kind == ActionKind::ReduceGrad)
    return call(own, kReduceGradFunc, 0);
  if (action.kind == ActionKind::Reshard) {
    for (auto &[key, buffer] : own.buffers)
      if (buffer.slot == kGatheredSlot)
        for (Tensor &tensor : buffer.values[0])
          poison(tensor);
    return success();
  }
  if (action.kind == ActionKind::F)
    // What was taken in gets a slot for as long as it is read.
    for (auto &[key, buffer] : own.buffers) {
      StringRef name = key;
      if (!name.consume_back(".stored"))
        continue;
      const RankTensors &stored = *own.find(key, action.microbatch);
      *own.find((name + ".slot").str(), action.microbatch) = stored;
    }
  SmallVector<StringRef> parts = {StringRef(spelling(action.kind))};
  if (action.kind == ActionKind::B)
    parts = {"B", "I", "W"};
  for (StringRef part : parts)
    if (failed(call(own, part, action.microbatch)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

/// Starts or ends a transfer; whether it need not wait.
FailureOr<bool> PipelineEngine::transfer(const LoweredAction &entry, int rank) {
  const Action &action = entry.action;
  bool sends = isSend(action.kind);
  bool forward =
      action.kind == ActionKind::SendF || action.kind == ActionKind::RecvF;
  StageInstance &own = at(rank, action.stage);
  StageInstance &peer =
      at(entry.peer, action.stage + (forward == sends ? 1 : -1));
  StageInstance &from = sends ? own : peer, &to = sends ? peer : own;
  SmallVector<StringRef> makers = {"F"};
  if (!forward)
    makers = {"I", "B"};
  std::vector<std::string> keys =
      handedOver(from, to, makers, forward ? "activation" : "cotangent");
  if (keys.empty())
    return true;
  if (entry.peer == rank) { // a copy, done at the receiving stage
    if (!sends && failed(move({&from, keys, action.microbatch},
                              {&to, keys, action.microbatch})))
      return failure();
    return true;
  }
  Channel &channel = channels[{from.rank, to.rank}];
  Cursor &cursor = cursors[rank];
  if (entry.phase != Phase::Wait && !cursor.isStarted) {
    auto &ends = sends ? channel.sends : channel.receives;
    cursor.number[action] = ends.size();
    ends.push_back({&own, keys, action.microbatch});
    if (!sends) {
      channel.done.push_back(false);
      for (const std::string &key : keys)
        for (Tensor &tensor : *own.find(key, action.microbatch))
          poison(tensor);
    }
    if (entry.phase == Phase::Start)
      return true;
    cursor.isStarted = true;
  }
  size_t number = cursor.number.at(action);
  if (sends)
    return number < channel.done.size() && channel.done[number];
  if (number >= channel.sends.size())
    return false;
  if (failed(move(channel.sends[number], channel.receives[number])))
    return failure();
  channel.done[number] = true;
  return true;
}

/// Does what is next in the rank's list; whether it could.
FailureOr<bool> PipelineEngine::advance(int rank) {
  Cursor &cursor = cursors[rank];
  if (cursor.next == table.actions[rank].size())
    return false;
  const LoweredAction &entry = table.actions[rank][cursor.next];
  bool isDone = true;
  if (isTransfer(entry.action.kind)) {
    FailureOr<bool> moved = transfer(entry, rank);
    if (failed(moved))
      return failure();
    isDone = *moved;
  } else if (failed(compute(entry.action, rank))) {
    return failure();
  }
  if (isDone) {
    ++cursor.next;
    cursor.isStarted = false;
  }
  return isDone;
}

LogicalResult PipelineEngine::runStep() {
  cursors.assign(table.ranks, Cursor());
  channels.clear();
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < table.ranks; ++rank)
      for (bool goesOn = true; goesOn;) {
        FailureOr<bool> done = advance(rank);
        if (failed(done))
          return failure();
        goesOn = *done;
        moved |= goesOn;
      }
  }
  for (auto [rank, cursor] : llvm::enumerate(cursors))
    if (cursor.next < table.actions[rank].size())
      return module.emitError("ranks wait for each other: rank ")
             << rank << " at " << print(table.actions[rank][cursor.next]);
  addUpReplicas();
  return success();
}

/// What the microbatches of all ranks of a stage gave. Gradients of tied
/// parameters are added up over stages, in the update.
void PipelineEngine::addUpReplicas() {
  for (int stage = 0; stage < table.stages; ++stage) {
    std::vector<StageInstance *> replicas;
    for (auto &[place, instance] : instances)
      if (instance.stage == stage)
        replicas.push_back(&instance);
    if (replicas.size() == 1)
      continue;
    for (auto &[key, buffer] : replicas.front()->buffers) {
      const Port &port = buffer.port;
      bool isLoss = port.role == "loss" || port.role == "weight" ||
                    port.role == "accumulator";
      if (!isLoss && (port.role != "gradient" || isTied(port.name)))
        continue;
      RankTensors total = buffer.values[0];
      for (StageInstance *other : ArrayRef(replicas).drop_front())
        addTo(total, *other->find(key, 0));
      for (StageInstance *replica : replicas)
        *replica->find(key, 0) = total;
    }
  }
}

bool PipelineEngine::isTied(const std::string &parameter) const {
  for (const auto &[place, instance] : instances)
    if (auto found = instance.buffers.find("parameter " + parameter);
        found != instance.buffers.end())
      if (auto stages = found->second.port.attrs.getAs<DenseI64ArrayAttr>(
              pipe::kStagesAttr))
        return stages.size() > 1;
  return false;
}

/// A forward pass of one microbatch through all stages.
LogicalResult PipelineEngine::runChain(StringRef function) {
  StageInstance *before = nullptr;
  for (int stage = 0; stage < table.stages; ++stage) {
    auto found = llvm::find_if(instances, [&](const auto &entry) {
      return entry.first.second == stage && entry.second.isOwner();
    });
    StageInstance &own = found->second;
    if (before) {
      std::vector<std::string> keys =
          handedOver(*before, own, function, "activation");
      if (failed(move({before, keys, 0}, {&own, keys, 0})))
        return failure();
    }
    if (failed(call(own, function, 0)))
      return failure();
    before = &own;
  }
  return success();
}
