// Finds which elements of an integer input are used as row indices of which
// table (such as token ids that index an embedding table). The host checks that
// these indices are within the table before it runs a program.

#include "Emit.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Support/ValueUtils.h"
#include "cleave/Target/Target.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::target;

namespace {

using Dims = SmallVector<int64_t>;

/// Describes a value whose elements are copies of some elements of an argument,
/// possibly in another order. These elements of the argument form a rectangular
/// range: an offset, a size and a stride in each dimension.
struct Box {
  Dims offsets, sizes, strides;
  /// For each dimension of the value, the corresponding dimension of the
  /// argument; -1 for a dimension of size 1.
  Dims dims;
  /// True if `dims` is known. It is unknown after a reshape that merges or
  /// splits dimensions (only the whole argument may be reshaped so), and after
  /// a broadcast that adds dimensions.
  bool isOrdered = true;
  /// The number of low bits of the argument that the value keeps,
  /// sign-extended.
  int64_t bits = 64;

  explicit Box(ArrayRef<int64_t> shape)
      : offsets(shape.size(), 0), sizes(shape), strides(shape.size(), 1),
        dims(llvm::to_vector(llvm::seq<int64_t>(shape.size()))) {}
};

bool isWhole(const Box &box, ArrayRef<int64_t> shape) {
  return ArrayRef<int64_t>(box.sizes) == shape;
}

/// Given the range of argument elements that the operand of `op` consists of,
/// returns the range that the result consists of; nullopt if the result's
/// elements do not form a rectangular range of the argument. `whole` says that
/// the operand consists of all elements of the argument; a reshape of it may
/// then be arbitrary.
std::optional<Box> through(Operation *op, Box box, bool whole) {
  if (isa<arith::TruncIOp>(op))
    box.bits = std::min<int64_t>(
        box.bits,
        getElementTypeOrSelf(op->getResult(0)).getIntOrFloatBitWidth());
  if (isa<arith::ExtSIOp, arith::TruncIOp, nn::CheckIndexOp>(op))
    return box;
  ArrayRef<int64_t> from = shapeOf(op->getOperand(0)),
                    to = shapeOf(op->getResult(0));
  if (auto slice = dyn_cast<nn::SliceOp>(op)) {
    if (!box.isOrdered)
      return std::nullopt;
    for (auto [place, dim] : llvm::enumerate(box.dims)) {
      if (dim < 0)
        continue;
      int64_t step = slice.getStrides()[place],
              first = slice.getOffsets()[place];
      if (step < 0) { // the same elements in reverse order
        first += (to[place] - 1) * step;
        step = -step;
      }
      box.offsets[dim] += first * box.strides[dim];
      box.strides[dim] *= step;
      box.sizes[dim] = to[place];
    }
    return box;
  }
  if (auto transpose = dyn_cast<nn::TransposeOp>(op)) {
    Dims dims;
    for (int64_t dim : transpose.getPermutation())
      dims.push_back(box.isOrdered ? box.dims[dim] : -1);
    box.dims = dims;
    return box;
  }
  if (auto broadcast = dyn_cast<nn::BroadcastOp>(op)) {
    Dims dims(to.size(), -1);
    for (auto [place, dim] : llvm::enumerate(broadcast.getDims()))
      dims[dim] = box.isOrdered ? box.dims[place] : -1;
    box.dims = dims;
    // After a broadcast that adds dimensions, `dims` no longer describes the
    // value, so slices of it are not followed.
    box.isOrdered &= to.size() == from.size();
    return box;
  }
  // A reshape that only adds or drops sizes of 1 keeps the order of dimensions.
  Dims dims(to.size(), -1);
  size_t next = 0;
  bool kept = box.isOrdered;
  for (auto [place, size] : llvm::enumerate(from)) {
    if (size == 1)
      continue;
    while (next < to.size() && to[next] == 1)
      ++next;
    kept &= next < to.size() && to[next] == size;
    if (kept)
      dims[next++] = box.dims[place];
  }
  if (!kept && !whole)
    return std::nullopt;
  box.isOrdered = kept;
  box.dims = dims;
  return box;
}

/// A lookup: the elements of an argument (`box`) that are used as row indices
/// of a table with `rows` rows.
struct Use {
  int64_t rows = 0;
  std::string table;
  Box box;
};

std::string nameOfTable(Value table) {
  while (Operation *op = table.getDefiningOp()) {
    if (!isa<nn::ReshapeOp, nn::TransposeOp, nn::SliceOp>(op))
      return "";
    table = op->getOperand(0);
  }
  auto argument = cast<BlockArgument>(table);
  auto func = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto name = func ? func.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                       nn::kNameAttr)
                   : nullptr;
  return name ? name.str() : "";
}

