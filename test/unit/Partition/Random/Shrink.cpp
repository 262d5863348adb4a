// The shrinker: edits on copies of the program, each kept where the copy still
// fails, until none is.

#include "Shrink.h"

#include "cleave/Partition/FactorGraph.h"
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

func::FuncOp functionOf(ModuleOp module) {
  return *module.getOps<func::FuncOp>().begin();
}
Block &bodyOf(ModuleOp module) { return functionOf(module).getBody().front(); }
Operation *opAt(ModuleOp module, size_t number) {
  return &*std::next(bodyOf(module).begin(), number);
}
size_t countOps(ModuleOp module) {
  return bodyOf(module).getOperations().size() - 1;
}

/// Erases what nobody reads and makes the function's type that of its body.
void tidy(ModuleOp module) {
  func::FuncOp func = functionOf(module);
  Block &body = bodyOf(module);
  SmallVector<Operation *> ops;
  for (Operation &op : body.without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops))
    if (op->use_empty())
      op->erase();
  func.setFunctionType(
      FunctionType::get(module.getContext(), body.getArgumentTypes(),
                        body.getTerminator()->getOperandTypes()));
  for (unsigned i = func.getNumArguments(); i-- > 0;)
    if (body.getArgument(i).use_empty() && func.getNumArguments() > 1)
      (void)func.eraseArgument(i);
}

//===----------------------------------------------------------------------===//
// Shardings
//===----------------------------------------------------------------------===//

/// The places in which a program asks for shardings, in a fixed order.
size_t countSlots(ModuleOp module) {
  func::FuncOp func = functionOf(module);
  return func.getNumArguments() + func.getNumResults() +
         llvm::range_size(func.getOps<ConstrainOp>());
}

ShardingAttr slot(ModuleOp module, size_t number,
                  std::optional<ShardingAttr> set = {}) {
  func::FuncOp func = functionOf(module);
  if (number < func.getNumArguments()) {
    if (set && *set)
      func.setArgAttr(number, kShardingAttrName, *set);
    else if (set)
      func.removeArgAttr(number, kShardingAttrName);
    return func.getArgAttrOfType<ShardingAttr>(number, kShardingAttrName);
  }
  number -= func.getNumArguments();
  if (number < func.getNumResults()) {
    auto name = StringAttr::get(module.getContext(), kShardingAttrName);
    if (set && *set)
      func.setResultAttr(number, kShardingAttrName, *set);
    else if (set)
      func.removeResultAttr(number, name);
    return func.getResultAttrOfType<ShardingAttr>(number, kShardingAttrName);
  }
  auto constrain = *std::next(func.getOps<ConstrainOp>().begin(),
                              number - func.getNumResults());
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
  std::set<Dim> fixed; // products of sizes
  SmallVector<Value> values;

  explicit DimClasses(ModuleOp module) {
    llvm::DenseMap<Value, size_t> number;
    auto add = [&](Value value) {
      number[value] = values.size();
      for (size_t dim = 0,
                  rank = cast<RankedTensorType>(value.getType()).getRank();
           dim < rank; ++dim)
        classes.insert({values.size(), dim});
      values.push_back(value);
    };
    for (Value argument : bodyOf(module).getArguments())
      add(argument);
    for (Operation &op : bodyOf(module).without_terminator())
      for (Value result : op.getResults())
        add(result);
    for (Operation &op : bodyOf(module).without_terminator()) {
      ShardingRule rule = partition::ruleOf(&op);
      SmallVector<std::optional<Dim>> first(rule.factors.size());
      auto join = [&](Value value, const TensorFactors &dims) {
        for (auto [dim, made] : llvm::enumerate(dims)) {
          Dim here = {number[value], dim};
          if (made.size() != 1) {
            fixed.insert(here);
            continue;
          }
          if (first[made[0]])
            classes.unionSets(*first[made[0]], here);
          first[made[0]] = here;
        }
      };
      for (auto [operand, dims] :
           llvm::zip_equal(op.getOperands(), rule.operands))
        join(operand, dims);
      for (auto [result, dims] : llvm::zip_equal(op.getResults(), rule.results))
        join(result, dims);
    }
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
      if (!dropResults() && !cutOperations() && !skipOperations() &&
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

  bool dropResults() {
    bool any = false;
    for (unsigned i = functionOf(*current).getNumResults(); i-- > 0;)
      any |= attempt([&](ModuleOp module) {
        func::FuncOp func = functionOf(module);
        if (func.getNumResults() == 1)
          return false;
        bodyOf(module).getTerminator()->eraseOperand(i);
        return succeeded(func.eraseResult(i));
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
        func::FuncOp func = functionOf(module);
        // Counting a constant as smaller than an argument keeps this finite.
        if (op->getNumOperands() == 0)
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

  bool mergeArguments() {
    bool any = false;
    for (unsigned i = functionOf(*current).getNumArguments(); i-- > 1;)
      for (unsigned j = 0; j < i; ++j)
        any |= attempt([&](ModuleOp module) {
          func::FuncOp func = functionOf(module);
          if (i >= func.getNumArguments() ||
              func.getArgument(i).getType() != func.getArgument(j).getType() ||
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
        func::FuncOp func = functionOf(module);
        if (number >= countSlots(module) || !slot(module, number))
          return false;
        if (number >= func.getNumArguments() + func.getNumResults())
          return false; // constraints go as operations do
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
