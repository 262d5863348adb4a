// Rewrites a function such that its values have factored shapes: each dimension
// is split into the factors that FactorAnalysis found for it.

#include "FactorDimensions.h"

#include "cleave/Dialect/NN/Transforms/Passes.h"

using namespace mlir;

namespace cleave::nn {

namespace {

class Rewriter {
public:
  Rewriter(func::FuncOp function, const FactorAnalysis &analysis, bool views)
      : function(function), analysis(analysis), views(views),
        builder(function.getContext()) {}

  void run();

private:
  void mapArgument(BlockArgument argument);
  void rewrite(Operation *op);
  /// Each of the functions that return bool rewrites an operation to factored
  /// shapes, in which dimensions are split into factors. They return false if
  /// the operation must keep its original shapes.
  bool rewriteFactored(Operation *op);
  bool rewriteRows(Operation *op);
  bool rewriteChoice(Operation *op);
  bool rewriteSlice(SliceOp op);
  void rewriteEinsum(EinsumOp op);
  void rewriteRestored(Operation *op);

  RankedTensorType factoredTypeOf(Value old) {
    return typeOf(old).clone(analysis.shape(old));
  }
  /// Returns, for each dimension of the original value, the indices of its
  /// factors among the dimensions of the factored shape.
  SmallVector<Dims> positions(Value old);
  Value mapped(Value old) { return map.lookup(old); }
  /// Returns the rewritten value, reshaped to `shape`.
  Value as(Value old, ArrayRef<int64_t> shape) {
    return reshapeTo(builder, loc, mapped(old), shape);
  }
  /// Returns the factored shape of a value, in which dimensions of size 1 are
  /// missing, because they have no factors. But those of the dimensions `dims`
  /// that have size 1 are kept.
  Dims shapeWithUnits(Value old, ArrayRef<int64_t> dims);
  void define(Value old, Value value) {
    map[old] = reshapeTo(builder, loc, value, analysis.shape(old));
  }

