// Emits the stages of a pipeline as one program. The ranks with the same index
// on the pipeline axis run identical commands and form a class of ranks. For
// each class the program has the actions of the class's stages (for example a
// stage's backward pass for one microbatch), and command lists that call these
// actions in the order of the pipeline schedule.

#include "EmitPipeline.h"

#include "Remap.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interfaces/StageAttrs.h"

#include <set>

using namespace mlir;
using namespace cleave;
using namespace cleave::target;
using namespace cleave::pipeline;

//===----------------------------------------------------------------------===//
// Stages on ranks
//===----------------------------------------------------------------------===//

LogicalResult PipelineEmitter::emit() {
  int64_t size = schedule.table.ranks;
  for (auto op : module.getOps<dist::MeshOp>()) {
    if (mesh)
      return op.emitOpError("is a second mesh; a program runs on one");
    mesh = op.getMesh();
    links = op.getLinksAttr();
    within = op.getWithinAttr();
  }
  size_t count = mesh ? mesh.getAxes().size() : 0;
  if (schedule.position >= int64_t(count) ||
      mesh.getAxes()[schedule.position].getName() != schedule.axis)
    return module.emitError("the module has no mesh axis '")
           << schedule.axis << "' in place " << schedule.position;
  for (auto [index, axis] : llvm::enumerate(mesh.getAxes())) {
    bool isPipeline = int64_t(index) == schedule.position;
    StringRef link = isPipeline ? StringRef(schedule.link)
                     : links    ? cast<StringAttr>(links[index]).getValue()
                                : StringRef("intra");
    program.mesh.push_back({axis.getName().str(),
                            isPipeline ? size : axis.getSize(), link.str(),
                            within && !isPipeline ? within[index] : 1});
  }
  int64_t below = 1;
  for (size_t axis = schedule.position + 1; axis < program.mesh.size(); ++axis)
    below *= program.mesh[axis].size;
  for (int64_t rank = 0; rank < program.numRanks(); ++rank)
    program.rankClass.push_back(rank / below % size);

  auto lowered = lowerSchedule(schedule);
  if (!lowered)
    return module.emitError() << lowered.error();
  table = std::move(*lowered);
  findMicrobatches();
  if (failed(layOut()) || failed(checkPorts()))
    return failure();
  for (int64_t rank = 0; rank < size; ++rank) {
    emitLoads(rank);
    emitInitState(rank);
    if (failed(emitStep(rank)) || failed(emitUpdate(rank)) ||
        failed(emitChain(rank, nn::kLossFunc)) ||
        failed(emitChain(rank, nn::kForwardFunc)))
      return failure();
  }
  return success();
}

/// Returns the `pipe.slot` texts of a stage, in the order of the arenas for
/// them. Each text says how long values are kept between actions, for example
/// "recv_f:W": from the receive of a microbatch's activations to its weight
/// gradient. Empty for a stage without actions.
static SmallVector<std::string> slotNames(ModuleOp module, int stage) {
  SmallVector<std::string> names;
  auto stages = module->getAttrOfType<ArrayAttr>(rt::kStagesAttr);
  if (stage < int(stages.size()))
    for (auto slot :
         cast<rt::StageAttr>(stages[stage]).getSlots().getAsRange<StringAttr>())
      names.push_back(slot.str());
  return names;
}

LogicalResult PipelineEmitter::planSlots() {
  auto stages = module->getAttrOfType<ArrayAttr>(rt::kStagesAttr);
  // The attribute may list fewer stages than the schedule has, because the last
  // stages may have no actions, for example in inference.
  if (!stages || int64_t(stages.size()) > table.stages)
    return module.emitError("the module has planned memory for ")
           << (stages ? stages.size() : 0) << " stages, but its schedule has "
           << table.stages;
  std::vector<ValueClass> classes;
  std::vector<std::pair<int, std::string>> names;
  for (int stage = 0; stage < int(stages.size()); ++stage)
    for (const std::string &name : slotNames(module, stage))
      if (std::optional<ValueClass> parsed = valueClassOf(stage, name)) {
        classes.push_back(*parsed);
        names.push_back({stage, name});
      }
  auto plans = assignSlots(table, classes);
  if (!plans)
    return module.emitError() << plans.error();
  for (SlotPlan &plan : *plans) {
    auto [stage, name] = names[plan.valueClass];
    slotPlans[{plan.rank, stage, name}] = std::move(plan);
  }
  return success();
}

