//===- ExpertRows.cpp - tokens at the ranks of their experts --------------===//

#include "ExpertRows.h"

#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/RowShare.h"
#include "cleave/Interfaces/TensorExpr.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/IR/Matchers.h"
#include "llvm/Support/SaveAndRestore.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

/// The largest number of exchange rounds in which all tokens of a rank can be
/// sent through bounded buffers. Rounds are unrolled in the program. If more
/// rounds than this would be needed, the buffers are enlarged instead.
static constexpr int64_t kMostRounds = 8;

ExpertRows::ExpertRows(func::FuncOp func, const MeshAxes &mesh,
                       AxisListAttr axes, double maxLoad)
    : mesh(mesh), axes(axes), ranks(axesSize(mesh.mesh(), axes.getAxes())),
      maxLoad(maxLoad), builder(func), anchor(func) {
  func.walk([&](ConditionOp op) {
    flags[op.getNumber()] = op.getFlag();
    conditions = std::max<int64_t>(conditions, op.getNumber() + 1);
  });
}

void ExpertRows::insertBefore(Operation *op) {
  anchor = op;
  builder.setInsertionPoint(op);
}

std::optional<Tile> ExpertRows::gathered(Value value) const {
  int64_t count = typeOf(value).getDimSize(0);
  value = kept(value);
  if (auto slice = value.getDefiningOp<nn::SliceOp>();
      slice &&
      llvm::all_of(slice.getOffsets(), [](int64_t at) { return at == 0; }) &&
      llvm::all_of(slice.getStrides(),
                   [](int64_t step) { return step == 1; }) &&
      typeOf(slice.getInput()).getShape().drop_front() ==
          typeOf(value).getShape().drop_front())
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

/// Returns the expert ids before masks set the ids of padding tokens to -1;
/// adds these masks to `masks`.
static Value chosen(Value ids, SmallVectorImpl<PadMask> &masks) {
  for (;;) {
    ids = kept(ids);
    auto select = ids.getDefiningOp<arith::SelectOp>();
    std::optional<PadMask> mask = select ? PadMask::of(select) : std::nullopt;
    auto none = mask ? dyn_cast<IntegerAttr>(mask->filler) : IntegerAttr();
    if (!none || !none.getValue().isNegative())
      return ids;
    masks.push_back(*mask);
    ids = select.getTrueValue();
  }
}

Choice *ExpertRows::knownChoice(Value ids, const Tile &tile) {
  SmallVector<PadMask, 2> masks;
  Value rows = chosen(ids, masks);
  for (Choice &choice : choices)
    if (choice.ids == rows && choice.tile == typeOf(tile.value).getDimSize(0) &&
        choice.count == tile.count)
      return &choice;
  return nullptr;
}

Choice &ExpertRows::choiceOf(Value ids, const Tile &tile) {
  if (Choice *choice = knownChoice(ids, tile))
    return *choice;
  Choice &choice = choices.emplace_back();
  choice.ids = chosen(ids, choice.masks);
  choice.tile = typeOf(tile.value).getDimSize(0);
  choice.count = tile.count;
  plan(choice, kept(ids));
  return choice;
}

/// Sets the expected numbers of tokens. A rank's number of tokens without
/// padding is the product, over all dimensions of the expert ids, of the number
/// of elements in its tile that are not padding. There is one such product for
/// each position along the axes that split padded dimensions. In the second hop
/// of a hierarchical exchange, the tokens are those that the first hop
/// delivered.
void ExpertRows::reckon(Choice &choice) {
  ExpectedRows &expectedRows = choice.expectedRows;
  if (auto known = arrivedBefore.find(choice.ids);
      known != arrivedBefore.end()) {
    expectedRows = known->second;
    return;
  }
  SmallVector<AxisRefAttr> axes;
  int64_t rows = expectedRows.rows = choice.rows;
  for (const PadMask &mask : choice.masks) {
    rows /= mask.tile;
    llvm::append_range(axes, mask.axes.getAxes());
  }
  expectedRows.expected.assign(1, rows);
  for (const PadMask &mask : choice.masks) {
    SmallVector<int64_t> before = std::move(expectedRows.expected);
    expectedRows.expected.clear();
    for (int64_t rows : before)
      for (int64_t tile = 0, end = axesSize(mesh.mesh(), mask.axes.getAxes());
           tile < end; ++tile)
        expectedRows.expected.push_back(
            rows *
            std::clamp<int64_t>(mask.size - tile * mask.tile, 0, mask.tile));
  }
  if (!axes.empty())
    expectedRows.by = AxisListAttr::get(builder.getContext(), axes);
}

/// Records how many tokens each rank receives in an exchange under balanced
/// routing: as many as the ranks of its group hold on average.
void ExpertRows::reckonArrivals(const Choice &choice) {
  for (auto [index, round] : llvm::enumerate(choice.rounds)) {
    ExpectedRows &expectedRows = delivered[round.ids] = choice.expectedRows;
    if (index > 0 || expectedRows.overflow) {
      expectedRows = {
          ranks * choice.places, {0}, AxisListAttr(), /*overflow=*/true};
      continue;
    }
    if (!expectedRows.by)
      continue;
    Axes atoms = mesh.decompose(expectedRows.by.getAxes()),
         group = mesh.decompose(axes.getAxes());
    SmallVector<int64_t> groupOf;
    for (int64_t position = 0, end = expectedRows.expected.size();
         position < end; ++position) {
      int64_t rest = position, number = 0, place = 1;
      for (Axis atom : llvm::reverse(atoms)) {
        if (!llvm::is_contained(group, atom))
          number += rest % mesh.size(atom) * place;
        rest /= mesh.size(atom);
        place *= mesh.size(atom);
      }
      groupOf.push_back(number);
    }
    SmallVector<int64_t> means;
    for (int64_t group : groupOf) {
      int64_t sum = 0, count = 0;
      for (auto [other, rows] : llvm::zip_equal(groupOf, expectedRows.expected))
        if (other == group)
          sum += rows, ++count;
      means.push_back(sum / count);
    }
    expectedRows.expected = std::move(means);
  }
}

PurposeAttr ExpertRows::purposeOf(const Choice &choice, unsigned round) {
  return PurposeAttr::get(builder.getContext(),
                          round > 0 || choice.expectedRows.overflow
                              ? Purpose::Overflow
                              : Purpose::Expert);
}

/// Plans to which rank and in which exchange round each token is sent, and
/// sends each rank the number of tokens that it receives.
void ExpertRows::plan(Choice &choice, Value ids) {
  auto i64 = builder.getI64Type();
  int64_t rows = choice.rows = typeOf(ids).getNumElements();
  reckon(choice);
  auto wanted = static_cast<int64_t>(std::min(
      double(rows),
      std::ceil(maxLoad * double(choice.expectedRows.rows) / double(ranks))));
  int64_t fewest = (rows + kMostRounds - 1) / kMostRounds;
  choice.places = std::min(rows, std::max<int64_t>({wanted, fewest, 1}));
  if (choice.places > wanted && choice.places == fewest)
    emitRemark(anchor->getLoc(), "buffers of experts have ")
        << choice.places << " slots for each of " << ranks
        << " ranks instead of " << wanted << ", so that " << kMostRounds
        << " rounds suffice for all " << rows << " tokens";
  int64_t places = choice.places, rounds = (rows + places - 1) / places;

  auto list = RankedTensorType::get({rows}, i64),
       table = RankedTensorType::get({rounds, ranks, places}, i64),
       counts = RankedTensorType::get({ranks, rounds}, i64);
  if (!typeOf(ids).getElementType().isInteger(64))
    ids = make<arith::ExtSIOp>(typeOf(ids).clone(i64), ids);
  // Tokens of padding are not sent.
  if (choice.tile * ranks != choice.count) {
    Value inside = make<arith::CmpIOp>(arith::CmpIPredicate::slt, ids,
                                       number(ids, choice.count));
    ids = make<arith::SelectOp>(inside, ids, number(ids, -1));
  }
  ids = flat(ids, {rows});
  auto plan = PlanRowsOp::create(builder, anchor->getLoc(), table, list, table,
                                 counts, ids, choice.tile);
  mark(plan);

  // A rank has to know how many tokens it receives. With several exchange
  // rounds, it also has to know for each round whether any rank has tokens in
  // it.
  Value received, needed;
  PurposeAttr purpose = purposeOf(choice, 0);
  auto first = builder.getDenseI64ArrayAttr({0}),
       second = builder.getDenseI64ArrayAttr({1});
  if (rounds == 1) {
    auto told =
        AllToAllOp::create(builder, anchor->getLoc(),
                           TypeRange{RankedTensorType::get({1, ranks}, i64)},
                           ValueRange{plan.getCounts()}, first, second,
                           mesh.name(), axes, purpose);
    mark(told);
    received = flat(told->getResult(0), {ranks, 1});
  } else {
    auto told = AllGatherOp::create(
        builder, anchor->getLoc(),
        TypeRange{RankedTensorType::get({ranks * ranks, rounds}, i64)},
        ValueRange{plan.getCounts()}, first, mesh.name(), axes, purpose);
    mark(told);
    Value all = flat(told->getResult(0), {ranks, ranks, rounds});
    received = flat(
        make<dist::SliceOp>(RankedTensorType::get({ranks, 1, rounds}, i64), all,
                            builder.getI64IntegerAttr(1), mesh.name(), axes),
        {ranks, rounds});
    needed =
        make<nn::ReduceOp>(RankedTensorType::get({rounds}, i64),
                           nn::Combiner::Max, all, ArrayRef<int64_t>{0, 1});
    if (onwardAxes) {
      int64_t others = axesSize(mesh.mesh(), onwardAxes.getAxes());
      auto told = AllGatherOp::create(
          builder, anchor->getLoc(),
          TypeRange{RankedTensorType::get({others * rounds}, i64)},
          ValueRange{needed}, first, mesh.name(), onwardAxes, purpose);
      mark(told);
      needed = make<nn::ReduceOp>(
          RankedTensorType::get({rounds}, i64), nn::Combiner::Max,
          flat(told->getResult(0), {others, rounds}), ArrayRef<int64_t>{0});
    }
  }
  auto outer = anchor->getAttrOfType<IntegerAttr>(kWhenAttrName);
  for (int64_t index = 0; index < rounds; ++index) {
    Round &round = choice.rounds.emplace_back();
    auto block = [&](Value tables) {
      return flat(slice(tables, 0, index), {ranks, places});
    };
    round.sources = block(plan.getSources());
    round.sent = flat(slice(plan.getCounts(), 1, index), {ranks});
    round.received = flat(slice(received, 1, index), {ranks});
    round.places = plan.getPlaces();
    if (index > 0) {
      round.places = make<arith::SubIOp>(
          round.places, number(round.places, index * ranks * places));
      Value count = slice(needed, 0, index);
      round.needed = make<arith::CmpIOp>(arith::CmpIPredicate::sgt, count,
                                         number(count, 0));
      round.number = conditions++;
      // In the second hop of a hierarchical exchange, the tokens are those of
      // one round of the first hop, and `outer` is the condition of that round.
      // If the first hop skips the round at run time, no tokens arrived, and
      // the counts are undefined. So a round of the second hop runs only if
      // this round of the first hop runs too. The boolean `flag`, which says
      // whether it does, is always computed.
      auto condition = ConditionOp::create(builder, anchor->getLoc(),
                                           round.needed, round.number);
      if (outer) {
        OpBuilder::InsertionGuard guard(builder);
        builder.setInsertionPoint(condition);
        Value flag = flags.lookup(outer.getInt());
        round.needed = make<arith::AndIOp>(flag, round.needed);
        condition.getFlagMutable().assign(round.needed);
        round.needed.getDefiningOp()->removeAttr(kWhenAttrName);
      }
      mark(condition);
      condition->removeAttr(kWhenAttrName);
    }
  }
  SmallVector<Value> there = inRounds(choice, [&](unsigned index) {
    Round &round = choice.rounds[index];
    Value sent = flat(slice(plan.getSent(), 0, index), {ranks, places});
    Value arrived = exchange(choice, index, sent, /*home=*/false);
    auto type = typeOf(arrived);
    Value place = make<nn::IotaOp>(type, uint64_t(1));
    Value end =
        make<nn::BroadcastOp>(type, round.received, ArrayRef<int64_t>{0});
    Value isRow = make<arith::CmpIOp>(arith::CmpIPredicate::slt, place, end);
    return round.ids =
               make<arith::SelectOp>(isRow, arrived, number(arrived, -1));
  });
  reckonArrivals(choice);
}

SmallVector<Value>
ExpertRows::inRounds(Choice &choice, llvm::function_ref<Value(unsigned)> make) {
  SmallVector<Value> values;
  for (unsigned index = 0; index < choice.rounds.size(); ++index) {
    llvm::SaveAndRestore<const Round *> in(
        current, index ? &choice.rounds[index] : nullptr);
    values.push_back(make(index));
  }
  return values;
}

int64_t ExpertRows::shareOf(const Choice &choice, unsigned round) const {
  int64_t places = ranks * choice.places;
  return round == 0 && !choice.expectedRows.overflow
             ? std::max<int64_t>(1, places / choice.expectedRows.rows)
             : places;
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

const ExpertRows::Combined *ExpertRows::combinedOf(Value rows) const {
  auto it = combinedValues.find(rows);
  return it == combinedValues.end() ? nullptr : &it->second;
}

Value ExpertRows::dispatched(Choice &choice, unsigned round, Value rows) {
  rows = unmasked(choice, rows);
  if (Value there = atExperts(choice, round, rows))
    return there;
  choice.sentRows.insert(rows);
  return choice.rounds[round].atExperts[rows] = send(choice, round, rows);
}

Value ExpertRows::send(Choice &choice, unsigned round, Value rows) {
  RankedTensorType type = typeOf(rows);
  int64_t width = type.getShape().back(), count = type.getNumElements() / width;
  const Round &in = choice.rounds[round];
  Value list = flat(rows, {count, width});
  Value sorted = make<nn::GatherOp>(type.clone({ranks, choice.places, width}),
                                    list, in.sources, uint64_t(0));
  return exchange(choice, round, sorted, /*home=*/false);
}

Value ExpertRows::exchange(const Choice &choice, unsigned round, Value blocks,
                           bool home) {
  const Round &in = choice.rounds[round];
  // The expected number of tokens of an exchange round: with balanced routing,
  // all tokens are sent in the first round and none in later rounds.
  ExpectedRows expectedRows = choice.expectedRows;
  if (round > 0)
    expectedRows = {0, {0}, AxisListAttr(), /*overflow=*/true};
  auto op = AllToAllVOp::create(
      builder, anchor->getLoc(), TypeRange{blocks.getType()},
      ValueRange{blocks}, home ? in.received : in.sent,
      home ? in.sent : in.received,
      builder.getDenseI64ArrayAttr(expectedRows.expected), expectedRows.by,
      home ? builder.getUnitAttr() : UnitAttr(), mesh.name(), axes,
      purposeOf(choice, round));
  mark(op);
  return op->getResult(0);
}

Value ExpertRows::combine(Choice &choice, ArrayRef<Value> there,
                          RankedTensorType type,
                          std::function<Value(unsigned)> again) {
  int64_t width = type.getShape().back();
  SmallVector<Value> home = inRounds(choice, [&](unsigned round) {
    return exchange(choice, round, there[round], /*home=*/true);
  });
  // Each token is sent in exactly one exchange round. A gather from the result
  // of another round yields zeros for this token. So the sum over all rounds is
  // the token's value.
  Value result;
  for (auto [index, round] : llvm::enumerate(choice.rounds)) {
    Value list = flat(home[index], {ranks * choice.places, width});
    Value rows = make<nn::GatherOp>(type.clone({choice.rows, width}), list,
                                    round.places, uint64_t(0));
    result = result ? make<arith::AddFOp>(result, rows) : rows;
  }
  result = flat(result, type.getShape());
  combinedValues[result] = {&choice, SmallVector<Value>(there),
                            std::move(again)};
  return result;
}

Value ExpertRows::sum(Choice &choice, ArrayRef<Value> terms) {
  Value result = terms[0];
  for (auto [round, term] : llvm::drop_begin(llvm::zip(choice.rounds, terms))) {
    // An exchange round that is skipped at run time leaves its term undefined.
    // Zeros are added in its place.
    RankedTensorType type = typeOf(term);
    Value one = flat(round.needed, {});
    Value needed = make<nn::BroadcastOp>(type.clone(builder.getI1Type()), one,
                                         ArrayRef<int64_t>{});
    Value zeros = make<arith::ConstantOp>(DenseElementsAttr::get(
        type, builder.getFloatAttr(type.getElementType(), 0)));
    result =
        make<arith::AddFOp>(result, make<arith::SelectOp>(needed, term, zeros));
  }
  return result;
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
  return make<arith::ConstantOp>(DenseElementsAttr::get(
      type, builder.getIntegerAttr(type.getElementType(), value)));
}

/// Copies the discardable attributes of the replaced operation to `op`, which
/// replaces it, and makes `op` conditional if it belongs to an exchange round
/// that may be skipped.
void ExpertRows::mark(Operation *op) {
  for (NamedAttribute attribute : anchor->getDiscardableAttrs())
    if (!op->hasAttr(attribute.getName()) &&
        attribute.getName() != kRowShareAttrName)
      op->setAttr(attribute.getName(), attribute.getValue());
  // The operations of later exchange rounds run only if their round has tokens.
  // Constants and views always run, since several rounds may read them.
  auto lowering = dyn_cast<LoweringInterface>(op);
  if (current && !op->hasTrait<OpTrait::ConstantLike>() &&
      !(lowering && lowering.getKernelClass() == KernelClass::View))
    op->setAttr(kWhenAttrName, builder.getI64IntegerAttr(current->number));
}
