//===- VariancePadding.cpp - padding through operations --------------------===//
//
// Padding goes where its dimension goes; what combines along a dimension must
// read the identity of its combination there. That is put by a mask:
//
//   count = N - tile_offset        (one number)
//   valid = iota dim < count       (count repeated)
//   select valid, value, identity
//
// A mask is recognised by this form and compared with what is known of the
// dimension.
//
//===----------------------------------------------------------------------===//

#include "VariancePadding.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/LocalPlan.h"
#include "cleave/Partition/FactorGraph.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

static RankedTensorType tensorOf(Value value) { return cast<RankedTensorType>(value.getType()); }

//===----------------------------------------------------------------------===//
// Extents of values
//===----------------------------------------------------------------------===//

std::string cleave::partition::axisName(const MeshAxes &mesh, Axis axis) {
  std::string text;
  llvm::raw_string_ostream out(text);
  AxisRefAttr ref = mesh.ref(axis);
  out << ref.getName();
  if (!ref.isWhole())
    out << ":(" << ref.getPre() << ")" << ref.getSize();
  return text;
}

bool cleave::partition::isZero(Attribute filler) {
  if (auto number = dyn_cast_or_null<FloatAttr>(filler))
    return number.getValue().isZero();
  auto integer = dyn_cast_or_null<IntegerAttr>(filler);
  return integer && integer.getValue().isZero();
}

const Extent &Padding::at(Value value, int64_t dim) const {
  static const Extent real;
  auto it = extents.find(value);
  return it == extents.end() ? real : it->second[dim];
}

Extents Padding::all(Value value) const {
  auto it = extents.find(value);
  if (it != extents.end())
    return it->second;
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return Extents(type ? type.getRank() : 0);
}

void Padding::set(Value value, Extents given) {
  if (llvm::all_of(given, [](const Extent &extent) { return extent.kind == Extent::Real; }))
    extents.erase(value);
  else
    extents[value] = std::move(given);
}

Extents Padding::declared(ShardingAttr sharding, ArrayRef<int64_t> whole) const {
  Extents result(whole.size());
  Layout layout = mesh.layout(sharding);
  for (auto [extent, size, axes] : llvm::zip_equal(result, whole, layout.dims)) {
    int64_t ways = mesh.size(axes);
    if (tileSize(size, ways) * ways != size)
      extent = Extent::padded(size, ways, axes);
  }
  return result;
}

/// Whether some axis may split the dimension.
bool Padding::isSplit(Value value, int64_t dim) const {
  auto it = states.find(value);
  return it == states.end() || llvm::any_of(it->second, [&](const AxisState &state) {
           return state.isSplitOn(dim) || state.kind == AxisState::Varying || state.maybe;
         });
}

std::string Padding::describe(const Extent &extent) const {
  std::string text = (Twine(extent.size) + " elements").str();
  if (extent.ways == 1)
    return text;
  if (!extent.placed)
    return text + " split " + std::to_string(extent.ways) + " ways";
  text += extent.axes.size() == 1 ? " split by axis " : " split by axes ";
  llvm::raw_string_ostream out(text);
  llvm::interleaveComma(extent.axes, out, [&](Axis axis) { out << axisName(mesh, axis); });
  return text;
}

/// The tensors have one layout there, so what is known of one holds for both.
bool Padding::join(Extent &into, const Extent &other) {
  auto rank = [](const Extent &extent) {
    return extent.kind == Extent::Real ? 0 : extent.kind; // Free, Unknown, Padded.
  };
  if (into.kind == Extent::Padded && other.kind == Extent::Padded) {
    bool alike = into.size == other.size && into.ways == other.ways;
    if (!into.placed) {
      into.axes = other.axes;
      into.placed = other.placed;
    }
    if (into.filler != other.filler)
      into.filler = {};
    return alike;
  }
  // What is real in one tensor is real in one that lies alike.
  if (into.kind == Extent::Free || (other.kind != Extent::Free && rank(other) > rank(into)))
    into = other;
  into.filler = {};
  return true;
}

