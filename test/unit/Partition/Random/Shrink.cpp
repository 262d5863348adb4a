// The shrinker: edits on copies of the program, each kept where the copy still
// fails, until none is.

#include "Shrink.h"

#include "cleave/Partition/Boundary.h"
#include "cleave/Partition/FactorGraph.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::random;

namespace {

SmallVector<func::FuncOp> functionsOf(ModuleOp module) {
  return llvm::to_vector(module.getOps<func::FuncOp>());
}

/// All operations of all functions in a fixed order, those of loops and
/// branches behind them; without terminators.
SmallVector<Operation *> opsOf(ModuleOp module) {
  SmallVector<Operation *> ops;
  for (func::FuncOp func : functionsOf(module))
    func.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (!op->hasTrait<OpTrait::IsTerminator>())
        ops.push_back(op);
    });
  return ops;
}
Operation *opAt(ModuleOp module, size_t number) {
  return opsOf(module)[number];
}
size_t countOps(ModuleOp module) { return opsOf(module).size(); }

/// Erases what nobody reads and makes the types of functions those of their
/// bodies.
void tidy(ModuleOp module) {
  SmallVector<Operation *> ops = opsOf(module);
  for (Operation *op : llvm::reverse(ops))
    if (op->use_empty())
      op->erase();
  for (func::FuncOp func : functionsOf(module)) {
    Block &body = func.getBody().front();
    func.setFunctionType(
        FunctionType::get(module.getContext(), body.getArgumentTypes(),
                          body.getTerminator()->getOperandTypes()));
    for (unsigned i = func.getNumArguments(); i-- > 0;)
      if (body.getArgument(i).use_empty() && func.getNumArguments() > 1)
        (void)func.eraseArgument(i);
  }
}

//===----------------------------------------------------------------------===//
// Shardings
//===----------------------------------------------------------------------===//

/// The places in which a program asks for shardings, in a fixed order: ports,
/// then constraints.
SmallVector<ConstrainOp> constraintsOf(ModuleOp module) {
  SmallVector<ConstrainOp> found;
  module.walk<WalkOrder::PreOrder>(
      [&](ConstrainOp op) { found.push_back(op); });
  return found;
}

size_t countSlots(ModuleOp module) {
  return partition::portsOf(module).size() + constraintsOf(module).size();
}

void setAttr(const partition::Port &port, StringRef name, Attribute value) {
  func::FuncOp func = port.func;
  auto key = StringAttr::get(func.getContext(), name);
  if (port.isResult && value)
    func.setResultAttr(port.index, key, value);
  else if (port.isResult)
    func.removeResultAttr(port.index, key);
  else if (value)
    func.setArgAttr(port.index, key, value);
  else
    func.removeArgAttr(port.index, key);
}

ShardingAttr slot(ModuleOp module, size_t number,
                  std::optional<ShardingAttr> set = {}) {
  SmallVector<partition::Port> ports = partition::portsOf(module);
  if (number < ports.size()) {
    if (set)
      setAttr(ports[number], kShardingAttrName, *set);
    return ports[number].sharding();
  }
  SmallVector<ConstrainOp> constraints = constraintsOf(module);
  if (number - ports.size() >= constraints.size())
    return {}; // it went with an edit
  ConstrainOp constrain = constraints[number - ports.size()];
  if (set && *set)
    constrain.setShardingAttr(*set);
  return constrain.getSharding();
}

/// The sharding without the axis references for which `drop` holds.
ShardingAttr without(ShardingAttr sharding,
                     llvm::function_ref<bool(AxisRefAttr)> drop) {
  auto kept = [&](ArrayRef<AxisRefAttr> axes) {
    SmallVector<AxisRefAttr> result;
    for (AxisRefAttr axis : axes)
      if (!drop(axis))
        result.push_back(axis);
    return result;
  };
  MLIRContext *context = sharding.getContext();
  SmallVector<DimShardingAttr> dims;
  for (DimShardingAttr dim : sharding.getDims())
    dims.push_back(
        DimShardingAttr::get(context, kept(dim.getAxes()), dim.getIsOpen()));
  return ShardingAttr::get(
      context, sharding.getMesh(), dims, sharding.getPartialKind(),
      kept(sharding.getPartial()), kept(sharding.getReplicated()),
      sharding.getPriority());
}

