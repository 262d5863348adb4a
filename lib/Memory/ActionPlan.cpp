// Plans the memory of one action, that is, of a function that the schedule
// calls, such as a stage's backward pass for one microbatch.

#include "cleave/Memory/ActionPlan.h"

#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Memory/Source.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/IR/Builders.h"

#include <utility>

using namespace mlir;
using namespace cleave;
using namespace cleave::memory;

static bool isMemory(Value value) {
  return isa<RankedTensorType>(value.getType());
}

/// Copies a whole tensor into new memory.
static Value copyWhole(OpBuilder &b, Location loc, Value value) {
  int64_t count = typeOf(value).getNumElements();
  SmallVector<int64_t> view = {0, 1};
  return rt::CopyOp::create(b, loc, value.getType(), value, Value(), view, view,
                            ArrayRef<int64_t>(count));
}

FailureOr<ActionPlan> ActionPlan::create(func::FuncOp func,
                                         const BoundaryTable &table) {
  ActionPlan plan;
  plan.func = func;
  for (Operation &op : actionBody(func))
    if (!isa<rt::CommandOpInterface, func::ReturnOp>(op))
      return op.emitOpError("is no command, so its memory cannot be planned");
  llvm::DenseSet<int64_t> seen;
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    if (!seen.insert(table.ofResult(func, i)).second)
      return func.emitOpError("result ")
             << i << " has the name and role of another result";
  // Each iteration inserts copies and repeats the analysis. A copy removes the
  // conflict that it was inserted for, so few iterations suffice.
  for (int round = 0; round < 8; ++round) {
    plan.analyze(table);
    if (plan.repairReuse())
      continue;
    bool repaired = false;
    plan.placeResults(table, repaired);
    if (repaired)
      continue;
    plan.reuseOperands();
    return plan;
  }
  return func.emitOpError("has results that no order of copies can place");
}

int64_t ActionPlan::find(int64_t storage) const {
  while (parent[storage] != storage)
    storage = parent[storage];
  return storage;
}

Place ActionPlan::placeOf(Value value) const {
  Place place = places.lookup(value);
  place.storage = find(place.storage);
  return place;
}

void ActionPlan::analyze(const BoundaryTable &table) {
  storages.clear();
  parent.clear();
  places.clear();
  argumentOf.clear();
  numberCommands();
  addArguments(table);
  llvm::DenseMap<Attribute, Value> flags;
  for (Operation &op : actionBody(func)) {
    addReads(op, flags);
    addReadsBeyond(op);
    if (auto command = dyn_cast<rt::CommandOpInterface>(op))
      addResults(command);
  }
}

void ActionPlan::numberCommands() {
  positions.clear();
  ops.clear();
  commands.clear();
  int64_t count = 0;
  for (Operation &op : actionBody(func)) {
    positions[&op] = commands.size();
    ops.push_back(&op);
    commands.push_back(count);
    if (!isa<rt::AliasOp, rt::ConditionOp, func::ReturnOp>(op))
      ++count;
  }
  commands.push_back(count);
}

Storage &ActionPlan::addStorage(Value value, int64_t position) {
  places[value] = {int64_t(storages.size()), 0};
  parent.push_back(storages.size());
  Storage &storage = storages.emplace_back();
  storage.bytes = storage.ownBytes = bytesOf(value.getType());
  storage.first = storage.last = position;
  return storage;
}

void ActionPlan::addArguments(const BoundaryTable &table) {
  llvm::DenseSet<int64_t> replaced;
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    replaced.insert(table.ofResult(func, i));
  for (BlockArgument argument : actionBody(func).getArguments()) {
    Storage &storage = addStorage(argument, -1);
    storage.argument = true;
    storage.boundary = table.ofArgument(func, argument.getArgNumber());
    storage.constant = !replaced.contains(storage.boundary);
    storage.name = table.buffers[storage.boundary].buffer;
    argumentOf[storage.boundary] = places[argument].storage;
  }
}