  func::FuncOp function;
  const FactorAnalysis &analysis;
  bool views;
  OpBuilder builder;
  Location loc = UnknownLoc::get(function.getContext());
  llvm::DenseMap<Value, Value> map;
  SmallVector<ReshapeOp> viewed;
};

SmallVector<Dims> Rewriter::positions(Value old) {
  SmallVector<Dims> result;
  int64_t next = 0;
  for (int64_t dim = 0; dim < rankOf(old); ++dim) {
    Dims own;
    for (size_t i = 0; i < analysis.factors(old, dim).size(); ++i)
      own.push_back(next++);
    result.push_back(own);
  }
  return result;
}

Dims Rewriter::shapeWithUnits(Value old, ArrayRef<int64_t> dims) {
  Dims shape;
  for (int64_t dim = 0; dim < rankOf(old); ++dim) {
    Dims own = analysis.factors(old, dim);
    if (own.empty() && llvm::is_contained(dims, dim))
      own.push_back(1);
    llvm::append_range(shape, own);
  }
  return shape;
}

void Rewriter::mapArgument(BlockArgument argument) {
  loc = argument.getLoc();
  Dims shape = analysis.shape(argument);
  unsigned index = argument.getArgNumber();
  bool fromFile = isOneOf(roleOf(argument), {Role::Parameter, Role::Constant});
  // Only parameters and constants are read from the model file, so only they
  // can have the attribute nn.view, by which a tensor of the file is read in
  // another shape. Other arguments are reshaped in the function.
  if (!views || !fromFile || shape.empty() ||
      shapeOf(argument) == ArrayRef<int64_t>(shape)) {
    map[argument] = reshapeTo(builder, loc, argument, shape);
    return;
  }
  auto original = builder.getDenseI64ArrayAttr(
      fileShapeOf(function.getArgAttrDict(index), shapeOf(argument)));
  auto seen = builder.getDenseI64ArrayAttr(shape);
  if (original == seen)
    function.removeArgAttr(index, kViewAttr);
  else
    function.setArgAttr(
        index, kViewAttr,
        ViewAttr::get(function.getContext(), original, seen, {}));
  // Operations that are not rewritten yet still read the argument in its
  // original shape.
  auto reshape =
      ReshapeOp::create(builder, loc, typeOf(argument).clone(shape), argument);
  viewed.push_back(reshape);
  map[argument] = reshape;
}

void Rewriter::rewriteEinsum(EinsumOp op) {
  EinsumOp::Labels labels = op.getLabels();
  // The letters of the factors, for each letter of the original equation.
  llvm::SmallDenseMap<char, std::string> letters;
  char next = 'a';
  auto expand = [&](StringRef old, Value value) {
    std::string result;
    for (auto [dim, letter] : llvm::enumerate(old)) {
      auto [it, isNew] = letters.try_emplace(letter);
      if (isNew)
        for (size_t i = 0; i < analysis.factors(value, dim).size(); ++i) {
          it->second.push_back(next);
          next = next == 'z' ? 'A' : next + 1;
        }
      result += it->second;
    }
    return result;
  };
  std::string lhs = expand(labels.lhs, op.getLhs());
  std::string rhs = expand(labels.rhs, op.getRhs());
  std::string result = expand(labels.result, op.getResult());
  define(
      op.getResult(),
      EinsumOp::create(builder, loc,
                       builder.getStringAttr(lhs + "," + rhs + "->" + result),
                       mapped(op.getLhs()), mapped(op.getRhs())));
}

/// Rewrites a slice to a slice of the factored shape. Returns false if the
/// selected elements are not a rectangular range of the factors, for example
/// because the slice begins inside of an inner factor.
bool Rewriter::rewriteSlice(SliceOp op) {
  Dims offsets, sizes, strides;
  for (int64_t dim = 0; dim < rankOf(op.getInput()); ++dim) {
    Dims own = analysis.factors(op.getInput(), dim);
    int64_t offset = op.getOffsets()[dim], size = op.getSizes()[dim];
    if (own.size() <= 1) {
      if (own.empty())
        continue; // size 1, kept whole
      offsets.push_back(offset);
      sizes.push_back(size);
      strides.push_back(op.getStrides()[dim]);
      continue;
    }
    if (op.getStrides()[dim] != 1)
      return false;
    int64_t inner = shapeOf(op.getInput())[dim];
    bool done = false;
    for (int64_t factor : own) {
      inner /= factor;
      strides.push_back(1);
      if (done) {
        offsets.push_back(0);
        sizes.push_back(factor);
        continue;
      }
      if (offset % inner == 0 && size % inner == 0) {
        if (offset / inner + size / inner > factor)
          return false;
        offsets.push_back(offset / inner);
        sizes.push_back(size / inner);
        done = true;
        continue;
      }
      // The slice selects a single index of this factor, and a range of the
      // more minor factors.
      if (offset / inner != (offset + size - 1) / inner)
        return false;
      offsets.push_back(offset / inner);
      sizes.push_back(1);
      offset %= inner;
    }
  }
  Value input = mapped(op.getInput());
  bool whole = ArrayRef<int64_t>(sizes) == shapeOf(input) &&
               llvm::all_of(strides, [](int64_t step) { return step == 1; });
  Value box =
      whole ? input
            : SliceOp::create(builder, loc, input, offsets, sizes, strides)
                  .getResult();
  define(op.getResult(), box);
  return true;
}

/// Rewrites norms and softmax. Their last dimension is kept whole, and all
/// other dimensions are split into factors.
bool Rewriter::rewriteRows(Operation *op) {
  if (!isa<SoftmaxOp, LayerNormOp, RmsNormOp>(op))
    return false;
  Value input = op->getOperand(0);
  int64_t last = rankOf(input) - 1;
  if (analysis.factors(input, last).size() != 1)
    return false;
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(mapped(operand));
  SmallVector<Type> types;
  for (Value result : op->getResults())
    types.push_back(factoredTypeOf(result));
  OperationState state(loc, op->getName());
  state.addOperands(operands);
  state.addAttributes(op->getAttrs());
  state.addTypes(types);
  Operation *copy = builder.create(state);
  for (auto [old, result] : llvm::zip(op->getResults(), copy->getResults()))
    define(old, result);
  return true;
}

/// Rewrites top-k, argmax and grouped dot products, which compute indices for
/// rows of scores or read one index for each row. The dimensions that enumerate
/// the rows are split into factors. The other dimensions (the scores or
/// features of a row) keep their size, even if it is 1.
bool Rewriter::rewriteChoice(Operation *op) {
  if (auto top = dyn_cast<TopKOp>(op)) {
    int64_t last = rankOf(top.getInput()) - 1;
    Dims shape = shapeWithUnits(top.getValues(), last);
    auto copy = TopKOp::create(
        builder, loc, typeOf(top.getValues()).clone(shape),
        typeOf(top.getIndices()).clone(shape),
        as(top.getInput(), shapeWithUnits(top.getInput(), last)), top.getK());
    define(top.getValues(), copy.getValues());
    define(top.getIndices(), copy.getIndices());
    return true;
  }
  if (auto argmax = dyn_cast<ArgMaxOp>(op)) {
    Value input = argmax.getInput();
    int64_t dim = argmax.getDim(), position = 0;
    for (int64_t d = 0; d < dim; ++d)
      position += analysis.factors(input, d).size();
    define(argmax,
           ArgMaxOp::create(builder, loc, factoredTypeOf(argmax),
                            as(input, shapeWithUnits(input, dim)), position));
    return true;
  }
  if (auto dot = dyn_cast<GroupedDotOp>(op)) {
    int64_t rows = rankOf(dot.getIds());
    Value input = as(dot.getInput(), shapeWithUnits(dot.getInput(), rows));
    Dims shape = shapeWithUnits(dot.getResult(), rows);
    define(dot, GroupedDotOp::create(
                    builder, loc, typeOf(dot.getResult()).clone(shape), input,
                    as(dot.getMatrices(), shapeOf(dot.getMatrices())),
                    mapped(dot.getIds()), dot.getTransposed()));
    return true;
  }
  return false;
}

bool Rewriter::rewriteFactored(Operation *op) {
  if (isElementwise(op)) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(mapped(operand));
    Value result = op->getResult(0);
    define(result,
           cloneElementwise(builder, op, operands, analysis.shape(result)));
    return true;
  }
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (!elements)
      return false;
    define(constant,
           arith::ConstantOp::create(
               builder, loc, elements.reshape(factoredTypeOf(constant))));
    return true;
  }
  if (auto reshape = dyn_cast<ReshapeOp>(op)) {
    define(reshape, mapped(reshape.getInput()));
    return true;
  }
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    SmallVector<Dims> where = positions(broadcast.getResult());
    Dims dims;
    for (int64_t dim : broadcast.getDims())
      llvm::append_range(dims, where[dim]);
    define(broadcast, broadcastTo(builder, loc, mapped(broadcast.getInput()),
                                  analysis.shape(broadcast), dims));
    return true;
  }
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    SmallVector<Dims> where = positions(transpose.getInput());
    Dims permutation;
    for (int64_t dim : transpose.getPermutation())
      llvm::append_range(permutation, where[dim]);
    define(transpose, transposeTo(builder, loc, mapped(transpose.getInput()),
                                  permutation));
    return true;
  }
  if (auto reduce = dyn_cast<ReduceOp>(op)) {
    SmallVector<Dims> where = positions(reduce.getInput());
    Dims dims;
    for (int64_t dim : reduce.getDims())
      llvm::append_range(dims, where[dim]);
    Value input = mapped(reduce.getInput());
    if (!dims.empty())
      input = ReduceOp::create(builder, loc, reduce.getCombiner(), input, dims);
    define(reduce, input);
    return true;
  }
  if (auto einsum = dyn_cast<EinsumOp>(op)) {
    rewriteEinsum(einsum);
    return true;
  }
  if (auto slice = dyn_cast<SliceOp>(op))
    return rewriteSlice(slice);
  if (auto concat = dyn_cast<ConcatOp>(op)) {
    int64_t dim = concat.getDim(), position = 0;
    for (int64_t d = 0; d < dim; ++d)
      position += analysis.factors(concat.getResult(), d).size();
    SmallVector<Value> inputs;
    for (Value input : concat.getInputs())
      inputs.push_back(as(input, shapeWithUnits(input, dim)));
    define(concat, ConcatOp::create(builder, loc, inputs, position));
    return true;
  }
  if (auto gather = dyn_cast<GatherOp>(op)) {
    Value table = gather.getTable();
    int64_t dim = gather.getDim(), position = 0;
    for (int64_t d = 0; d < dim; ++d)
      position += analysis.factors(table, d).size();
    auto rows =
        GatherOp::create(builder, loc, as(table, shapeWithUnits(table, dim)),
                         mapped(gather.getIndices()), position);
    rows->setDiscardableAttrs(gather->getDiscardableAttrDictionary());
    define(gather, rows);
    return true;
  }
  if (auto rotary = dyn_cast<RotaryOp>(op)) {
    Value input = rotary.getInput();
    Value rows = as(input, shapeWithUnits(input, {0, 1, rankOf(input) - 1}));
    if (rankOf(rows) < 3)
      return false;
    define(rotary,
           RotaryOp::create(builder, loc, rows.getType(), rows,
                            as(rotary.getCos(), shapeOf(rotary.getCos())),
                            as(rotary.getSin(), shapeOf(rotary.getSin())),
                            rotary.getInterleaved(), rotary.getInverse()));
    return true;
  }
  return rewriteChoice(op) || rewriteRows(op);
}

