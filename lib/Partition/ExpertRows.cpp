//===- ExpertRows.cpp - rows at the ranks of what they choose -------------===//

#include "ExpertRows.h"

#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/TensorExpr.h"

#include "mlir/IR/Matchers.h"
#include "llvm/Support/SaveAndRestore.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

/// Rounds are written out one by one: where buffers would ask for more, they grow.
static constexpr int64_t kMostRounds = 8;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// The value that is kept or computed again, before it was.
static Value kept(Value value) {
  while (Operation *def = value.getDefiningOp()) {
    if (!isa<nn::SaveOp, nn::RematerializeOp>(def))
      break;
    value = def->getOperand(0);
  }
  return value;
}

/// Whether two values are the same but for what keeps them.
static bool isSame(Value a, Value b) {
  a = kept(a), b = kept(b);
  if (a == b)
    return true;
  auto x = a.getDefiningOp<nn::BroadcastOp>(), y = b.getDefiningOp<nn::BroadcastOp>();
  return x && y && x.getType() == y.getType() && x.getDims() == y.getDims() &&
         isSame(x.getInput(), y.getInput());
}

/// Whether an element depends on those of the operands at the same place alone.
static bool isElementwise(Operation *op) {
  auto lowering = dyn_cast<LoweringInterface>(op);
  if (!lowering || lowering.getKernelClass() != KernelClass::Elementwise ||
      op->getNumResults() != 1 || op->getNumRegions() != 0 || op->getNumOperands() == 0)
    return false;
  ArrayRef<int64_t> shape = typeOf(op->getResult(0)).getShape();
  return llvm::all_of(op->getOperands(),
                      [&](Value operand) { return typeOf(operand).getShape() == shape; }) &&
         llvm::none_of(ShardingRule::of(op).factors,
                       [](const Factor &factor) { return factor.indexed; });
}

ExpertRows::ExpertRows(func::FuncOp func, const MeshAxes &mesh, AxisListAttr axes, double maxLoad)
    : mesh(mesh), axes(axes), ranks(axesSize(mesh.mesh(), axes.getAxes())), maxLoad(maxLoad),
      builder(func), anchor(func) {}

void ExpertRows::at(Operation *op) {
  anchor = op;
  builder.setInsertionPoint(op);
}

std::optional<Tile> ExpertRows::gathered(Value value) const {
  int64_t count = typeOf(value).getDimSize(0);
  value = kept(value);
  if (auto slice = value.getDefiningOp<nn::SliceOp>();
      slice && llvm::all_of(slice.getOffsets(), [](int64_t at) { return at == 0; }) &&
      llvm::all_of(slice.getStrides(), [](int64_t step) { return step == 1; }) &&
      typeOf(slice.getInput()).getShape().drop_front() == typeOf(value).getShape().drop_front())
    value = kept(slice.getInput());
  auto gather = value.getDefiningOp<AllGatherOp>();
  if (!gather || gather.getAxes() != axes)
    return std::nullopt;
  unsigned part = cast<OpResult>(value).getResultNumber();
  if (gather.getDims()[part] != 0)
    return std::nullopt;
  return Tile{gather.getInputs()[part], count};
}

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

Choice *ExpertRows::knownChoice(Value ids, const Tile &tile) {
  for (Choice &choice : choices)
    if (choice.ids == kept(ids) && choice.tile == typeOf(tile.value).getDimSize(0) &&
        choice.count == tile.count)
      return &choice;
  return nullptr;
}

Choice &ExpertRows::choiceOf(Value ids, const Tile &tile) {
  if (Choice *choice = knownChoice(ids, tile))
    return *choice;
  Choice &choice = choices.emplace_back();
  choice.ids = kept(ids);
  choice.tile = typeOf(tile.value).getDimSize(0);
  choice.count = tile.count;
  plan(choice);
  return choice;
}