/// Extends the lifetimes of the values that the operation reads: its operands
/// and, if the operation is executed only under a condition, the boolean of
/// this condition. `flags` maps the number of each earlier dist.condition to
/// its boolean.
void ActionPlan::addReads(Operation &op,
                          llvm::DenseMap<Attribute, Value> &flags) {
  int64_t position = positions[&op];
  auto read = [&](Value value) {
    Storage &storage = storages[places[value].storage];
    if (position > storage.last)
      storage.beforeLast = std::exchange(storage.last, position);
  };
  for (Value operand : op.getOperands())
    if (isMemory(operand))
      read(operand);
  if (auto condition = dyn_cast<rt::ConditionOp>(op))
    flags[condition.getNumberAttr()] = condition.getFlag();
  if (Attribute when = op.getAttr(kWhenAttrName); when && flags.contains(when))
    read(flags[when]);
}

/// If a kernel reads (under a mask) beyond the end of an operand, enlarges the
/// operand's storage so that these reads stay within it.
void ActionPlan::addReadsBeyond(Operation &op) {
  auto beyond = op.getAttrOfType<DenseI64ArrayAttr>(rt::kBeyondAttr);
  if (!beyond)
    return;
  for (auto [operand, elements] :
       llvm::zip(op.getOperands(), beyond.asArrayRef())) {
    RankedTensorType type = typeOf(operand);
    int64_t width = bytesOf(RankedTensorType::get({}, type.getElementType()));
    Place place = places[operand];
    Storage &storage = storages[place.storage];
    storage.bytes = std::max(storage.bytes, place.lastOffset + bytesOf(type) +
                                                elements * width);
  }
}

/// Assigns a storage to each result: a result is an alias of an operand,
/// overwrites an operand's memory, or gets a storage of its own.
void ActionPlan::addResults(rt::CommandOpInterface command) {
  SmallVector<rt::Reuse> reuse = command.getReuse();
  for (OpResult result : command->getResults()) {
    if (!isMemory(result))
      continue;
    unsigned index = result.getResultNumber();
    if (std::optional<rt::Alias> alias = command.getAlias(index)) {
      addAlias(result, command->getOperand(alias->operand), *alias);
      continue;
    }
    const rt::Reuse *required = llvm::find_if(reuse, [&](rt::Reuse pair) {
      return pair.required && pair.result == index;
    });
    if (required != reuse.end()) {
      Place taken = places.lookup(command->getOperand(required->operand));
      places[result] = taken;
      continue;
    }
    Storage &storage = addStorage(result, positions[command]);
    storage.scratch = command.getScratchResult() == result;
    storage.name = sourceOf(command);
  }
}

void ActionPlan::addAlias(OpResult result, Value operand,
                          const rt::Alias &alias) {
  auto type = typeOf(result);
  int64_t width = bytesOf(type) / std::max<int64_t>(1, type.getNumElements());
  Place source = places[operand];
  Storage &storage = storages[source.storage];
  storage.bytes =
      std::max(storage.bytes, source.lastOffset + alias.reach * width);
  places[result] = {source.storage, source.offset + alias.offset * width,
                    alias.axisTerms.empty() && source.fixed,
                    source.lastOffset + alias.lastOffset() * width};
  storage.last = std::max(storage.last, positions[result.getOwner()]);
}

/// Returns whether the operation has another operand in the same storage as
/// `operand`.
static bool readTwice(Operation *op, unsigned operand,
                      llvm::function_ref<int64_t(Value)> storageOf) {
  int64_t storage = storageOf(op->getOperand(operand));
  for (auto [index, value] : llvm::enumerate(op->getOperands()))
    if (index != operand && isMemory(value) && storageOf(value) == storage)
      return true;
  return false;
}

