// The reference execution of pipelines: interprets every rank of every stage. A
// rank runs its actions in the order of the pipeline schedule with transfers.
// Values are stored in the slots (memory of one microbatch in flight) that the
// schedule assigns. PipelineActions.cpp interprets the actions of the schedule,
// PipelineUpdate.cpp the update.
//
// Ranks are simulated in turn, beginning with rank 0. Each rank runs until it
// must wait for a message.

#include "PipelineEngine.h"

#include "cleave/Check/Compare.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Interfaces/StageSums.h"

#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace cleave;
using namespace cleave::check;
using namespace cleave::pipeline;

/// Returns NAME for a function that is named NAME.STAGE.
static StringRef baseName(func::FuncOp func) {
  return func.getName().rsplit('.').first;
}

static std::string slotOf(const Port &port) {
  return pipe::slotOf(port.attrs).str();
}

void check::addTo(RankTensors &total, const RankTensors &more) {
  for (auto [sum, term] : llvm::zip_equal(total, more))
    for (auto [x, y] : llvm::zip_equal(sum.floats, term.floats))
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
    // @loss is omitted. Its loss, which a host reads, has a different layout
    // from the loss that @loss_grad sums over microbatches.
    if (!own || own.getInt() != stage || func.isDeclaration() ||
        name == nn::kLossFunc || name == nn::kInitStateFunc)
      continue;
    instance.functions[name.str()] = func;
    auto note = [&](const std::vector<Port> &ports) {
      for (const Port &port : ports) {
        StageInstance::Buffer &buffer = instance.buffers[port.key()];
        if (buffer.port.value && buffer.slot != slotOf(port))
          return LogicalResult(func.emitError("@")
                               << func.getName() << " has " << port.describe()
                               << " in slots of class '" << slotOf(port)
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
    // The inputs of all microbatches of a step are stored at the same time, so
    // the slot class "store" has a slot (memory of one microbatch) for each of
    // them.
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
  std::string part = name == nn::kLossGradFunc ? kForwardPart.str()
                     : name == nn::kUpdateFunc ? updatePart(0)
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

/// Converts `inner`, a rank of the stage's mesh, to a rank of the whole mesh.
int64_t PipelineEngine::rankOf(const StageInstance &instance,
                               int64_t inner) const {
  int64_t below = 1;
  for (dist::MeshAxisAttr axis :
       mesh.getAxes().drop_front(schedule.position + 1))
    below *= axis.getSize();
  return (inner / below * table.ranks + instance.rank) * below + inner % below;
}

/// Assembles a value from the tiles of the stages that have it. A tied
/// parameter must be equal on all its stages. Outputs are read only from the
/// ranks that own stages, because only these ranks run the evaluation that
/// computes outputs.
FailureOr<Gathered> PipelineEngine::gatherAll(
    const Port &port,
    llvm::function_ref<const RankTensors *(StageInstance::Buffer &)> value) {
  std::optional<Gathered> result;
  for (auto &[place, instance] : instances) {
    auto found = instance.buffers.find(port.key());
    if (port.role == nn::Role::Output && !instance.isOwner())
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
    return emitError(port.value.getLoc()) << port.describe() << " has no value";
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
  // @loss_grad is called once for each microbatch. Every call only loads the
  // microbatch's inputs; the last one then runs the step.
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
// A step
//===----------------------------------------------------------------------===//

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

/// Sums the gradients of a stage over all pipeline ranks that hold the stage.
/// Gradients of tied parameters are summed over stages later, in the update.
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
      bool isLoss = nn::isOneOf(
          port.role, {nn::Role::Loss, nn::Role::Weight, nn::Role::Accumulator});
      if (!isLoss && (port.role != nn::Role::Gradient || isTied(port.name)))
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
    if (auto found =
            instance.buffers.find(Port{nn::Role::Parameter, parameter}.key());
        found != instance.buffers.end())
      if (auto stages = found->second.port.attrs.getAs<DenseI64ArrayAttr>(
              pipe::kStagesAttr))
        return stages.size() > 1;
  return false;
}

/// Runs `function` (the evaluation) of all stages, one after another, for one
/// microbatch.
LogicalResult PipelineEngine::runChain(StringRef function) {
  StageInstance *before = nullptr;
  for (int stage = 0; stage < table.stages; ++stage) {
    auto found = llvm::find_if(instances, [&](const auto &entry) {
      return entry.first.second == stage && entry.second.isOwner();
    });
    StageInstance &own = found->second;
    if (before) {
      std::vector<std::string> keys =
          handedOver(*before, own, function, nn::Role::Activation);
      if (failed(move({before, keys, 0}, {&own, keys, 0})))
        return failure();
    }
    if (failed(call(own, function, 0)))
      return failure();
    before = &own;
  }
  return success();
}
