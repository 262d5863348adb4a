//===- Bucket.cpp - dist-bucket -------------------------------------------===//
//
// Merges collectives that can run together, on per-rank programs.
//
//===----------------------------------------------------------------------===//

#include "cleave/Cost/LinkModel.h"
#include "cleave/Dialect/Dist/IR/Padding.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Support/ValueUtils.h"
#include "llvm/ADT/MapVector.h"
#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <optional>

namespace cleave {
#define GEN_PASS_DEF_DISTBUCKETPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

namespace {

/// Returns a text of all properties that collectives must share to be merged:
/// the operation, its attributes except for dimensions and padding, and the
/// element type.
std::string keyOf(Operation *op) {
  std::string key;
  llvm::raw_string_ostream out(key);
  out << op->getName() << ' ';
  for (NamedAttribute attr : op->getAttrs())
    if (attr.getName() != "dims" && attr.getName() != "split_dims" &&
        attr.getName() != "concat_dims" && attr.getName() != kPaddingAttrName)
      out << attr.getName().getValue() << '=' << attr.getValue() << ' ';
  out << typeOf(op->getOperand(0)).getElementType();
  return key;
}

/// Returns whether collectives of this kind can be merged. They can if they
/// take several operands, each with a dimension of its own.
bool isVariadic(Operation *op) {
  return isa<AllReduceOp, AllGatherOp, ReduceScatterOp, AllToAllOp>(op);
}

class Buckets {
public:
  /// `limitOf` returns, for the group of a collective, the largest payload in
  /// bytes that a merged collective over this group may have.
  Buckets(func::FuncOp func,
          llvm::function_ref<int64_t(CollectiveOpInterface)> limitOf)
      : block(func.getBody().front()), limitOf(limitOf) {
    for (auto [index, op] : llvm::enumerate(block))
      order[&op] = index;
  }

  /// Merges greedily in program order. A bucket is a list of collectives of one
  /// kind that will be merged; a collective joins the first bucket that still
  /// has room. It cannot join a bucket if one of them depends on a result of
  /// the other, or if some operation reads a result of the bucket before the
  /// operands of the collective are computed.
  void run() {
    struct OfKind {
      std::deque<Bucket> all;
      SmallVector<Bucket *> open;
      int64_t limit = 0;
    };
    std::map<std::string, OfKind> kinds;
    for (Operation &op : block) {
      if (!isVariadic(&op))
        continue;
      OfKind &kind = kinds[keyOf(&op)];
      if (kind.all.empty())
        kind.limit = limitOf(cast<CollectiveOpInterface>(op));
      // The merged collective is placed where its last member is, and the last
      // member would be this collective. So a bucket is closed if a result of
      // one of its members is read before this place.
      unsigned place = order.lookup(&op);
      llvm::erase_if(kind.open,
                     [&](Bucket *bucket) { return bucket->firstUse <= place; });
      auto fitting = llvm::find_if(kind.open, [&](Bucket *bucket) {
        return bucket->bytes + bytes(&op) <= kind.limit;
      });
      Bucket *bucket = nullptr;
      if (fitting != kind.open.end()) {
        bucket = *fitting;
      } else {
        bucket = &kind.all.emplace_back();
        if (bytes(&op) < kind.limit) // a full bucket is not considered again
          kind.open.push_back(bucket);
      }
      add(*bucket, &op);
    }
    for (auto &[key, kind] : kinds)
      for (Bucket &bucket : kind.all)
        if (bucket.members.size() > 1)
          merge(bucket.members);
  }

private:
  struct Bucket {
    SmallVector<Operation *> members;
    int64_t bytes = 0;
    /// The index of the first operation that reads a result of a member of the
    /// bucket.
    unsigned firstUse = std::numeric_limits<unsigned>::max();
  };

  static int64_t bytes(Operation *op) {
    return cast<CollectiveOpInterface>(op).getPayloadBytes();
  }

  void add(Bucket &bucket, Operation *op) const {
    bucket.members.push_back(op);
    bucket.bytes += bytes(op);
    for (Operation *user : op->getUsers())
      bucket.firstUse = std::min(
          bucket.firstUse, order.lookup(block.findAncestorOpInBlock(*user)));
  }

  void merge(ArrayRef<Operation *> bucket) {
    Operation *last = bucket.back();
    OpBuilder builder(last);
    SmallVector<Value> inputs;
    SmallVector<Type> types;
    SmallVector<Location> locs;
    llvm::MapVector<StringRef, SmallVector<int64_t>> dims;
    int64_t padding = 0;
    for (Operation *op : bucket) {
      padding += paddingOf(op);
      llvm::append_range(inputs, op->getOperands());
      llvm::append_range(types, op->getResultTypes());
      locs.push_back(op->getLoc());
      for (StringRef name : {"dims", "split_dims", "concat_dims"})
        if (auto attr = op->getAttrOfType<DenseI64ArrayAttr>(name))
          llvm::append_range(dims[name], attr.asArrayRef());
    }
    OperationState state(builder.getFusedLoc(locs), last->getName());
    state.addOperands(inputs);
    state.addTypes(types);
    state.addAttributes(last->getAttrs());
    for (auto &[name, values] : dims)
      state.attributes.set(name, builder.getDenseI64ArrayAttr(values));
    state.attributes.erase(kPaddingAttrName);
    Operation *merged = builder.create(state);
    setPadding(merged, padding);
    unsigned at = 0;
    for (Operation *op : bucket) {
      op->replaceAllUsesWith(
          merged->getResults().slice(at, op->getNumResults()));
      at += op->getNumResults();
      op->erase();
    }
  }

  Block &block;
  llvm::function_ref<int64_t(CollectiveOpInterface)> limitOf;
  llvm::DenseMap<Operation *, unsigned> order;
};

struct DistBucketPass : cleave::impl::DistBucketPassBase<DistBucketPass> {
  using Base::Base;

  void runOnOperation() override {
    std::optional<cost::Machine> machine;
    if (bucket == 0 && !getOperation().getOps<MeshOp>().empty()) {
      FailureOr<cost::Machine> loaded =
          cost::Machine::load(getOperation(), cluster);
      if (failed(loaded))
        return signalPassFailure();
      machine = std::move(*loaded);
    }
    auto limitOf = [&](CollectiveOpInterface op) -> int64_t {
      if (!machine)
        return bucket;
      AxisSet group = 0;
      for (Axis axis : machine->mesh.decompose(op.getAxes().getAxes()))
        group |= AxisSet(1) << axis;
      double start = machine->links.allGather(group, 0);
      double perByte = (machine->links.allGather(group, 1e9) - start) / 1e9;
      if (perByte <= 0)
        return kLargest;
      return int64_t(std::clamp(start / perByte / kShareOfStart, kSmallest,
                                double(kLargest)));
    };
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isExternal())
        Buckets(func, limitOf).run();
  }

  /// A message is large enough if latency is at most this share of its time:
  /// larger ones would hardly be more efficient. Smaller messages complete
  /// sooner, so that more computation can overlap with the next one.
  static constexpr double kShareOfStart = 0.05;
  static constexpr double kSmallest = 1 << 18;
  static constexpr int64_t kLargest = 25 << 20;
};

} // namespace