/// Says which rows go where in which round, and tells the others.
void ExpertRows::plan(Choice &choice) {
  auto i64 = builder.getI64Type();
  Value ids = choice.ids;
  int64_t rows = choice.rows = typeOf(ids).getNumElements();
  auto wanted = static_cast<int64_t>(
      std::min(double(rows), std::ceil(maxLoad * double(rows) / double(ranks))));
  int64_t fewest = (rows + kMostRounds - 1) / kMostRounds;
  choice.places = std::min(rows, std::max<int64_t>({wanted, fewest, 1}));
  if (choice.places > wanted && choice.places == fewest)
    emitRemark(anchor->getLoc(), "buffers of experts have room for ")
        << choice.places << " rows for each of " << ranks << " ranks instead of " << wanted
        << ", so that " << kMostRounds << " rounds suffice for all " << rows << " rows";
  int64_t places = choice.places, rounds = (rows + places - 1) / places;

  auto list = RankedTensorType::get({rows}, i64),
       table = RankedTensorType::get({rounds, ranks, places}, i64),
       counts = RankedTensorType::get({ranks, rounds}, i64);
  if (!typeOf(ids).getElementType().isInteger(64))
    ids = make<arith::ExtSIOp>(typeOf(ids).clone(i64), ids);
  // No row goes to padding.
  if (choice.tile * ranks != choice.count) {
    Value inside = make<arith::CmpIOp>(arith::CmpIPredicate::slt, ids, number(ids, choice.count));
    ids = make<arith::SelectOp>(inside, ids, number(ids, -1));
  }
  ids = flat(ids, {rows});
  auto plan =
      PlanRowsOp::create(builder, anchor->getLoc(), table, list, table, counts, ids, choice.tile);
  mark(plan);

  // With one round a rank needs to know what comes to it alone; with several,
  // whether any rank needs them.
  Value received, needed;
  auto purpose = PurposeAttr::get(builder.getContext(), Purpose::Expert);
  auto first = builder.getDenseI64ArrayAttr({0}), second = builder.getDenseI64ArrayAttr({1});
  if (rounds == 1) {
    auto told = AllToAllOp::create(
        builder, anchor->getLoc(), TypeRange{RankedTensorType::get({1, ranks}, i64)},
        ValueRange{plan.getCounts()}, first, second, mesh.name(), axes, purpose);
    mark(told);
    received = flat(told->getResult(0), {ranks, 1});
  } else {
    auto told = AllGatherOp::create(
        builder, anchor->getLoc(), TypeRange{RankedTensorType::get({ranks * ranks, rounds}, i64)},
        ValueRange{plan.getCounts()}, first, mesh.name(), axes, purpose);
    mark(told);
    Value all = flat(told->getResult(0), {ranks, ranks, rounds});
    received = flat(make<dist::SliceOp>(RankedTensorType::get({ranks, 1, rounds}, i64), all,
                                        builder.getI64IntegerAttr(1), mesh.name(), axes),
                    {ranks, rounds});
    needed = make<nn::ReduceOp>(RankedTensorType::get({rounds}, i64), nn::Combiner::Max, all,
                                ArrayRef<int64_t>{0, 1});
  }
  for (int64_t index = 0; index < rounds; ++index) {
    Round &round = choice.rounds.emplace_back();
    auto block = [&](Value tables) { return flat(slice(tables, 0, index), {ranks, places}); };
    round.sources = block(plan.getSources());
    round.sent = flat(slice(plan.getCounts(), 1, index), {ranks});
    round.received = flat(slice(received, 1, index), {ranks});
    round.places = plan.getPlaces();
    if (index > 0) {
      round.places =
          make<arith::SubIOp>(round.places, number(round.places, index * ranks * places));
      Value count = slice(needed, 0, index);
      round.needed = make<arith::CmpIOp>(arith::CmpIPredicate::sgt, count, number(count, 0));
      round.number = conditions++;
      mark(ConditionOp::create(builder, anchor->getLoc(), round.needed, round.number));
    }
  }
  SmallVector<Value> there = inRounds(choice, [&](unsigned index) {
    Round &round = choice.rounds[index];
    Value sent = flat(slice(plan.getSent(), 0, index), {ranks, places});
    Value arrived = exchange(choice, index, sent, /*home=*/false);
    auto type = typeOf(arrived);
    Value place = make<nn::IotaOp>(type, uint64_t(1));
    Value end = make<nn::BroadcastOp>(type, round.received, ArrayRef<int64_t>{0});
    Value isRow = make<arith::CmpIOp>(arith::CmpIPredicate::slt, place, end);
    return round.ids = make<arith::SelectOp>(isRow, arrived, number(arrived, -1));
  });
}

SmallVector<Value> ExpertRows::inRounds(Choice &choice, llvm::function_ref<Value(unsigned)> make) {
  SmallVector<Value> values;
  for (unsigned index = 0; index < choice.rounds.size(); ++index) {
    llvm::SaveAndRestore<const Round *> in(current, index ? &choice.rounds[index] : nullptr);
    values.push_back(make(index));
  }
  return values;
}

