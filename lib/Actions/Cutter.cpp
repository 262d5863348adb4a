// Cuts a function into parts that run one after another.

#include "Cutter.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/ProgramWalk.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::actions;

Cutter::Cutter(func::FuncOp func, const DenseMap<Operation *, unsigned> &partOf,
               unsigned parts)
    : results(parts), func(func), partOf(partOf) {}

bool Cutter::isFree(Value value) {
  Operation *def = value.getDefiningOp();
  return def && def->getNumOperands() == 0 && def->getNumRegions() == 0 &&
         isPure(def);
}

void Cutter::forOperands(Operation *op, llvm::function_ref<void(Value)> body) {
  llvm::SetVector<Value> read(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), read);
  for (Value value : read)
    body(value);
}

void Cutter::analyze(StringRef prefix) {
  Block &block = actionBody(func);
  MLIRContext *context = func.getContext();
  for (BlockArgument argument : block.getArguments()) {
    Kept entry;
    entry.attrs = func.getArgAttrDict(argument.getArgNumber());
    entry.persistent =
        isPersistent(roleOf(func.getArgAttrDict(argument.getArgNumber())));
    kept.insert({argument, entry});
  }
  auto read = [&](Value value, unsigned part) {
    if (isFree(value))
      return;
    Operation *def = value.getDefiningOp();
    if (def && partOf.lookup(def) == part)
      return;
    auto [entry, isNew] = kept.insert({value, Kept()});
    if (isNew)
      entry->second.first = partOf.lookup(def);
    entry->second.last = std::max<int>(entry->second.last, part);
  };
  for (Operation &op : block.without_terminator())
    forOperands(&op, [&](Value value) { read(value, partOf.lookup(&op)); });
  for (auto [part, list] : llvm::enumerate(results))
    for (const ResultPort &result : list)
      read(result.value, part);
  // A value that is a named result of a part keeps its name as an argument of
  // later parts.
  for (auto [part, list] : llvm::enumerate(results))
    for (const ResultPort &result : list)
      if (auto entry = kept.find(result.value);
          entry != kept.end() && entry->second.first == int(part) &&
          entry->second.attrs.empty() && !isPersistent(roleOf(result.attrs)))
        entry->second.attrs = result.attrs;
  // A parameter or an input may have a name such as r0, too.
  llvm::StringSet<> taken;
  for (auto &[value, entry] : kept)
    taken.insert(nameOf(entry.attrs.getDictionary(context)));
  for (const auto &list : results)
    for (const ResultPort &result : list)
      taken.insert(nameOf(result.attrs));
  unsigned residuals = 0;
  for (auto &[value, entry] : kept)
    if (entry.attrs.empty()) {
      std::string name;
      do
        name = (prefix + Twine(residuals++)).str();
      while (taken.contains(name));
      nn::setName(entry.attrs, context, name);
      nn::setRole(entry.attrs, context, Role::Residual);
    }
}

std::vector<func::FuncOp>
Cutter::build(ArrayRef<std::string> names,
              llvm::function_ref<bool(unsigned)> isKept) {
  std::vector<func::FuncOp> functions;
  for (auto [part, name] : llvm::enumerate(names))
    functions.push_back(buildPart(part, name, isKept(part)));
  func.erase();
  return functions;
}

DictionaryAttr Cutter::attrsOf(const Kept &entry) {
  return entry.attrs.getDictionary(func.getContext());
}

/// Returns whether later parts read this result of the part under the same name
/// and role.
bool Cutter::isKeptAs(const ResultPort &result, unsigned part) {
  auto entry = kept.find(result.value);
  return entry != kept.end() && entry->second.first == int(part) &&
         nameOf(attrsOf(entry->second)) == nameOf(result.attrs) &&
         roleOf(attrsOf(entry->second)) == roleOf(result.attrs);
}

/// Returns the results of the part's function: the part's own results, and
/// other values that later parts read.
std::vector<ResultPort> Cutter::resultsOf(unsigned part) {
  std::vector<ResultPort> found;
  llvm::DenseSet<Value> returned;
  for (const ResultPort &result : results[part])
    if (isKeptAs(result, part)) {
      found.push_back({result.value, attrsOf(kept.find(result.value)->second)});
      returned.insert(result.value);
    } else {
      found.push_back(result);
    }
  for (auto &[value, entry] : kept)
    if (entry.first == int(part) && entry.last > int(part) &&
        !returned.contains(value))
      found.push_back({value, attrsOf(entry)});
  return found;
}

/// Adds the values that the part reads: values of earlier parts to `inputs`,
/// and values that the part recomputes to `free`.
void Cutter::collectInputs(unsigned part, ArrayRef<Operation *> ops,
                           ArrayRef<ResultPort> results,
                           llvm::SetVector<Value> &inputs,
                           llvm::SetVector<Value> &free) {
  auto need = [&](Value value) {
    if (isFree(value))
      free.insert(value);
    else if (Operation *def = value.getDefiningOp();
             !def || partOf.lookup(def) != part)
      inputs.insert(value);
  };
  for (Operation *op : ops)
    forOperands(op, need);
  for (const ResultPort &result : results)
    need(result.value);
}

func::FuncOp Cutter::buildPart(unsigned part, StringRef name, bool isKept) {
  std::vector<ResultPort> returned = resultsOf(part);
  if (returned.empty() && !isKept)
    return {};
  SmallVector<Operation *> ops;
  for (Operation &op : actionBody(func).without_terminator())
    if (partOf.lookup(&op) == part)
      ops.push_back(&op);
  llvm::SetVector<Value> inputs, free;
  collectInputs(part, ops, returned, inputs, free);
  // The function's arguments are in the order of `kept`, which is program
  // order.
  SmallVector<Value> arguments;
  SmallVector<DictionaryAttr> argumentAttrs;
  for (auto &[value, entry] : kept)
    if (inputs.contains(value)) {
      arguments.push_back(value);
      argumentAttrs.push_back(attrsOf(entry));
    }
  SmallVector<Value> values;
  SmallVector<DictionaryAttr> resultAttrs;
  for (const ResultPort &result : returned) {
    values.push_back(result.value);
    resultAttrs.push_back(result.attrs);
  }
  func::FuncOp created =
      createFunction(name, arguments, values, free.getArrayRef(), ops);
  created.setAllArgAttrs(argumentAttrs);
  created.setAllResultAttrs(resultAttrs);
  return created;
}

/// Creates a function with copies of the `free` values and of `ops`.
func::FuncOp Cutter::createFunction(StringRef name, ValueRange arguments,
                                    ValueRange results, ValueRange free,
                                    ArrayRef<Operation *> ops) {
  OpBuilder b(func);
  auto created = func::FuncOp::create(
      b, func.getLoc(), name,
      b.getFunctionType(TypeRange(arguments), TypeRange(results)));
  Block *body = created.addEntryBlock();
  IRMapping mapping;
  for (auto [from, to] : llvm::zip(arguments, body->getArguments())) {
    mapping.map(from, to);
    to.setLoc(from.getLoc());
  }
  b.setInsertionPointToStart(body);
  for (Value value : free)
    if (!mapping.contains(value))
      b.clone(*value.getDefiningOp(), mapping);
  for (Operation *op : ops)
    if (!llvm::all_of(op->getResults(),
                      [&](Value result) { return mapping.contains(result); }) ||
        op->getNumResults() == 0)
      b.clone(*op, mapping);
  SmallVector<Value> mapped;
  for (Value value : results)
    mapped.push_back(mapping.lookup(value));
  func::ReturnOp::create(b, func.getLoc(), mapped);
  return created;
}