SmallVector<AxisRefAttr> refsOf(ShardingAttr sharding) {
  SmallVector<AxisRefAttr> refs;
  for (DimShardingAttr dim : sharding.getDims())
    llvm::append_range(refs, dim.getAxes());
  llvm::append_range(refs, sharding.getPartial());
  llvm::append_range(refs, sharding.getReplicated());
  return refs;
}

/// Closed everywhere, priority 0.
ShardingAttr plain(ShardingAttr sharding) {
  SmallVector<DimShardingAttr> dims;
  for (DimShardingAttr dim : sharding.getDims())
    dims.push_back(
        DimShardingAttr::get(sharding.getContext(), dim.getAxes(), false));
  return ShardingAttr::get(sharding.getContext(), sharding.getMesh(), dims,
                           sharding.getPartialKind(), sharding.getPartial(),
                           sharding.getReplicated(), 0);
}

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

/// Dimensions that have one size because some rule says so.
struct DimClasses {
  using Dim = std::pair<size_t, size_t>; // number of the value, dimension
  llvm::EquivalenceClasses<Dim> classes;
  std::set<Dim> fixed; // products of sizes, and windows
  SmallVector<Value> values;
  llvm::DenseMap<Value, size_t> number;

  explicit DimClasses(ModuleOp module) {
    for (func::FuncOp func : functionsOf(module))
      for (Value argument : func.getArguments())
        add(argument);
    for (Operation *op : opsOf(module)) {
      for (Value result : op->getResults())
        add(result);
      for (Region &region : op->getRegions())
        for (Value argument : region.getArguments())
          add(argument);
    }
    for (Operation *op : opsOf(module)) {
      ShardingRule rule = partition::ruleOf(op);
      SmallVector<std::optional<Dim>> first(rule.factors.size());
      auto join = [&](Value value, const TensorFactors &dims) {
        for (auto [dim, made] : llvm::enumerate(dims)) {
          Dim here = {number[value], dim};
          if (made.size() != 1) {
            fixed.insert(here);
            continue;
          }
          // Of windows, other sizes.
          if (first[made[0]] && size(*first[made[0]]) != size(here))
            fixed.insert({here, *first[made[0]]});
          else if (first[made[0]])
            classes.unionSets(*first[made[0]], here);
          first[made[0]] = here;
        }
      };
      for (auto [operand, dims] :
           llvm::zip_equal(op->getOperands(), rule.operands))
        join(operand, dims);
      for (auto [result, dims] :
           llvm::zip_equal(op->getResults(), rule.results))
        join(result, dims);
    }
    // What a loop carries, what both sides give, and what has one name.
    module.walk([&](scf::YieldOp yield) {
      for (auto [operand, result] : llvm::zip_equal(
               yield.getOperands(), yield->getParentOp()->getResults()))
        unite(operand, result);
    });
    module.walk([&](scf::ForOp loop) {
      for (auto [argument, result] :
           llvm::zip_equal(loop.getRegionIterArgs(), loop.getResults()))
        unite(argument, result);
    });
    for (ArrayRef<partition::Port> group : partition::boundaryTable(module))
      for (const partition::Port &port : group)
        unite(valueOf(group.front()), valueOf(port));
  }

  static Value valueOf(partition::Port port) {
    Block &body = port.func.getBody().front();
    return port.isResult ? body.getTerminator()->getOperand(port.index)
                         : Value(body.getArgument(port.index));
  }