LogicalResult Padding::enter(func::FuncOp func) {
  for (BlockArgument argument : func.getArguments()) {
    unsigned index = argument.getArgNumber();
    auto sharding = func.getArgAttrOfType<ShardingAttr>(index, kShardingAttrName);
    auto whole = func.getArgAttrOfType<TypeAttr>(index, kGlobalTypeAttrName);
    if (!sharding)
      continue;
    if (whole) {
      auto type = cast<RankedTensorType>(whole.getValue());
      if (mesh.tile(mesh.layout(sharding), type).getShape() != tensorOf(argument).getShape())
        return emitError(argument.getLoc())
               << "argument " << index << " of @" << func.getName() << " is " << argument.getType()
               << ", but the tile that its sharding cuts of its dist.global_type is "
               << mesh.tile(mesh.layout(sharding), type);
      set(argument, declared(sharding, type.getShape()));
      continue;
    }
    Extents given;
    for (const Axes &axes : mesh.layout(sharding).dims)
      given.push_back(Extent::of(axes.empty() ? Extent::Real : Extent::Unknown));
    set(argument, std::move(given));
  }
  return success();
}

LogicalResult Padding::leave(func::FuncOp func) const {
  Operation *terminator = func.getBody().front().getTerminator();
  for (auto [index, operand] : llvm::enumerate(terminator->getOperands())) {
    auto sharding = func.getResultAttrOfType<ShardingAttr>(index, kShardingAttrName);
    auto attr = dyn_cast_or_null<TypeAttr>(func.getResultAttr(index, kGlobalTypeAttrName));
    if (!attr || !sharding)
      continue;
    auto whole = cast<RankedTensorType>(attr.getValue());
    Layout layout = mesh.layout(sharding);
    if (mesh.tile(layout, whole).getShape() != tensorOf(operand).getShape())
      return emitError(operand.getLoc())
             << "result " << index << " of @" << func.getName() << " is " << operand.getType()
             << ", but the tile that its sharding cuts of its dist.global_type is "
             << mesh.tile(layout, whole);
    for (auto [dim, extent] : llvm::enumerate(all(operand)))
      if (extent.kind == Extent::Padded &&
          (extent.size != whole.getDimSize(dim) || extent.ways != mesh.size(layout.dims[dim])))
        return emitError(operand.getLoc())
               << "result " << index << " of @" << func.getName() << " has a dimension " << dim
               << " of " << describe(extent) << ", expected as its dist.global_type and sharding "
               << "say: " << whole.getDimSize(dim) << " elements split "
               << mesh.size(layout.dims[dim]) << " ways";
  }
  return success();
}

void Padding::visitConstant(Operation *op) {
  for (Value result : op->getResults())
    if (auto type = dyn_cast<RankedTensorType>(result.getType()))
      set(result, Extents(type.getRank(), Extent::of(Extent::Free)));
}

void Padding::carry(Value init, Value argument) {
  Extents given = all(init);
  for (Extent &extent : given) {
    extent.filler = {};
    if (extent.kind == Extent::Free)
      extent.kind = Extent::Unknown;
  }
  set(argument, std::move(given));
}

LogicalResult Padding::merge(Operation *op, Value value, Value yielded) {
  Extents merged = all(value), other = all(yielded);
  for (auto [dim, extent] : llvm::enumerate(merged)) {
    Extent before = extent;
    if (!join(extent, other[dim]))
      return op->emitOpError("carries a dimension ")
             << dim << " of " << describe(before) << " that is yielded with "
             << describe(other[dim]);
  }
  set(value, std::move(merged));
  return success();
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

/// The number that a constant of rank 0 or a splat holds.
static std::optional<int64_t> numberOf(Value value) {
  DenseIntElementsAttr dense;
  if (!matchPattern(value, m_Constant(&dense)) || !dense.isSplat())
    return std::nullopt;
  return dense.getSplatValue<APInt>().getSExtValue();
}

/// The value that a broadcast repeats, or the value itself.
static Value repeated(Value value) {
  if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>();
      broadcast && broadcast.getDims().empty())
    value = broadcast.getInput();
  return value;
}

