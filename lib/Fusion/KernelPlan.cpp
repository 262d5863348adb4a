// Chooses the plan of a kernel with the lowest estimated cost.

#include "cleave/Fusion/KernelPlan.h"

#include "PlanBuilder.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::kernels;

namespace {

/// The part of a planning request that all candidate plans share: the outputs
/// to compute, and the operations that belong to the kernel.
struct Request {
  ArrayRef<Value> outputs, firstArguments;
  llvm::function_ref<bool(Operation *)> inside;

  std::unique_ptr<KernelPlan> tryChoice(const PlanChoice &choice,
                                        std::string &error) const {
    auto plan = std::make_unique<KernelPlan>();
    plan->outputs.assign(outputs.begin(), outputs.end());
    plan->arguments.insert(firstArguments.begin(), firstArguments.end());
    PlanBuilder builder(*plan, inside, choice);
    auto scatter = outputs[0].getDefiningOp<nn::ScatterAddOp>();
    bool built;
    if (scatter && inside(scatter)) {
      if (outputs.size() > 1) {
        error = "a scatter_add shares its kernel with other results";
        return nullptr;
      }
      built = builder.buildScatter(scatter);
    } else {
      built = builder.build();
    }
    if (!built) {
      error = builder.error;
      return nullptr;
    }
    assignBuffers(*plan);
    estimate(*plan);
    return plan;
  }
};

/// Properties of a kernel's operations from which candidate plans are derived.
struct Survey {
  /// The numbers of rows of the reductions over trailing dimensions, largest
  /// first.
  std::set<int64_t, std::greater<int64_t>> rows;
  /// The products of the last size, the last two sizes, and so on, of each
  /// shape in the kernel.
  std::set<int64_t, std::greater<int64_t>> suffixes;
  /// A type in the kernel for which there are no loops; null if there is none.
  Type unfit;

  explicit Survey(const Request &request) {
    SmallVector<Value> worklist(request.outputs);
    llvm::DenseSet<Value> seen(worklist.begin(), worklist.end());
    while (!worklist.empty()) {
      Value value = worklist.pop_back_val();
      auto type = dyn_cast<RankedTensorType>(value.getType());
      if (!type || !type.hasStaticShape() ||
          llvm::is_contained(type.getShape(), 0)) {
        unfit = value.getType();
        return;
      }
      int64_t product = 1;
      for (int64_t size : llvm::reverse(typeOf(value).getShape()))
        if ((product *= size) > 1)
          suffixes.insert(product);
      Operation *op = value.getDefiningOp();
      if (!op || !request.inside(op))
        continue;
      if (auto reduce = dyn_cast<nn::ReduceOp>(op)) {
        int64_t rank = typeOf(reduce.getInput()).getRank();
        ArrayRef<int64_t> dims = reduce.getDims();
        if (!dims.empty() && dims.back() == rank - 1 &&
            dims.front() == rank - int64_t(dims.size()))
          rows.insert(reduce.getType().getNumElements());
      }
      for (Value operand : op->getOperands())
        if (seen.insert(operand).second)
          worklist.push_back(operand);
    }
  }
};

} // namespace

/// Tries to split the loop over the columns of the best plan into two loops, so
/// that the indices of its accesses become linear.
static void refineColumns(const Request &request, const Survey &survey,
                          PlanChoice &choice,
                          std::unique_ptr<KernelPlan> &best) {
  if (best->irregular == 0)
    return;
  SmallVector<int64_t> counts;
  for (const Columns &columns : best->columnSpaces)
    counts.push_back(columns.count);
  for (int64_t count : counts) {
    PlanChoice bestChoice = choice;
    for (int64_t lanes : survey.suffixes) {
      if (lanes >= count || count % lanes != 0)
        continue;
      PlanChoice trial = choice;
      trial.lanes[count] = lanes;
      std::string ignored;
      auto plan = request.tryChoice(trial, ignored);
      if (plan && plan->cost < best->cost) {
        best = std::move(plan);
        bestChoice = trial;
      }
    }
    choice = bestChoice;
  }
}