  void add(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!type)
      return;
    number[value] = values.size();
    for (size_t dim = 0, rank = type.getRank(); dim < rank; ++dim)
      classes.insert({values.size(), dim});
    values.push_back(value);
  }

  void unite(Value a, Value b) {
    auto type = dyn_cast<RankedTensorType>(a.getType());
    for (size_t dim = 0, rank = type ? type.getRank() : 0; dim < rank; ++dim)
      classes.unionSets({number[a], dim}, {number[b], dim});
  }

  SmallVector<Dim> leaders() {
    SmallVector<Dim> result;
    for (auto it = classes.begin(); it != classes.end(); ++it)
      if ((*it)->isLeader())
        result.push_back((*it)->getData());
    llvm::sort(result);
    return result;
  }

  int64_t size(Dim dim) const {
    return cast<RankedTensorType>(values[dim.first].getType())
        .getDimSize(dim.second);
  }

  bool resize(Dim leader, int64_t size) {
    for (auto member = classes.findLeader(leader);
         member != classes.member_end(); ++member) {
      if (fixed.count(*member))
        return false;
      Value value = values[member->first];
      auto type = cast<RankedTensorType>(value.getType());
      SmallVector<int64_t> shape(type.getShape());
      shape[member->second] = size;
      value.setType(type.clone(shape));
      if (auto constant = value.getDefiningOp<arith::ConstantOp>()) {
        auto dense = cast<DenseElementsAttr>(constant.getValue());
        if (!dense.isSplat())
          return false;
        constant.setValueAttr(dense.resizeSplat(type.clone(shape)));
      }
    }
    return true;
  }
};

//===----------------------------------------------------------------------===//
// The search
//===----------------------------------------------------------------------===//

class Shrinker {
public:
  Shrinker(ModuleOp program, llvm::function_ref<bool(ModuleOp)> fails)
      : current(program.clone()), fails(fails) {}

  OwningOpRef<ModuleOp> run() {
    // Each round is cheap next to the run that found the case, so bound them
    // only against surprises.
    for (int round = 0; round < 20; ++round)
      if (!dropFunctions() && !dropNames() && !dropResults() &&
          !cutOperations() && !skipOperations() && !inlineRegions() &&
          !mergeArguments() && !dropShardings() && !simplifyShardings() &&
          !dropAxes() && !shrinkSizes())
        break;
    return std::move(current);
  }

private:
  /// Keeps the edit where it applies and the copy still fails.
  bool attempt(llvm::function_ref<bool(ModuleOp)> edit) {
    OwningOpRef<ModuleOp> copy = current->clone();
    if (!edit(*copy))
      return false;
    tidy(*copy);
    if (!fails(*copy))
      return false;
    current = std::move(copy);
    return true;
  }

  bool dropFunctions() {
    bool any = false;
    for (size_t i = functionsOf(*current).size(); i-- > 0;)
      any |= attempt([&](ModuleOp module) {
        SmallVector<func::FuncOp> functions = functionsOf(module);
        if (functions.size() == 1)
          return false;
        functions[i].erase();
        return true;
      });
    return any;
  }

  bool dropNames() {
    bool any = false;
    for (size_t i = partition::portsOf(*current).size(); i-- > 0;)
      any |= attempt([&](ModuleOp module) {
        SmallVector<partition::Port> ports = partition::portsOf(module);
        if (i >= ports.size() || ports[i].name().empty())
          return false;
        partition::Port port = ports[i];
        setAttr(port, nn::kNameAttr, {});
        setAttr(port, nn::kRoleAttr, {});
        return true;
      });
    return any;
  }

  bool dropResults() {
    bool any = false;
    for (size_t i = partition::portsOf(*current).size(); i-- > 0;)
      any |= attempt([&](ModuleOp module) {
        SmallVector<partition::Port> ports = partition::portsOf(module);
        if (i >= ports.size() || !ports[i].isResult ||
            ports[i].func.getNumResults() == 1)
          return false;
        ports[i].func.getBody().front().getTerminator()->eraseOperand(
            ports[i].index);
        return succeeded(ports[i].func.eraseResult(ports[i].index));
      });
    return any;
  }