void collect(Value value, const Box &box, ArrayRef<int64_t> shape,
             std::vector<Use> &uses) {
  for (Operation *user : value.getUsers()) {
    if (auto gather = dyn_cast<nn::GatherOp>(user);
        gather && gather.getIndices() == value)
      uses.push_back({shapeOf(gather.getTable())[gather.getDim()],
                      nameOfTable(gather.getTable()), box});
    if (auto entropy = dyn_cast<nn::CrossEntropyOp>(user);
        entropy && entropy.getLabels() == value)
      uses.push_back({shapeOf(entropy.getLogits()).back(), "", box});
    if (isa<nn::ReshapeOp, nn::TransposeOp, nn::BroadcastOp, nn::SliceOp,
            arith::ExtSIOp, arith::TruncIOp, nn::CheckIndexOp>(user))
      if (std::optional<Box> moved = through(user, box, isWhole(box, shape)))
        collect(user->getResult(0), *moved, shape, uses);
  }
}

/// Returns whether the lookup reads indices from all samples of the batch.
/// Other lookups are not recorded: the host checks every sample for a lookup,
/// and would refuse elements of samples that the lookup does not read.
bool hasAllSamples(const Use &use, ArrayRef<int64_t> shape,
                   std::optional<int64_t> batch) {
  return !batch || use.box.sizes[*batch] == shape[*batch];
}

} // namespace

void target::noteVocabulary(ModuleOp module) {
  Builder builder(module);
  for (func::FuncOp func : actionsOf(module))
    for (BlockArgument argument : func.getArguments()) {
      auto type = dyn_cast<RankedTensorType>(argument.getType());
      if (!type || !type.getElementType().isInteger())
        continue;
      unsigned number = argument.getArgNumber();
      std::optional<int64_t> batch =
          nn::batchDimOf(func.getArgAttrDict(number), type.getRank());
      std::vector<Use> uses;
      collect(argument, Box(type.getShape()), type.getShape(), uses);
      int64_t least = 0;
      SmallVector<Attribute> parts;
      for (const Use &use : uses) {
        bool isNarrowed =
            use.box.bits < type.getElementType().getIntOrFloatBitWidth();
        if (isWhole(use.box, type.getShape()) && !isNarrowed) {
          least = least ? std::min(least, use.rows) : use.rows;
          continue;
        }
        if (!hasAllSamples(use, type.getShape(), batch))
          continue;
        Attribute part = nn::LookupAttr::get(
            builder.getContext(), builder.getDenseI64ArrayAttr(use.box.offsets),
            builder.getDenseI64ArrayAttr(use.box.sizes),
            builder.getDenseI64ArrayAttr(use.box.strides), use.rows,
            builder.getStringAttr(use.table), isNarrowed ? use.box.bits : 0);
        if (!llvm::is_contained(parts, part))
          parts.push_back(part);
      }
      if (least)
        func.setArgAttr(number, nn::kVocabularyAttr,
                        builder.getI64IntegerAttr(least));
      if (!parts.empty())
        func.setArgAttr(number, nn::kLookupsAttr, builder.getArrayAttr(parts));
    }
}