static Attribute fillerOf(Value value) {
  DenseElementsAttr dense;
  if (!matchPattern(value, m_Constant(&dense)) || !dense.isSplat())
    return {};
  return dense.getSplatValue<Attribute>();
}

std::optional<Padding::Mask> Padding::maskOf(arith::SelectOp op) const {
  auto compare = op.getCondition().getDefiningOp<arith::CmpIOp>();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::slt)
    return std::nullopt;
  auto index = compare.getLhs().getDefiningOp<nn::IotaOp>();
  auto count = repeated(compare.getRhs()).getDefiningOp<arith::SubIOp>();
  auto offset = count ? count.getRhs().getDefiningOp<TileOffsetOp>() : TileOffsetOp();
  std::optional<int64_t> size = count ? numberOf(count.getLhs()) : std::nullopt;
  Attribute filler = fillerOf(op.getFalseValue());
  if (!index || !offset || !size || !filler)
    return std::nullopt;
  return Mask{int64_t(index.getDim()), *size, int64_t(offset.getTile()),
              mesh.decompose(offset.getAxes().getAxes()), filler};
}

LogicalResult Padding::visitMask(arith::SelectOp op, const Mask &mask) {
  Value value = op.getTrueValue();
  Extents result = all(value);
  Extent &extent = result[mask.dim];
  int64_t tile = tensorOf(value).getDimSize(mask.dim), ways = mesh.size(mask.axes);
  Extent said = Extent::padded(mask.size, ways, mask.axes, mask.filler);
  auto wrong = [&](const Twine &expected) {
    return op.emitOpError("masks dimension ")
           << mask.dim << " of type " << value.getType() << " as one of " << describe(said)
           << " into tiles of " << mask.tile << "; expected " << expected;
  };
  if (mask.tile != tile)
    return wrong("the offset to be counted in tiles of " + Twine(tile) + ", as the dimension has");
  switch (extent.kind) {
  case Extent::Padded:
    if (extent.size != mask.size || extent.ways != ways ||
        (extent.placed && extent.axes != mask.axes))
      return wrong(describe(extent) + ", as the dimension has");
    break;
  case Extent::Real:
    if (mask.size < tile * ways)
      return wrong("no mask: the dimension has no padding, and elements would be lost");
    break;
  case Extent::Free:
  case Extent::Unknown:
    if (tileSize(mask.size, ways) != tile)
      return wrong("a size of which a tile has " + Twine(tile) + " elements");
    if (auto it = states.find(value); it != states.end())
      for (unsigned axis = 0; axis < mesh.count(); ++axis) {
        const AxisState &state = it->second[axis];
        bool counted = llvm::is_contained(mask.axes, Axis(axis));
        if (counted ? state.isSurelySplit() && !state.isSplitOn(mask.dim)
                    : state.isSurelySplitOn(mask.dim))
          return wrong("the axes that split the dimension: it is " + state.str() + " over axis " +
                       axisName(mesh, axis));
      }
    break;
  }
  // Where padding of two dimensions meets, the last mask says what it holds.
  for (Extent &other : result)
    if (other.filler != mask.filler)
      other.filler = {};
  if (extent.kind != Extent::Real)
    extent = said;
  set(op.getResult(), std::move(result));
  return success();
}

//===----------------------------------------------------------------------===//
// Operations with rules
//===----------------------------------------------------------------------===//

/// Whether some result lacks the factor.
static bool isCombined(const ShardingRule &rule, int64_t factor) {
  return llvm::any_of(rule.results, [&](const TensorFactors &dims) {
    return llvm::none_of(dims,
                         [&](const DimFactors &made) { return llvm::is_contained(made, factor); });
  });
}

/// The dimension of an operand that is a factor alone, or -1.
static int64_t dimOf(const TensorFactors &dims, int64_t factor) {
  for (auto [dim, made] : llvm::enumerate(dims))
    if (made.size() == 1 && made[0] == factor)
      return dim;
  return -1;
}