  /// An operation's result becomes an argument.
  bool cutOperations() {
    bool any = false;
    for (size_t number = countOps(*current); number-- > 0;) {
      if (number >= countOps(*current))
        continue;
      any |= attempt([&](ModuleOp module) {
        Operation *op = opAt(module, number);
        auto func = op->getParentOfType<func::FuncOp>();
        // Counting a constant as smaller than an argument keeps this finite.
        if (op->getNumOperands() == 0 ||
            !llvm::all_of(op->getResultTypes(),
                          llvm::IsaPred<RankedTensorType>))
          return false;
        for (Value result : op->getResults()) {
          if (result.use_empty())
            continue;
          if (failed(func.insertArgument(func.getNumArguments(),
                                         result.getType(), {}, op->getLoc())))
            return false;
          result.replaceAllUsesWith(func.getArguments().back());
        }
        return true;
      });
    }
    return any;
  }

  /// An operation's result becomes one of its operands.
  bool skipOperations() {
    bool any = false;
    for (size_t number = countOps(*current); number-- > 0;)
      for (unsigned operand = 0; operand < 4; ++operand) {
        if (number >= countOps(*current))
          continue;
        any |= attempt([&](ModuleOp module) {
          Operation *op = opAt(module, number);
          if (operand >= op->getNumOperands() || op->getNumResults() == 0 ||
              op->getOperand(operand).getType() != op->getResult(0).getType())
            return false;
          op->getResult(0).replaceAllUsesWith(op->getOperand(operand));
          return true;
        });
      }
    return any;
  }

  /// A loop becomes one trip, a branch one of its sides.
  bool inlineRegions() {
    bool any = false;
    for (size_t number = countOps(*current); number-- > 0;)
      for (unsigned side : {0, 1}) {
        if (number >= countOps(*current))
          continue;
        any |= attempt([&](ModuleOp module) {
          Operation *op = opAt(module, number);
          if (side >= op->getNumRegions())
            return false;
          IRMapping map;
          if (auto loop = dyn_cast<scf::ForOp>(op)) {
            map.map(loop.getInductionVar(), loop.getLowerBound());
            map.map(loop.getRegionIterArgs(), loop.getInitArgs());
          }
          OpBuilder builder(op);
          Block &body = op->getRegion(side).front();
          for (Operation &inner : body.without_terminator())
            builder.clone(inner, map);
          for (auto [result, given] : llvm::zip_equal(
                   op->getResults(), body.getTerminator()->getOperands()))
            result.replaceAllUsesWith(map.lookupOrDefault(given));
          return true;
        });
      }
    return any;
  }

  bool mergeArguments() {
    bool any = false;
    for (size_t which = 0; which < functionsOf(*current).size(); ++which)
      for (unsigned i = functionsOf(*current)[which].getNumArguments();
           i-- > 1;)
        for (unsigned j = 0; j < i; ++j)
          any |= attempt([&](ModuleOp module) {
            func::FuncOp func = functionsOf(module)[which];
            if (i >= func.getNumArguments() ||
                func.getArgument(i).getType() !=
                    func.getArgument(j).getType() ||
                func.getArgument(i).use_empty())
              return false;
            func.getArgument(i).replaceAllUsesWith(func.getArgument(j));
            return true;
          });
    return any;
  }

  bool dropShardings() {
    bool any = false;
    for (size_t number = countSlots(*current); number-- > 0;)
      any |= attempt([&](ModuleOp module) {
        // Constraints go as operations do.
        if (number >= partition::portsOf(module).size() ||
            !slot(module, number))
          return false;
        slot(module, number, ShardingAttr());
        return true;
      });
    return any;
  }

