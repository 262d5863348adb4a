// Builds the nodes, loops and results of a kernel's plan. PlanPull.cpp creates
// the nodes that compute the operations' elements.

#include "PlanBuilder.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::kernels;

Node *PlanBuilder::fail(const Twine &message) {
  if (error.empty())
    error = message.str();
  return nullptr;
}

Node *PlanBuilder::create(Node::Kind kind, Type type, uint64_t loops,
                          int stage) {
  Node &node = plan.nodes.emplace_back();
  node.id = plan.nodes.size() - 1;
  node.kind = kind;
  node.type = type;
  node.loops = loops;
  node.stage = stage;
  return &node;
}

Node *PlanBuilder::createAccess(Node::Kind kind, Type type,
                                const IndexExpr &index, Node *guard) {
  Node *node = create(kind, type, index.loops(), stageOf(index));
  if (guard) {
    node->loops |= guard->loops;
    node->stage = std::max(node->stage, guard->stage);
  }
  node->index = index;
  node->guard = guard;
  return node;
}

Node *PlanBuilder::constant(Type type, double value) {
  Node *node = create(Node::Kind::Constant, type, 0, 0);
  if (isa<FloatType>(type))
    node->value = FloatAttr::get(type, value);
  else
    node->value = IntegerAttr::get(type, std::llround(value));
  return node;
}

Node *PlanBuilder::select(Node *condition, Node *yes, Node *no) {
  Node *node = create(Node::Kind::Select, yes->type,
                      condition->loops | yes->loops | no->loops,
                      std::max({condition->stage, yes->stage, no->stage}));
  node->operands = {condition, yes, no};
  return node;
}

Node *PlanBuilder::conjunction(Node *a, Node *b) {
  if (!a || !b)
    return a ? a : b;
  return select(a, b, constant(a->type, 0));
}

Node *PlanBuilder::inRange(const IndexExpr &index, int64_t low, int64_t high) {
  Type i1 = IntegerType::get(plan.outputs.front().getContext(), 1);
  Node *node = create(Node::Kind::InRange, i1, index.loops(), stageOf(index));
  node->index = index;
  node->low = low;
  node->high = high;
  return node;
}

IndexExpr PlanBuilder::dataIndex(Node *node, int64_t size) {
  auto [entry, isNew] = dataIndices.try_emplace({node, size});
  if (isNew)
    entry->second = plan.space.data(node, size, node->loops);
  return entry->second;
}

Columns *PlanBuilder::columnsOf(int64_t count) {
  for (Columns &columns : plan.columnSpaces)
    if (columns.count == count)
      return &columns;
  Columns &columns = plan.columnSpaces.emplace_back();
  auto choiceOf = choice.lanes.find(count);
  int64_t lanes = choiceOf == choice.lanes.end() ? count : choiceOf->second;
  columns.count = count;
  columns.outer = plan.space.addLoop(count / lanes);
  columns.lane = plan.space.addLoop(lanes);
  return &columns;
}

const IndexVar *PlanBuilder::sequenceOf(int64_t count) {
  const IndexVar *&var = sequences[count];
  if (!var) {
    var = plan.space.addLoop(count);
    sequenceLoops |= var->loops;
  }
  return var;
}

ColumnLoop &PlanBuilder::loopOf(Columns *columns, int stage) {
  auto position = plan.loops.begin();
  for (; position != plan.loops.end() && position->stage <= stage; ++position)
    if (position->stage == stage && position->columns == columns)
      return *position;
  return *plan.loops.insert(position, ColumnLoop{columns, stage, {}, {}});
}

bool PlanBuilder::addOutput(unsigned number, Value value) {
  RankedTensorType type = typeOf(value);
  int64_t elements = type.getNumElements();
  IndexExpr linear;
  Columns *columns = nullptr;
  if (!plan.row) {
    columns = columnsOf(elements);
    if (plan.columnSpaces.size() > 1) {
      fail("results of different sizes");
      return false;
    }
    linear = columns->index();
  } else {
    int64_t rows = plan.row->size;
    if (elements % rows != 0) {
      fail("a result that does not consist of the kernel's rows");
      return false;
    }
    int64_t count = elements / rows;
    linear = rowIndex() * count;
    if (count > 1) {
      columns = columnsOf(count);
      linear = linear + columns->index();
    }
  }
  Node *node =
      pull(value, plan.space.delinearize(linear, type.getShape()), nullptr);
  if (!node)
    return false;
  Store store{number, node, linear};
  if (columns)
    loopOf(columns, node->stage).stores.push_back(store);
  else
    plan.rowStores.push_back(store);
  return true;
}

bool PlanBuilder::build() {
  plan.shape = choice.rows ? KernelPlan::Shape::Rows : KernelPlan::Shape::Flat;
  if (choice.rows)
    plan.row = plan.space.addLoop(choice.rows);
  for (auto [number, value] : llvm::enumerate(plan.outputs))
    if (!addOutput(number, value))
      return false;
  if (plan.space.numLoops() >= 60)
    return fail("too many loops"), false;
  return true;
}

bool PlanBuilder::buildScatter(nn::ScatterAddOp op) {
  plan.shape = KernelPlan::Shape::Scatter;
  RankedTensorType table = op.getType();
  RankedTensorType indices = typeOf(op.getIndices());
  int64_t dim = op.getDim(), before = 1, after = 1;
  for (int64_t i = 0; i < table.getRank(); ++i)
    (i < dim ? before : after) *= i == dim ? 1 : table.getDimSize(i);
  auto &scatter = plan.scatter;
  scatter.rows = table.getDimSize(dim);
  scatter.update = plan.space.addLoop(indices.getNumElements());
  scatter.before = plan.space.addLoop(before);
  scatter.columns.count = after;
  scatter.columns.outer = plan.space.addLoop(1);
  scatter.columns.lane = plan.space.addLoop(after);
  IndexVec update = plan.space.delinearize(IndexSpace::indexOf(scatter.update),
                                           indices.getShape());
  scatter.target = pull(op.getIndices(), update, nullptr);
  IndexVec source = plan.space.delinearize(IndexSpace::indexOf(scatter.before),
                                           table.getShape().take_front(dim));
  llvm::append_range(source, update);
  llvm::append_range(
      source, plan.space.delinearize(scatter.columns.index(),
                                     table.getShape().drop_front(dim + 1)));
  scatter.value = pull(op.getUpdates(), source, nullptr);
  return scatter.target && scatter.value;
}