LogicalResult Padding::mustBe(Operation *op, unsigned operand, int64_t dim,
                              FactorCombiner combiner) const {
  const Extent &extent = at(op->getOperand(operand), dim);
  if (extent.kind != Extent::Padded)
    return success();
  auto type = tensorOf(op->getOperand(operand));
  Attribute identity = cast<DenseElementsAttr>(
                           cast<Attribute>(identityOf(combiner, type.clone(ArrayRef<int64_t>()))))
                           .getSplatValue<Attribute>();
  if (extent.filler == identity || (isZero(extent.filler) && isZero(identity)))
    return success();
  InFlightDiagnostic error = op->emitOpError("combines (")
                             << stringifyReduceKind(reduceKindOf(combiner)) << ") along dimension "
                             << dim << " of operand " << operand << " of type " << type << ", of "
                             << describe(extent) << ", whose last tiles end in padding ";
  if (extent.filler)
    error << "of " << extent.filler;
  else
    error << "of any content";
  error << "; expected the padding masked by " << identity
        << " (an arith.select with dist.pad_mask before it)";
  return error;
}

LogicalResult Padding::checkFactors(Operation *op, const ShardingRule &rule,
                                    ArrayRef<Extent> factors) const {
  for (auto [factor, info] : llvm::enumerate(rule.factors)) {
    if (factors[factor].kind != Extent::Padded)
      continue;
    bool reads = isCombined(rule, factor) || info.kind == FactorKind::Permutation;
    bool combines = info.combiner != FactorCombiner::None && reads;
    bool whole = info.kind == FactorKind::NeedReplication || isJoint(info) ||
                 (info.kind == FactorKind::Permutation && !rule.movement);
    // A gather reads what its indices say.
    if ((!combines && !whole) || (isa<nn::GatherOp>(op) && combines))
      continue;
    for (auto [index, dims] : llvm::enumerate(rule.operands)) {
      int64_t dim = dimOf(dims, factor);
      if (dim < 0 || llvm::is_contained(rule.waited, unsigned(index)))
        continue;
      if (combines) {
        // What is linear in zeros is zero, whatever integers are beside them; of
        // other numbers, padding may be none.
        bool linear = llvm::any_of(
            rule.linear, [&](auto &group) { return llvm::is_contained(group, unsigned(index)); });
        if (!linear && !rule.linear.empty() && info.combiner == FactorCombiner::Sum &&
            isa<IntegerType>(tensorOf(op->getOperand(index)).getElementType()))
          continue;
        if (failed(mustBe(op, index, dim, info.combiner)))
          return failure();
      } else if (const Extent &extent = at(op->getOperand(index), dim);
                 extent.kind == Extent::Padded) {
        return op->emitOpError("reads all of dimension ")
               << dim << " of operand " << index << " of type " << op->getOperand(index).getType()
               << ", of " << describe(extent)
               << ", which ends in padding; expected a dimension without: gathered and cut to "
               << extent.size << " elements (nn.slice), or a window of it";
      }
    }
  }
  return success();
}