/// Copies an operation that must keep its original shapes. Its operands are
/// reshaped from their factored shapes, in which dimensions are split into
/// factors, back to the original ones.
void Rewriter::rewriteRestored(Operation *op) {
  IRMapping mapping;
  for (Value operand : op->getOperands())
    mapping.map(operand, isa<RankedTensorType>(operand.getType())
                             ? as(operand, shapeOf(operand))
                             : operand);
  Operation *copy = builder.clone(*op, mapping);
  for (auto [old, result] : llvm::zip(op->getResults(), copy->getResults())) {
    if (isa<RankedTensorType>(old.getType()))
      define(old, result);
    else
      old.replaceAllUsesWith(result);
  }
}

void Rewriter::rewrite(Operation *op) {
  loc = op->getLoc();
  if (!rewriteFactored(op))
    rewriteRestored(op);
}

void Rewriter::run() {
  Block &block = function.front();
  SmallVector<Operation *> old;
  for (Operation &op : block)
    old.push_back(&op);
  builder.setInsertionPointToEnd(&block);
  SmallVector<BlockArgument> arguments(block.getArguments());
  for (BlockArgument argument : arguments)
    if (isa<RankedTensorType>(argument.getType()) && !argument.use_empty())
      mapArgument(argument);
  for (Operation *op : old)
    rewrite(op);
  for (Operation *op : llvm::reverse(old))
    op->erase();
  for (ReshapeOp reshape : viewed) {
    reshape.getInput().setType(reshape.getType());
    reshape.replaceAllUsesWith(reshape.getInput());
    reshape.erase();
  }
  function.setFunctionType(builder.getFunctionType(
      block.getArgumentTypes(), function.getFunctionType().getResults()));
}

} // namespace

void factorDimensions(func::FuncOp function, bool views) {
  if (function.isDeclaration() || !function.getBody().hasOneBlock())
    return;
  FactorAnalysis analysis(function, views);
  if (analysis.changes())
    Rewriter(function, analysis, views).run();
}

} // namespace cleave::nn