std::unique_ptr<KernelPlan>
KernelPlan::create(ArrayRef<Value> outputs, ArrayRef<Value> firstArguments,
                   llvm::function_ref<bool(Operation *)> inside,
                   std::string &error) {
  if (outputs.empty()) {
    error = "a kernel without results";
    return nullptr;
  }
  Request request{outputs, firstArguments, inside};
  Survey survey(request);
  if (survey.unfit) {
    llvm::raw_string_ostream(error)
        << "a value of type " << survey.unfit
        << ", where tensors of known, positive sizes are expected";
    return nullptr;
  }
  std::unique_ptr<KernelPlan> best;

  // If the kernel has row reductions, the number of rows is that of one of
  // them. All candidates are planned, and the cheapest plan is chosen.
  for (int64_t rows : survey.rows) {
    PlanChoice choice;
    choice.rows = rows;
    auto plan = request.tryChoice(choice, error);
    if (!plan)
      continue;
    refineColumns(request, survey, choice, plan);
    if (!best || plan->cost < best->cost)
      best = std::move(plan);
  }
  if (best)
    return best;

  if (auto flat = request.tryChoice({}, error))
    best = std::move(flat);
  if (best && (best->irregular == 0 || best->shape == Shape::Scatter))
    return best;

  // Tries to split the elements into rows and columns, which can avoid index
  // divisions. The number of columns is a product of trailing sizes.
  int64_t elements = typeOf(outputs[0]).getNumElements();
  for (int64_t count : survey.suffixes) {
    if (elements % count != 0)
      continue;
    PlanChoice choice;
    choice.rows = elements / count;
    std::string ignored;
    auto plan = request.tryChoice(choice, best ? ignored : error);
    if (!plan)
      continue;
    refineColumns(request, survey, choice, plan);
    if (!best || plan->cost < best->cost)
      best = std::move(plan);
  }
  return best;
}

std::unique_ptr<KernelPlan> KernelPlan::create(func::FuncOp kernel,
                                               std::string &error) {
  if (kernel.isExternal() || !kernel.getBody().hasOneBlock()) {
    error = "a kernel without one block of operations";
    return nullptr;
  }
  SmallVector<Value> arguments(kernel.getArguments());
  auto results =
      cast<func::ReturnOp>(kernel.front().getTerminator()).getOperands();
  return create(
      SmallVector<Value>(results), arguments, [](Operation *) { return true; },
      error);
}

namespace {
/// The nodes that one loop of a plan reads.
struct Reads {
  const KernelPlan &plan;
  size_t loop;
  llvm::DenseSet<const Node *> nodes;

  void add(const IndexExpr &index) {
    for (auto [var, factor] : index.terms()) {
      if (var->node)
        add(var->node);
      add(var->base);
    }
  }
  void add(const Node *node) {
    if (!node || plan.bufferOf(node, loop) || !nodes.insert(node).second)
      return;
    for (const Node *operand : node->operands)
      add(operand);
    add(node->guard);
    add(node->index);
    if (node->reduction && !node->reduction->perRow())
      add(node->reduction->input);
  }
};
} // namespace

SmallVector<std::pair<int64_t, int64_t>> KernelPlan::inPlace() const {
  SmallVector<std::pair<int64_t, int64_t>> result;
  if (shape == Shape::Scatter)
    return result;
  // The elements that each loop loads. The last entry is for loads outside of
  // these loops: those of scalars of the row and of values stored once per row.
  std::vector<Reads> read;
  for (auto [number, loop] : llvm::enumerate(loops)) {
    read.push_back({*this, number, {}});
    for (const Reduction *reduction : loop.reductions)
      read.back().add(reduction->input);
    for (const Store &store : loop.stores)
      read.back().add(store.value);
  }
  read.push_back({*this, loops.size(), {}});
  for (const Store &store : rowStores)
    read.back().add(store.value);

  auto find = [&](const Store &store, size_t position) {
    for (auto [number, argument] : llvm::enumerate(arguments)) {
      if (argument.getType() != outputs[store.result].getType())
        continue;
      bool good = true, used = false;
      for (size_t at = 0; at < read.size(); ++at)
        for (const Node *node : read[at].nodes)
          if (node->kind == Node::Kind::Load && node->source == number) {
            used = true;
            good &=
                at <= position && node->index == store.index && !node->guard;
          }
      if (good && used)
        result.push_back({store.result, number});
    }
  };
  for (auto [number, loop] : llvm::enumerate(loops))
    for (const Store &store : loop.stores)
      find(store, number);
  for (const Store &store : rowStores)
    find(store, loops.size());
  return result;
}