  bool simplifyShardings() {
    bool any = false;
    for (size_t number = countSlots(*current); number-- > 0;) {
      auto edit = [&](llvm::function_ref<ShardingAttr(ShardingAttr)> simplify) {
        return attempt([&](ModuleOp module) {
          ShardingAttr before = slot(module, number);
          if (!before || simplify(before) == before)
            return false;
          slot(module, number, simplify(before));
          return true;
        });
      };
      any |= edit(plain);
      for (unsigned ref = 0; ref < 8; ++ref)
        any |= edit([&](ShardingAttr sharding) {
          SmallVector<AxisRefAttr> refs = refsOf(sharding);
          if (ref >= refs.size())
            return sharding;
          return without(sharding,
                         [&](AxisRefAttr axis) { return axis == refs[ref]; });
        });
    }
    return any;
  }

  bool dropAxes() {
    bool any = false;
    MeshAttr mesh = (*current->getOps<MeshOp>().begin()).getMesh();
    for (size_t index = mesh.getAxes().size(); index-- > 0;)
      any |= attempt([&](ModuleOp module) {
        MeshOp op = *module.getOps<MeshOp>().begin();
        SmallVector<MeshAxisAttr> axes(op.getMesh().getAxes());
        if (axes.size() == 1 || index >= axes.size())
          return false;
        StringAttr gone = axes[index].getName();
        axes.erase(axes.begin() + index);
        op.setMeshAttr(MeshAttr::get(module.getContext(), axes));
        for (size_t number = 0; number < countSlots(module); ++number)
          if (ShardingAttr sharding = slot(module, number))
            slot(module, number, without(sharding, [&](AxisRefAttr axis) {
                   return axis.getName() == gone;
                 }));
        return true;
      });
    return any;
  }

  bool shrinkSizes() {
    bool any = false;
    for (bool again = true; again;) {
      again = false;
      DimClasses found(*current);
      for (DimClasses::Dim leader : found.leaders()) {
        for (int64_t size = 1, end = found.size(leader); size < end && !again;
             ++size)
          again = attempt([&](ModuleOp module) {
            return DimClasses(module).resize(leader, size);
          });
        if (again)
          break;
      }
      any |= again;
    }
    return any;
  }

  OwningOpRef<ModuleOp> current;
  llvm::function_ref<bool(ModuleOp)> fails;
};

constexpr StringRef kSeedMark = "// seed of the values: ";

} // namespace

OwningOpRef<ModuleOp>
cleave::random::shrink(ModuleOp program,
                       llvm::function_ref<bool(ModuleOp)> fails) {
  return Shrinker(program, fails).run();
}

void cleave::random::reportShrunk(ModuleOp program, uint64_t seed,
                                  Runner &runner, const Outcome &outcome,
                                  StringRef path) {
  OwningOpRef<ModuleOp> small = shrink(program, [&](ModuleOp candidate) {
    return runner.run(candidate, seed).kind == outcome.kind;
  });
  Outcome last = runner.run(*small, seed);
  std::string text;
  llvm::raw_string_ostream out(text);
  out << kSeedMark << seed << "\n";
  for (auto [line, rest] = StringRef(last.message).split('\n'); !line.empty();
       std::tie(line, rest) = rest.split('\n'))
    out << "// " << name(last.kind) << ": " << line << "\n";
  out << *small << "\n";
  llvm::outs() << text;
  std::error_code error;
  llvm::raw_fd_ostream file(path, error);
  if (error) {
    llvm::errs() << path << ": " << error.message() << "\n";
    return;
  }
  file << text;
  llvm::outs() << "written to " << path << "\n";
}

int cleave::random::replayFile(StringRef path, Runner &runner,
                               MLIRContext *context) {
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(path, context);
  if (!module) {
    llvm::errs() << path << " is no module\n";
    return 2;
  }
  uint64_t seed = 1;
  if (auto buffer = llvm::MemoryBuffer::getFile(path))
    if (StringRef text = (*buffer)->getBuffer(); text.consume_front(kSeedMark))
      (void)text.consumeInteger(10, seed);
  Outcome outcome = runner.run(*module, seed);
  llvm::outs() << path << ": " << name(outcome.kind) << "\n"
               << outcome.message << "\n";
  return outcome ? 0 : 1;
}