LogicalResult Padding::visit(Operation *op, const ShardingRule &rule) {
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    if (std::optional<Mask> mask = maskOf(select))
      return visitMask(select, *mask);
    if (op->hasAttr(kPadMaskAttrName))
      return op->emitOpError("has dist.pad_mask and is no mask; expected the condition iota < "
                             "(size - dist.tile_offset), a number repeated by nn.broadcast, and "
                             "a constant as the last operand");
  }
  if (isa<nn::ReshapeOp>(op)) {
    visitReshape(op);
    return success();
  }
  // What the factors hold, as the operands say; of those of none, nothing.
  SmallVector<Extent> factors(rule.factors.size());
  llvm::SmallBitVector seen(rule.factors.size());
  bool plain = true;
  for (auto [index, dims] : llvm::enumerate(rule.operands)) {
    if (llvm::is_contained(rule.waited, unsigned(index)))
      continue;
    auto known = extents.find(op->getOperand(index));
    for (auto [dim, made] : llvm::enumerate(dims))
      for (int64_t factor : made) {
        if (known == extents.end()) {
          if (seen.test(factor))
            join(factors[factor], Extent());
          seen.set(factor);
          continue;
        }
        plain = false;
        Extent extent = known->second[dim];
        if (made.size() > 1 && extent.kind != Extent::Real)
          extent = Extent::of(Extent::Unknown);
        Extent before = factors[factor];
        if (!seen.test(factor))
          factors[factor] = extent;
        else if (!join(factors[factor], extent))
          return op->emitOpError("combines dimension ")
                 << dim << " of operand " << index << ", of " << describe(extent)
                 << ", with one of " << describe(before);
        seen.set(factor);
      }
  }
  if (!plain && failed(checkFactors(op, rule, factors)))
    return failure();
  for (auto [index, dims] : llvm::enumerate(rule.results)) {
    Extents result;
    for (auto [dim, made] : llvm::enumerate(dims)) {
      Extent &extent = result.emplace_back();
      // One element that is taken of a dimension.
      if (made.empty() && isa<nn::SliceOp>(op))
        extent = movedExtent(op, dim);
      for (int64_t factor : made) {
        const Factor &info = rule.factors[factor];
        bool moves = info.kind == FactorKind::Permutation;
        if (!seen.test(factor))
          extent.kind = rule.movement || rule.operands.empty()     ? Extent::Free
                        : info.kind == FactorKind::NeedReplication ? Extent::Real
                                                                   : Extent::Unknown;
        else if (moves && rule.movement)
          extent = movedExtent(op, dim);
        else if (!moves)
          extent = factors[factor];
        else if (factors[factor].kind == Extent::Unknown)
          extent.kind = Extent::Unknown;
        if (made.size() > 1) {
          extent = Extent::of(extent.kind == Extent::Real ? Extent::Real : Extent::Unknown);
          if (extent.kind == Extent::Unknown)
            break;
        }
        // What is placed beside padding may meet that of another dimension.
        if (!rule.movement || (isa<nn::PadOp>(op) && !isZero(extent.filler)))
          extent.filler = {};
      }
    }
    if (isa<nn::GatherOp>(op) && !plain && failed(visitGather(op, result)))
      return failure();
    set(op->getResult(index), std::move(result));
  }
  return success();
}

/// Of a dimension along which slices, pads and concatenations place elements.
Extent Padding::movedExtent(Operation *op, int64_t dim) const {
  Value input = op->getOperand(0);
  const Extent &extent = at(input, dim);
  int64_t size = tensorOf(op->getResult(0)).getDimSize(dim);
  if (auto slice = dyn_cast<nn::SliceOp>(op)) {
    if (extent.kind != Extent::Padded)
      return extent;
    if (extent.ways != 1 || slice.getOffsets()[dim] != 0 || slice.getStrides()[dim] != 1)
      return Extent::of(Extent::Unknown);
    return size <= extent.size ? Extent() : extent;
  }
  if (auto pad = dyn_cast<nn::PadOp>(op)) {
    if (!op->hasAttr(kTilePaddingAttrName))
      return extent.kind == Extent::Real ? extent : Extent::of(Extent::Unknown);
    Attribute filler;
    if (pad.getValue().isZero())
      filler = Builder(op->getContext()).getZeroAttr(tensorOf(input).getElementType());
    if (extent.kind == Extent::Real && !isSplit(input, dim))
      return Extent::padded(tensorOf(input).getDimSize(dim), 1, {}, filler);
    if (extent.kind == Extent::Padded && extent.ways == 1) {
      Extent longer = extent;
      if (longer.filler != filler)
        longer.filler = {};
      return longer;
    }
    return Extent::of(Extent::Unknown);
  }
  for (Value operand : op->getOperands())
    if (at(operand, dim).kind != Extent::Real)
      return Extent::of(Extent::Unknown);
  return {};
}