static void printIndex(const IndexExpr &index, llvm::raw_ostream &os) {
  bool first = true;
  for (auto [var, factor] : index.terms()) {
    os << (first ? "" : " + ");
    first = false;
    if (factor != 1)
      os << factor << " ";
    switch (var->kind) {
    case IndexVar::Kind::Loop:
      os << "i" << var->loop;
      break;
    case IndexVar::Kind::FloorDiv:
    case IndexVar::Kind::Mod:
      os << "(";
      printIndex(var->base, os);
      os << (var->kind == IndexVar::Kind::Mod ? ") mod " : ") / ")
         << var->divisor;
      break;
    case IndexVar::Kind::Data:
      os << "n" << var->node->id;
      break;
    }
  }
  if (first || index.constant())
    os << (first ? "" : " + ") << index.constant();
}

static void printNode(const Node &node, llvm::raw_ostream &os) {
  os << "  n" << node.id << ": " << node.type << " = ";
  switch (node.kind) {
  case Node::Kind::Compute:
    os << node.op->getName();
    if (node.op->getNumResults() > 1)
      os << "#" << node.result;
    break;
  case Node::Kind::Load:
    os << "load " << node.source;
    break;
  case Node::Kind::Constant:
    os << node.value;
    break;
  case Node::Kind::Table:
    os << "table";
    break;
  case Node::Kind::Index:
    os << "index";
    break;
  case Node::Kind::InRange:
    os << "in " << node.low << ".." << node.high;
    break;
  case Node::Kind::Select:
    os << "select";
    break;
  case Node::Kind::Reduced:
    os << "reduced " << nn::stringifyCombiner(node.reduction->op.getCombiner())
       << " n" << node.reduction->input->id;
    if (node.reduction->sequence)
      os << " along i" << node.reduction->sequence->loop;
    break;
  case Node::Kind::RankOffset:
    os << "rank offset";
    break;
  }
  for (const Node *operand : node.operands)
    os << " n" << operand->id;
  if (node.kind == Node::Kind::Load || node.kind == Node::Kind::Table ||
      node.kind == Node::Kind::Index ||
      (node.kind == Node::Kind::InRange && node.operands.empty())) {
    os << " [";
    printIndex(node.index, os);
    os << "]";
  }
  if (node.guard)
    os << " if n" << node.guard->id;
  os << "\n";
}

void KernelPlan::print(llvm::raw_ostream &os) const {
  if (shape == Shape::Flat)
    os << "flat, " << block << " elements an iteration";
  else if (shape == Shape::Rows)
    os << "rows i" << row->loop;
  else
    os << "scatter";
  os << ", extent " << extent << ", grain " << grain << "\n";
  for (const Node &node : nodes)
    printNode(node, os);
  auto printStore = [&](const Store &store) {
    os << "    result " << store.result << " [";
    printIndex(store.index, os);
    os << "] = n" << store.value->id << "\n";
  };
  for (const ColumnLoop &loop : loops) {
    os << "  loop";
    for (const Node &node : nodes)
      if (auto kept = buffers.find(&node);
          kept != buffers.end() && &loops[kept->second.first] == &loop)
        os << " keeps n" << node.id;
    if (loop.columns->outer->size > 1)
      os << " i" << loop.columns->outer->loop << " < "
         << loop.columns->outer->size << ",";
    os << " i" << loop.columns->lane->loop << " < " << loop.columns->lane->size
       << "\n";
    for (const Reduction *reduction : loop.reductions)
      os << "    n" << reduction->outcome->id << " = reduce n"
         << reduction->input->id << "\n";
    for (const Store &store : loop.stores)
      printStore(store);
  }
  if (!rowStores.empty())
    os << "  row\n";
  for (const Store &store : rowStores)
    printStore(store);
  if (shape == Shape::Scatter)
    os << "  row n" << scatter.target->id << " of " << scatter.rows << " += n"
       << scatter.value->id << " along i" << scatter.columns.lane->loop << " < "
       << scatter.columns.count << "\n";
}