int64_t ExpertRows::shareOf(const Choice &choice, unsigned round) const {
  int64_t places = ranks * choice.places;
  return round == 0 ? std::max<int64_t>(1, places / choice.rows) : places;
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

const ExpertRows::Back *ExpertRows::backOf(Value rows) const {
  auto it = backs.find(rows);
  return it == backs.end() ? nullptr : &it->second;
}

Value ExpertRows::arrive(Choice &choice, unsigned round, Value rows) {
  if (Value there = known(choice, round, rows))
    return there;
  choice.sentRows.insert(rows);
  return choice.rounds[round].there[rows] = send(choice, round, rows);
}

/// Where the rows are there, or come from what is, row by row; null where not.
Value ExpertRows::known(Choice &choice, unsigned round, Value rows) {
  Round &in = choice.rounds[round];
  if (Value there = in.there.lookup(rows))
    return there;
  Value there;
  if (const Back *back = backOf(rows); back && back->choice == &choice)
    return back->there[round];
  for (auto [local, arrived] : choice.rounds[0].there)
    if (isSame(local, rows) && (round == 0 || choice.sentRows.contains(local))) {
      // The first round is kept for the backward pass, further ones are sent again.
      there = round == 0 ? keep(arrived) : send(choice, round, rows);
      break;
    }
  Operation *def = rows.getDefiningOp();
  if (auto save = dyn_cast_if_present<nn::SaveOp>(def); save && !there) {
    there =
        round == 0 ? known(choice, round, save.getInput()) : again(choice, round, save.getInput());
    if (there && round == 0)
      there = keep(there);
  }
  if (!there)
    there =
        rowwise(choice, round, def, [&](Value operand) { return known(choice, round, operand); });
  if (there)
    in.there[rows] = there;
  return there;
}

Value ExpertRows::again(Choice &choice, unsigned round, Value rows) {
  Round &in = choice.rounds[round];
  if (Value there = in.again.lookup(rows))
    return there;
  Value there;
  if (const Back *back = backOf(rows); back && back->choice == &choice)
    there = back->again(round);
  else if (llvm::any_of(choice.sentRows, [&](Value sent) { return isSame(sent, rows); }))
    there = send(choice, round, keptHere(rows));
  else
    there = rowwise(choice, round, rows.getDefiningOp(),
                    [&](Value operand) { return again(choice, round, operand); });
  if (there)
    in.again[rows] = there;
  return there;
}

/// What `op` computes row by row, of its operands there; null where it does not, or
/// where one is not there.
Value ExpertRows::rowwise(Choice &choice, unsigned round, Operation *op,
                          llvm::function_ref<Value(Value)> thereOf) {
  if (!op)
    return {};
  Round &in = choice.rounds[round];
  auto widened = [&](Value value) {
    SmallVector<int64_t> sizes(typeOf(in.ids).getShape());
    sizes.push_back(typeOf(value).getShape().back());
    return typeOf(value).clone(sizes);
  };
  // What belongs to the experts that rows have chosen.
  if (auto gather = dyn_cast<nn::GatherOp>(op)) {
    std::optional<Tile> table = gathered(gather.getTable());
    if (!table || gather.getDim() != 0 || typeOf(gather.getTable()).getRank() != 2 ||
        knownChoice(gather.getIndices(), *table) != &choice)
      return {};
    return make<nn::GatherOp>(widened(gather.getResult()), table->value, in.ids, uint64_t(0));
  }
  if (!isElementwise(op))
    return {};
  SmallVector<Value> operands;
  bool any = false;
  for (Value operand : op->getOperands()) {
    DenseElementsAttr constant;
    if (matchPattern(operand, m_Constant(&constant)) && constant.isSplat()) {
      operands.push_back(operand);
      continue;
    }
    operands.push_back(thereOf(operand));
    if (!operands.back())
      return {};
    any = true;
  }
  if (!any)
    return {};
  for (Value &operand : operands)
    if (auto constant = operand.getDefiningOp<arith::ConstantOp>()) {
      auto splat = cast<DenseElementsAttr>(constant.getValue()).getSplatValue<Attribute>();
      operand = make<arith::ConstantOp>(DenseElementsAttr::get(widened(operand), splat));
    }
  Operation *copy = builder.clone(*op);
  copy->setOperands(operands);
  copy->getResult(0).setType(widened(op->getResult(0)));
  mark(copy);
  return copy->getResult(0);
}

Value ExpertRows::send(Choice &choice, unsigned round, Value rows) {
  RankedTensorType type = typeOf(rows);
  int64_t width = type.getShape().back(), count = type.getNumElements() / width;
  const Round &in = choice.rounds[round];
  Value list = flat(rows, {count, width});
  Value sorted =
      make<nn::GatherOp>(type.clone({ranks, choice.places, width}), list, in.sources, uint64_t(0));
  return exchange(choice, round, sorted, /*home=*/false);
}

Value ExpertRows::exchange(const Choice &choice, unsigned round, Value blocks, bool home) {
  const Round &in = choice.rounds[round];
  auto op = AllToAllVOp::create(
      builder, anchor->getLoc(), TypeRange{blocks.getType()}, ValueRange{blocks},
      home ? in.received : in.sent, home ? in.sent : in.received,
      builder.getI64IntegerAttr(round == 0 ? choice.rows : 0), mesh.name(), axes,
      PurposeAttr::get(builder.getContext(), round == 0 ? Purpose::Expert : Purpose::Overflow));
  mark(op);
  return op->getResult(0);
}

Value ExpertRows::bringBack(Choice &choice, ArrayRef<Value> there, RankedTensorType type,
                            std::function<Value(unsigned)> again) {
  int64_t width = type.getShape().back();
  SmallVector<Value> home = inRounds(
      choice, [&](unsigned round) { return exchange(choice, round, there[round], /*home=*/true); });
  // A row is in one round; the others give zeros, and are not read.
  Value result;
  for (auto [index, round] : llvm::enumerate(choice.rounds)) {
    Value list = flat(home[index], {ranks * choice.places, width});
    Value rows =
        make<nn::GatherOp>(type.clone({choice.rows, width}), list, round.places, uint64_t(0));
    result = result ? make<arith::AddFOp>(result, rows) : rows;
  }
  result = flat(result, type.getShape());
  backs[result] = {&choice, SmallVector<Value>(there), std::move(again)};
  return result;
}

Value ExpertRows::sum(Choice &choice, ArrayRef<Value> addends) {
  Value result = addends[0];
  for (auto [round, addend] : llvm::drop_begin(llvm::zip(choice.rounds, addends))) {
    // A round that nobody needs adds nothing.
    RankedTensorType type = typeOf(addend);
    Value one = flat(round.needed, {});
    Value needed = make<nn::BroadcastOp>(type.clone(builder.getI1Type()), one, ArrayRef<int64_t>{});
    Value zeros = make<arith::ConstantOp>(
        DenseElementsAttr::get(type, builder.getFloatAttr(type.getElementType(), 0)));
    result = make<arith::AddFOp>(result, make<arith::SelectOp>(needed, addend, zeros));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// What the backward pass reads of the forward one
//===----------------------------------------------------------------------===//

Value ExpertRows::keep(Value value) {
  Operation *def = value.getDefiningOp();
  if (!def || isa<nn::SaveOp>(def))
    return value;
  for (Operation *user : value.getUsers())
    if (isa<nn::SaveOp>(user))
      return user->getResult(0);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointAfter(def);
  auto save = nn::SaveOp::create(builder, value.getLoc(), value);
  for (NamedAttribute attribute : def->getDiscardableAttrs())
    save->setAttr(attribute.getName(), attribute.getValue());
  return save;
}

/// Copies of one value are made where they are read.
Value ExpertRows::keptHere(Value value) {
  if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>())
    return make<nn::BroadcastOp>(broadcast.getType(), keptHere(broadcast.getInput()),
                                 broadcast.getDims());
  return keep(value);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

Value ExpertRows::slice(Value value, unsigned dim, int64_t at) {
  RankedTensorType type = typeOf(value);
  SmallVector<int64_t> offsets(type.getRank(), 0), sizes(type.getShape()),
      strides(type.getRank(), 1);
  if (sizes[dim] == 1)
    return value;
  offsets[dim] = at, sizes[dim] = 1;
  return make<nn::SliceOp>(type.clone(sizes), value, offsets, sizes, strides);
}

Value ExpertRows::flat(Value value, ArrayRef<int64_t> shape) {
  RankedTensorType type = typeOf(value).clone(shape);
  return type == value.getType() ? value : make<nn::ReshapeOp>(type, value);
}

Value ExpertRows::number(Value like, int64_t value) {
  RankedTensorType type = typeOf(like);
  return make<arith::ConstantOp>(
      DenseElementsAttr::get(type, builder.getIntegerAttr(type.getElementType(), value)));
}

/// What phases have noted of an operation holds for what it becomes.
void ExpertRows::mark(Operation *op) {
  for (NamedAttribute attribute : anchor->getDiscardableAttrs())
    if (!op->hasAttr(attribute.getName()))
      op->setAttr(attribute.getName(), attribute.getValue());
  // Values that any round could share are no round's own.
  auto lowering = dyn_cast<LoweringInterface>(op);
  if (current && !op->hasTrait<OpTrait::ConstantLike>() &&
      !(lowering && lowering.getKernelClass() == KernelClass::View))
    op->setAttr(kWhenAttrName, builder.getI64IntegerAttr(current->number));
}