int32_t PipelineEmitter::addArena(Instance &instance, const Twine &name,
                                  program::Lifespan span, int64_t bytes) {
  instance.arenas.push_back(program.arenas.size());
  program.arenas.push_back({name.str(), span, bytes, instance.rank});
  return instance.arenas.back();
}

LogicalResult PipelineEmitter::addSlots(Instance &instance,
                                        const std::string &name,
                                        int64_t bytes) {
  Slots &own = instance.slots[name];
  own.arena = instance.arenas.size();
  own.bytes = bytes;
  if (name == kGatheredSlot) {
    instance.arenas.push_back(
        gatheredArena(instance.rank, instance.stage, own.bytes));
    return success();
  }
  if (name == "store") {
    ArrayRef<int> stored = microbatchesOf(instance);
    own.count = stored.size();
    own.slotOf.assign(table.microbatches, -1);
    for (auto [slot, microbatch] : llvm::enumerate(stored))
      own.slotOf[microbatch] = slot;
  }
  auto plan = slotPlans.find({instance.rank, instance.stage, name});
  if (plan != slotPlans.end()) {
    own.count = std::max(plan->second.count, 1);
    own.slotOf = plan->second.slotOf;
  }
  std::string suffix = "." + std::to_string(instance.stage);
  if (name == "version") {
    if (failed(assignVersions(instance, own)))
      return failure();
    addArena(instance, "versions" + suffix, program::Lifespan::Persistent,
             own.count * own.bytes);
    return success();
  }
  bool persists = name == "store" || name == kReducedSlot;
  addArena(instance, "slots" + suffix + "." + name,
           persists ? program::Lifespan::Persistent : program::Lifespan::Slots,
           own.count * own.bytes);
  return success();
}

LogicalResult PipelineEmitter::layOutStage(int rank, int stage,
                                           int32_t transient) {
  auto &instance = instances[{rank, stage}];
  instance = std::make_unique<Instance>();
  instance->rank = rank;
  instance->stage = stage;
  FailureOr<BoundaryTable> boundary = BoundaryTable::collect(module, stage);
  if (failed(boundary))
    return failure();
  instance->boundary = std::move(*boundary);
  ArrayRef<int64_t> sizes = arenasOf(stage);
  addArena(*instance, "state." + Twine(stage), program::Lifespan::Persistent,
           sizes[rt::kStateArena]);
  instance->arenas.push_back(transient);
  for (auto [index, name] : llvm::enumerate(slotNames(module, stage)))
    if (failed(addSlots(*instance, name, sizes[rt::kSlotArena + index])))
      return failure();
  return success();
}

LogicalResult PipelineEmitter::layOut() {
  if (failed(planSlots()))
    return failure();
  CommandEmitter emitter(module, program);
  for (int rank = 0; rank < table.ranks; ++rank) {
    // The stages of a rank run one after another, so they share one arena for
    // transient values, which live within one action.
    int64_t most = 0;
    for (int stage : table.stagesOfRank[rank])
      most = std::max(most, arenasOf(stage)[rt::kTransientArena]);
    int32_t transient = program.arenas.size();
    program.arenas.push_back({"transient." + std::to_string(rank),
                              program::Lifespan::Transient, most, rank});
    for (int stage : table.stagesOfRank[rank])
      if (failed(layOutStage(rank, stage, transient)) ||
          failed(emitInstance(*instances[{rank, stage}], emitter)))
        return failure();
  }
  // If a stage is on several ranks, the buffers of the rank that owns the stage
  // come first in the program, because the host reads a value from the first
  // rank that has it.
  for (bool owners : {true, false})
    for (auto &[place, instance] : instances)
      if (isOwner(*instance) == owners && failed(emitVisible(*instance)))
        return failure();
  return success();
}

ArrayRef<int64_t> PipelineEmitter::arenasOf(int stage) const {
  static constexpr int64_t none[] = {0, 0};
  auto stages = module->getAttrOfType<ArrayAttr>(rt::kStagesAttr);
  if (stage >= int(stages.size()))
    return none;
  return cast<rt::StageAttr>(stages[stage]).getArenas().asArrayRef();
}