bool ActionPlan::repairReuse() {
  auto storageOf = [&](Value value) { return places[value].storage; };
  // The values in each storage, used to find operations that read the old
  // content of a storage.
  std::vector<SmallVector<Value>> members(storages.size());
  auto join = [&](Value value) {
    if (isMemory(value))
      members[storageOf(value)].push_back(value);
  };
  Block &body = actionBody(func);
  for (Value argument : body.getArguments())
    join(argument);
  for (Operation &op : body)
    for (Value result : op.getResults())
      join(result);
  auto defined = [&](Value value) {
    Operation *def = value.getDefiningOp();
    return def ? positions.lookup(def) : int64_t(-1);
  };
  bool repaired = false;
  for (Operation &op : llvm::make_early_inc_range(body)) {
    auto command = dyn_cast<rt::CommandOpInterface>(op);
    if (!command)
      continue;
    int64_t position = positions.lookup(&op);
    if (command.needsFixedOperands())
      for (OpOperand &operand : op.getOpOperands())
        if (isMemory(operand.get()) && !places[operand.get()].fixed) {
          OpBuilder b(&op);
          operand.set(copyWhole(b, op.getLoc(), operand.get()));
          repaired = true;
        }
    for (rt::Reuse reuse : command.getReuse()) {
      if (!reuse.required)
        continue;
      Value operand = op.getOperand(reuse.operand);
      const Storage &storage = storages[storageOf(operand)];
      bool conflict = storage.constant || !places[operand].fixed ||
                      readTwice(&op, reuse.operand, storageOf);
      for (Value member : members[storageOf(operand)])
        if (defined(member) < position)
          for (Operation *user : member.getUsers())
            conflict |= positions.lookup(user) > position;
      if (!conflict)
        continue;
      OpBuilder b(&op);
      op.setOperand(reuse.operand, copyWhole(b, op.getLoc(), operand));
      repaired = true;
    }
    if (repaired)
      return true;
  }
  return false;
}

bool ActionPlan::canTake(Operation *op, unsigned result,
                         unsigned operand) const {
  Value from = op->getOperand(operand);
  Place place = places.lookup(from);
  if (!place.fixed || place.offset != 0)
    return false;
  int64_t storage = find(place.storage);
  // An asynchronous collective reads its operands until its wait, which is the
  // only reader of its token.
  auto collective = dyn_cast<rt::CollectiveOp>(op);
  bool starts = collective && collective.getToken();
  if (starts && collective.getToken().use_empty())
    return false;
  Operation *reader = starts ? *collective.getToken().user_begin() : op;
  if (storages[storage].last != positions.lookup(reader) ||
      (starts && storages[storage].beforeLast > positions.lookup(op)) ||
      storages[storage].constant ||
      storages[storage].ownBytes < bytesOf(op->getResult(result).getType()))
    return false;
  return !readTwice(op, operand, [&](Value value) {
    return find(places.lookup(value).storage);
  });
}

/// Decides which results of the function are computed directly in the buffers
/// that `table` assigns to them. An argument and a result of the same name
/// share a buffer. For all other results, inserts copies into their buffers at
/// the end.
void ActionPlan::placeResults(const BoundaryTable &table, bool &repaired) {
  Operation *end = actionBody(func).getTerminator();
  SmallVector<unsigned> copies;
  for (auto [index, value] : llvm::enumerate(end->getOperands())) {
    int64_t target = table.ofResult(func, index);
    Place place = places.lookup(value);
    Storage &storage = storages[place.storage];
    bool whole = place.fixed && place.offset == 0 &&
                 storage.ownBytes == bytesOf(value.getType());
    if (whole && storage.argument && storage.boundary == target)
      continue;
    bool fits = whole && !storage.argument && storage.boundary < 0;
    if (auto old = argumentOf.find(target); fits && old != argumentOf.end()) {
      int64_t dead = storages[old->second].last;
      fits = dead < storage.first;
      if (dead == storage.first) {
        // `dead` is the position of the last command that reads the old value.
        // This command may overwrite the old value in place with the new one.
        Operation *op = dead < 0 ? nullptr : ops[dead];
        if (auto command = dyn_cast_or_null<rt::CommandOpInterface>(op))
          for (rt::Reuse reuse : command.getReuse())
            fits |= places.lookup(op->getResult(reuse.result)).storage ==
                        place.storage &&
                    places.lookup(op->getOperand(reuse.operand)).storage ==
                        old->second &&
                    canTake(op, reuse.result, reuse.operand);
      }
    }
    if (fits)
      storage.boundary = target;
    else
      copies.push_back(index);
  }
  if (copies.empty())
    return;
  repaired = true;
  // Copies are ordered such that arguments are read before any argument is
  // overwritten: first copies to buffers that hold no argument, then copies of
  // arguments to temporary memory, then all other copies.
  OpBuilder b(end);
  auto target = [&](unsigned index) {
    return argumentOf.contains(table.ofResult(func, index));
  };
  auto copy = [&](unsigned index) {
    end->setOperand(index, copyWhole(b, end->getLoc(), end->getOperand(index)));
  };
  auto readsArgument = [&](unsigned index) {
    const Storage &storage =
        storages[places.lookup(end->getOperand(index)).storage];
    return storage.argument && !storage.constant;
  };
  SmallVector<unsigned> later;
  for (unsigned index : copies)
    if (!target(index))
      copy(index);
  for (unsigned index : copies)
    if (target(index) && readsArgument(index))
      copy(index);
  for (unsigned index : copies)
    if (target(index))
      copy(index);
}

