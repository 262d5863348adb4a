//===- MoveRemarks.cpp - remarks on unrequested reshards ------------------===//

#include "MoveRemarks.h"

#include "cleave/Partition/Utils/Describe.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

/// Returns the name of the collective that executes one step (move) of a
/// reshard; empty for moves that any sharded program has, about which no remark
/// is needed.
static StringRef nameOf(Move::Kind kind) {
  switch (kind) {
  case Move::AllGather:
    return "all-gather";
  case Move::AllToAll:
    return "all-to-all";
  case Move::Exchange:
    return "exchange";
  default:
    return "";
  }
}

static bool movesTiles(ArrayRef<Move> moves) {
  return llvm::any_of(
      moves, [](const Move &move) { return !nameOf(move.kind).empty(); });
}

/// Returns the first reader of the value, or the operation that defines it if
/// nothing reads it.
static Operation *firstUser(Value value) {
  Operation *first = value.getDefiningOp();
  for (Operation *user : value.getUsers()) {
    user = value.getParentBlock()->findAncestorOpInBlock(*user);
    if (first == value.getDefiningOp() || user->isBeforeInBlock(first))
      first = user;
  }
  return first;
}

void MoveRemarks::add(Value value, const Layout &from, const Layout &to,
                      ArrayRef<Move> moves, Operation *reader,
                      ReshardPlanner &planner) {
  if (!movesTiles(moves))
    return;
  auto type = typeOf(value);

  // To find out whether the cause is a size that does not divide evenly, plans
  // the same reshard with such sizes replaced by sizes that do.
  std::string cause;
  SmallVector<int64_t> even(type.getShape());
  for (auto [dim, size] : llvm::enumerate(even)) {
    Axes axes = listOf(setOf(from.dims[dim]) | setOf(to.dims[dim]));
    int64_t ways = mesh.size(axes);
    if (size % ways == 0)
      continue;
    if (cause.empty())
      llvm::raw_string_ostream(cause)
          << "dimension " << dim << " of size " << size
          << " does not divide by the " << ways << " ranks of "
          << describe(mesh.list(axes));
    size = llvm::alignTo(size, ways);
  }
  if (!cause.empty() &&
      movesTiles(planner.plan(even, elementBytes(type), from, to)))
    cause.clear();

  for (const Move &move : moves) {
    StringRef name = nameOf(move.kind);
    if (name.empty())
      continue;
    int64_t bytes = elementBytes(type);
    for (int64_t extent : mesh.tile(move.after, type.getShape()))
      bytes *= extent;
    // A result may be resharded to its planned layout as soon as it is
    // computed. The layout was planned for the first reader of the result, so
    // the remark names this reader.
    bool isResult = value.getDefiningOp() == reader;
    Operation *who = isResult ? firstUser(value) : reader;
    std::string what;
    llvm::raw_string_ostream(what)
        << "over " << mesh.list(move.axes) << ": " << who->getName()
        << " reads " << describe(value) << " of type '" << type << "' as "
        << mesh.sharding(move.after) << ", it "
        << (isResult ? "is made" : "is sharded") << " as "
        << mesh.sharding(from);
    note(value, who, name, cause, what, bytes);
  }
}

void MoveRemarks::add(Operation *op, const LocalPlan::Gather &gather,
                      ArrayRef<Axis> axes) {
  Value value = op->getOperand(gather.operand);
  std::string what;
  llvm::raw_string_ostream(what)
      << "over " << mesh.list(axes) << ": " << op->getName() << " reads "
      << describe(value) << " of type '" << value.getType()
      << "' with dimension " << gather.dim << " whole: " << gather.why;
  note(value, op, "all-gather", "", what, gather.bytes);
}

void MoveRemarks::note(Value value, Operation *reader, StringRef name,
                       const std::string &cause, const std::string &what,
                       int64_t bytes) {
  std::string start = "unrequested " + name.str();
  std::string key = start + (cause.empty() ? what : cause);
  Remark made{reader->getLoc(), value.getLoc(), cause, what, start, 0, 0};
  Remark &remark = remarks.try_emplace(key, made).first->second;
  ++remark.count;
  remark.bytes += bytes;
}

void MoveRemarks::emit() const {
  for (const auto &[key, remark] : remarks) {
    InFlightDiagnostic said = emitRemark(remark.loc);
    bool isOne = remark.count == 1;
    if (remark.cause.empty()) {
      said << remark.start << " of " << remark.bytes / remark.count << " bytes "
           << remark.what;
      if (!isOne)
        said << "; " << remark.count << " times in all";
    } else {
      said << remark.cause
           << ", so that tiles do not line up, as those of a multiple would: "
           << remark.count << " " << remark.start << (isOne ? "" : "s")
           << " of " << remark.bytes << " bytes"
           << (isOne ? " " : " in all, the first ") << remark.what;
    }
    said.attachNote(remark.source) << "the value comes from here";
  }
}