LogicalResult PipelineEmitter::emitInstance(Instance &instance,
                                            CommandEmitter &emitter) {
  Remap remap;
  remap.arenas = instance.arenas;
  for (func::FuncOp func : actionsOf(module, instance.stage)) {
    readOffsets(func, instance.boundary);
    size_t first = program.actions.size();
    if (failed(emitter.emit(func)))
      return failure();
    program::Action &action = program.actions.back();
    // The function is called NAME.STAGE.
    std::string name = func.getName().rsplit('.').first.str();
    instance.actions[name] = program.actions.size() - 1;
    instance.functions[name] = func;
    action.name = "." + action.name;
    // The emitter has appended the bodies of the function's loops as actions,
    // and after them the function itself. All these actions belong to the rank,
    // and their addresses still have the arena numbers of the stage.
    for (size_t each = first; each < program.actions.size(); ++each) {
      program.actions[each].rankClass = instance.rank;
      remap.visit(program.actions[each].commands);
      remap.visit(program.actions[each].lifetimes);
    }
  }
  return success();
}

/// Emits the buffers that the host sees. Outputs are included only on the ranks
/// that own stages, because only these ranks run the evaluation that computes
/// outputs.
LogicalResult PipelineEmitter::emitVisible(const Instance &instance) {
  Remap remap;
  remap.arenas = instance.arenas;
  BoundaryTable visible;
  for (const BoundaryBuffer &buffer : instance.boundary.buffers)
    if (buffer.isVisible() &&
        (buffer.role != nn::Role::Output || isOwner(instance)))
      visible.buffers.push_back(buffer);
  size_t from = program.boundary.size();
  if (failed(emitBoundary(visible, mesh, module, program)))
    return failure();
  for (size_t i = from; i < program.boundary.size(); ++i) {
    program::Boundary &entry = program.boundary[i];
    if (StringRef slot = visible.buffers[i - from].slot(); !slot.empty())
      entry.buffer.arena = instance.slots.at(slot.str()).arena;
    remap(entry.sharding, entry.partial, entry.buffer);
    entry.rankClass = instance.rank;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Values between actions
//===----------------------------------------------------------------------===//

/// Returns the buffer with this name and role in the boundary table of a stage
/// on a rank (`instance`), or null.
const BoundaryBuffer *PipelineEmitter::bufferOf(const Instance &instance,
                                                StringRef name,
                                                nn::Role role) const {
  int64_t index = instance.boundary.find(name, role);
  return index < 0 ? nullptr : &instance.boundary.buffers[index];
}

program::BufferRef PipelineEmitter::address(const Instance &instance,
                                            const BoundaryBuffer &buffer,
                                            int microbatch) const {
  program::BufferRef ref;
  if (buffer.slot().empty()) {
    ref.arena = instance.arenas[rt::kStateArena];
    ref.offset = buffer.offset;
    return ref;
  }
  const Slots &slots = instance.slots.at(buffer.slot().str());
  ref.arena = instance.arenas[slots.arena];
  ref.offset = slots.indexOf(microbatch) * slots.bytes + buffer.offset;
  return ref;
}

SmallVector<std::string> PipelineEmitter::portsOf(func::FuncOp func,
                                                  nn::Role role, bool results) {
  SmallVector<std::string> names;
  if (!func)
    return names;
  unsigned count = results ? func.getNumResults() : func.getNumArguments();
  for (unsigned i = 0; i < count; ++i) {
    DictionaryAttr attrs =
        results ? func.getResultAttrDict(i) : func.getArgAttrDict(i);
    if (nn::roleOf(attrs) == role)
      names.push_back(nn::nameOf(attrs).str());
  }
  return names;
}

/// Returns the names of the values that stage `from` sends to stage `to`:
/// results of one of the functions `makers` in `from` that a function of `to`
/// reads.
SmallVector<std::string> PipelineEmitter::handedOver(const Instance &from,
                                                     const Instance &to,
                                                     ArrayRef<StringRef> makers,
                                                     nn::Role role) const {
  SmallVector<std::string> names;
  for (StringRef maker : makers) {
    auto func = from.functions.find(maker.str());
    if (func == from.functions.end())
      continue;
    for (std::string &name : portsOf(func->second, role, true))
      if (bufferOf(to, name, role))
        names.push_back(name);
  }
  return names;
}

//===----------------------------------------------------------------------===//
// Commands
//===----------------------------------------------------------------------===//

void PipelineEmitter::push(decltype(program::Command::op) op,
                           const std::string &source) {
  program::Command command;
  command.op = std::move(op);
  command.source = intern(source);
  program.actions[current].commands.push_back(std::move(command));
}

program::StringId PipelineEmitter::intern(const std::string &text) {
  auto [entry, isNew] = strings.try_emplace(text, 0);
  if (isNew)
    entry->second = program.intern(text);
  return entry->second;
}

void PipelineEmitter::begin(int rank, const std::string &name) {
  current = program.actions.size();
  program.actions.emplace_back();
  program.actions.back().name = name;
  program.actions.back().rankClass = rank;
  tokens = 0;
}

/// Ends the action that begin() started, and drops it if it has no commands.
void PipelineEmitter::end() {
  if (program.actions[current].commands.empty())
    program.actions.pop_back();
}

void PipelineEmitter::call(const Instance &instance, StringRef action,
                           int microbatch, const std::string &label,
                           std::optional<int> version) {
  auto found = instance.actions.find(action.str());
  if (found == instance.actions.end())
    return;
  program::Call call;
  call.action = found->second;
  call.label = intern(label);
  std::set<std::string> used;
  func::FuncOp func = instance.functions.at(action.str());
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    used.insert(pipe::slotOf(func.getArgAttrDict(i)).str());
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    used.insert(pipe::slotOf(func.getResultAttrDict(i)).str());
  for (const std::string &name : used) {
    if (name.empty())
      continue;
    const Slots &slots = instance.slots.at(name);
    bool isVersion = version && name == "version";
    if (int64_t index = isVersion ? *version : slots.indexOf(microbatch))
      call.rebase.push_back(
          {instance.arenas[slots.arena], index * slots.bytes});
  }
  push(std::move(call), label);
}

void PipelineEmitter::copy(program::BufferRef from, program::BufferRef to,
                           int64_t bytes, const std::string &source) {
  program::Copy copy;
  copy.src = std::move(from);
  copy.dst = std::move(to);
  copy.elementSize = 1;
  copy.shape = {bytes};
  copy.srcStrides = copy.dstStrides = {1};
  push(std::move(copy), source);
}

/// Returns the sub-axis that consists of the whole pipeline axis.
static program::SubAxis wholeAxis(int64_t position, int64_t size) {
  return {int32_t(position), 1, size};
}

/// Emits the start of an asynchronous transfer of the values `names` from
/// pipeline rank `sender` to `receiver`. Returns the token for its Wait, or -1
/// if there are no values to transfer.
int32_t PipelineEmitter::transfer(const Instance &own, int sender, int receiver,
                                  ArrayRef<std::string> names, nn::Role role,
                                  int microbatch, const std::string &label) {
  program::Collective message;
  message.kind = program::CollectiveKind::SendRecv;
  message.dtype = program::DType::U8;
  message.group = {wholeAxis(schedule.position, table.ranks)};
  message.positions = {sender, receiver};
  message.purpose = intern("pipeline");
  bool floats = true, halves = true;
  for (const std::string &name : names) {
    const BoundaryBuffer &buffer = *bufferOf(own, name, role);
    program::Transfer part;
    part.src = part.dst = address(own, buffer, microbatch);
    part.count = part.inner = part.dstInner = bytesOf(buffer.type);
    floats &= buffer.type.getElementType().isF32();
    halves &= buffer.type.getElementType().isBF16();
    message.parts.push_back(std::move(part));
  }
  if (message.parts.empty())
    return -1;
  if (floats || halves) { // mixed types are sent as U8
    message.dtype = floats ? program::DType::F32 : program::DType::BF16;
    int64_t size = program::sizeOf(message.dtype);
    for (program::Transfer &part : message.parts)
      part.count = part.inner = part.dstInner = part.count / size;
  }
  int32_t token = message.token = tokens++;
  push(std::move(message), label);
  return token;
}