void ActionPlan::reuseOperands() {
  for (Operation &op : actionBody(func)) {
    auto command = dyn_cast<rt::CommandOpInterface>(op);
    if (!command)
      continue;
    for (rt::Reuse reuse : command.getReuse()) {
      if (reuse.required || !canTake(&op, reuse.result, reuse.operand))
        continue;
      int64_t to = find(places[op.getResult(reuse.result)].storage);
      int64_t from = find(places[op.getOperand(reuse.operand)].storage);
      if (to == from || storages[to].first != positions.lookup(&op) ||
          storages[from].boundary >= 0)
        continue;
      if (int64_t target = storages[to].boundary; target >= 0) {
        // The command's result is also a result of the function, in a fixed
        // buffer, which may be an argument's buffer, too. If the operand gets
        // the same memory, the command that computes the operand overwrites
        // this argument. So neither that command nor a later one may read the
        // argument.
        auto old = argumentOf.find(target);
        if (old != argumentOf.end() &&
            storages[old->second].last >= storages[from].first)
          continue;
      }
      storages[from].boundary = storages[to].boundary;
      storages[from].beforeLast =
          std::max(storages[from].last, storages[to].beforeLast);
      storages[from].last = storages[to].last;
      storages[from].bytes = std::max(storages[from].bytes, storages[to].bytes);
      parent[to] = from;
    }
  }
}

int64_t ActionPlan::pack() {
  SmallVector<int64_t> order;
  for (int64_t i = 0; i < int64_t(storages.size()); ++i)
    if (parent[i] == i && storages[i].boundary < 0)
      order.push_back(i);
  llvm::stable_sort(order, [&](int64_t x, int64_t y) {
    return storages[x].bytes > storages[y].bytes;
  });
  /// A storage with an assigned byte range [begin, end), live from operation
  /// `first` to `last`.
  struct Placed {
    int64_t begin, end, first, last;
  };
  std::vector<Placed> placed; // sorted by `begin`
  int64_t top = 0;
  for (int64_t index : order) {
    Storage &storage = storages[index];
    int64_t size = alignUp(storage.bytes), end = 0, best = -1, slack = 0;
    for (const Placed &other : placed) {
      if (other.first > storage.last || storage.first > other.last)
        continue;
      int64_t gap = other.begin - end;
      if (gap >= size && (best < 0 || gap - size < slack)) {
        best = end;
        slack = gap - size;
      }
      end = std::max(end, other.end);
    }
    storage.offset = best >= 0 ? best : end;
    Placed here{storage.offset, storage.offset + size, storage.first,
                storage.last};
    placed.insert(llvm::upper_bound(placed, here,
                                    [](const Placed &a, const Placed &b) {
                                      return a.begin < b.begin;
                                    }),
                  here);
    top = std::max(top, here.end);
  }
  return top;
}
