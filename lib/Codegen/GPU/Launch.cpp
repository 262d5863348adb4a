#include "Launch.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::kernels;

/// KAccess is the size of an access in bytes, kKept the size of the part of a
/// row that a thread keeps in registers. If one warp computes the row, a thread
/// keeps up to kKeptInWarp bytes, because a single warp needs no barrier.
static constexpr int64_t kAccess = 16, kKept = 64, kKeptInWarp = 128;
static constexpr int64_t kKeptInLargestBlock = 32; // elements
static constexpr int64_t kBlock = 256, kLargestBlock = 1024;
/// The number of threads that keeps a large device busy, and the number of
/// blocks that keeps all its multiprocessors busy.
static constexpr int64_t kEnoughThreads = 132 * 1024, kEnoughBlocks = 264;

static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

namespace {

class Chooser {
public:
  explicit Chooser(const KernelPlan &plan) : plan(plan) {}

  Launch run() {
    for (const Reduction &reduction : plan.reductions) {
      reducesRows |= reduction.perRow();
      if (!reduction.perRow())
        sequence = std::max(sequence, reduction.sequence->size);
    }
    rows = plan.row ? plan.row->size : 1;
    if (plan.shape == KernelPlan::Shape::Scatter) {
      scatter();
      return launch;
    }
    int64_t lanes = wantedLanes();
    addColumns(lanes);
    if (!reducesRows && sequence >= 64 && shareSequence())
      return launch;
    if (reducesRows)
      alongRows();
    else
      elementwise();
    return launch;
  }

private:
  /// Returns the number of elements per access, chosen so that accesses of most
  /// tensors have 16 bytes.
  int64_t wantedLanes() {
    int64_t narrowest = kAccess;
    auto see = [&](Type type) {
      int64_t bytes = std::max<int64_t>(1, type.getIntOrFloatBitWidth() / 8);
      narrowest = std::min(narrowest, bytes);
      widest = std::max(widest, bytes);
    };
    uint64_t lanes = 0;
    for (const ColumnLoop &loop : plan.loops) {
      lanes |= loop.columns->lane->loops;
      for (const Store &store : loop.stores)
        see(store.value->type);
    }
    for (const Node &node : plan.nodes)
      if (node.kind == Node::Kind::Load && node.loops & lanes) {
        see(node.type);
        ++loads;
      }
    return std::max<int64_t>(
        1, std::min(kAccess / narrowest, 2 * kAccess / widest));
  }

  void addColumns(int64_t wanted) {
    for (const ColumnLoop &loop : plan.loops) {
      int64_t lanes = wanted, size = loop.columns->lane->size;
      // Each row must consist of whole vectors. A plan of shape Flat has one
      // row with all elements; what remains after its last whole vector is
      // computed element by element.
      bool flat = plan.shape == KernelPlan::Shape::Flat;
      while (flat ? lanes > size : size % lanes != 0)
        lanes /= 2;
      setLanes(*loop.columns, lanes);
    }
  }

  void setLanes(const Columns &columns, int64_t lanes) {
    ColumnLaunch &entry = launch.columns[&columns];
    entry.lanes = lanes;
    entry.vectors = columns.outer->size * (columns.lane->size / lanes);
  }

  int64_t mostVectors() const {
    int64_t most = 1;
    for (const auto &[columns, entry] : launch.columns)
      most = std::max(most, entry.vectors);
    return most;
  }

  /// Chooses the launch of sums over rows (of columns): consecutive threads
  /// take consecutive columns, and `sequence` threads share the rows of a sum.
  /// Returns false if threads should not share a sum.
  bool shareSequence() {
    int64_t elements = 0;
    for (const auto &[columns, entry] : launch.columns)
      elements = std::max(elements, rows * columns->count);
    elements = std::max(elements, rows);
    int64_t width = 8; // threads along columns: at least a memory sector
    int64_t wanted = kAccess;
    for (const auto &[columns, entry] : launch.columns)
      wanted = std::min(wanted, entry.lanes);
    int64_t lanes = wanted;
    while (lanes > 1 && elements / (lanes * width) < kEnoughBlocks / 2)
      lanes /= 2;
    for (const Columns &columns : plan.columnSpaces) {
      int64_t own = lanes;
      while (columns.lane->size % own != 0)
        own /= 2;
      if (launch.columns.contains(&columns))
        setLanes(columns, own);
    }
    int64_t threads = elements / lanes, share = 1;
    while (threads * share < kEnoughThreads && share * 16 <= sequence &&
           share * 2 * width <= kLargestBlock)
      share *= 2;
    if (share == 1) {
      addColumns(wanted);
      return false;
    }
    launch.sequence = share;
    launch.threads =
        std::min<int64_t>(width, llvm::PowerOf2Ceil(mostVectors()));
    launch.rows =
        std::min<int64_t>(width / launch.threads, llvm::PowerOf2Ceil(rows));
    launch.chunks = ceilDiv(mostVectors(), launch.threads);
    if (launch.chunks > 1 && overwritesRowValues()) {
      launch = Launch();
      addColumns(wanted);
      return false;
    }
    launch.grid = launch.chunks * ceilDiv(rows, launch.rows);
    return true;
  }

  void alongRows() {
    int64_t vectors = mostVectors();
    int64_t threads = 1;
    while (threads < kWarp && threads < vectors)
      threads *= 2;
    auto kept = [&] {
      int64_t most = 0;
      for (const auto &[columns, entry] : launch.columns)
        most = std::max(most, ceilDiv(entry.vectors, threads) * entry.lanes);
      return most * widest;
    };
    while (threads < kLargestBlock &&
           kept() > (threads <= kWarp ? kKeptInWarp : kKept))
      threads *= 2;
    while (threads < kLargestBlock && threads < vectors &&
           rows * threads < kEnoughThreads / 2)
      threads *= 2;
    // A value that one loop over the columns passes to a later one is kept in
    // registers if a thread's part of the row is small enough. It must be kept
    // if no result stores it (buffer.result < 0), because there is no other
    // memory. A thread of the largest block has 64 registers, and each element
    // is assumed to take one.
    int64_t elements = 0;
    for (const auto &[columns, entry] : launch.columns)
      elements =
          std::max(elements, ceilDiv(entry.vectors, threads) * entry.lanes);
    bool keep = kept() <= kKeptInWarp &&
                (threads < kLargestBlock || elements <= kKeptInLargestBlock);
    for (const auto &[node, buffer] : plan.buffers)
      keep |= buffer.result < 0;
    launch.threads = threads;
    for (auto &[columns, entry] : launch.columns) {
      entry.copies = std::max<int64_t>(1, ceilDiv(entry.vectors, threads));
      entry.kept = keep;
      if (!keep)
        entry.copies = std::clamp<int64_t>(kKept / (entry.lanes * widest), 1,
                                           entry.copies);
    }
    severalRows();
  }

  /// Several short rows share a block.
  void severalRows() {
    int64_t count = std::max<int64_t>(1, kBlock / launch.threads);
    while (count > 1 && count * launch.threads > kWarp &&
           launch.chunks * ceilDiv(rows, count) < kEnoughBlocks)
      count /= 2;
    launch.rows = count;
    launch.grid = launch.chunks * ceilDiv(rows, count);
  }

  /// Returns whether a result with one value per row may overwrite an argument
  /// that all threads of the row read. If so, one block must compute the row,
  /// so that its threads can use a barrier.
  bool overwritesRowValues() const {
    for (auto [result, argument] : plan.inPlace())
      for (const Store &store : plan.rowStores)
        if (int64_t(store.result) == result)
          return true;
    return false;
  }

  /// If the kernel reads a transposed operand, that is, one that is contiguous
  /// along rows but not along columns, returns the size of its elements in
  /// bytes; otherwise returns 0.
  int64_t transposedBytes() const {
    if (!plan.row)
      return 0;
    for (const Node &node : plan.nodes) {
      if (node.kind != Node::Kind::Load)
        continue;
      for (const ColumnLoop &loop : plan.loops) {
        uint64_t lane = loop.columns->lane->loops;
        if (!(node.index.loops() & lane) ||
            node.index.coefficient(loop.columns->lane) == 1)
          continue;
        for (auto [var, factor] : node.index.terms())
          if (factor == 1 && var->loops == plan.row->loops &&
              var->kind != IndexVar::Kind::Data)
            return std::max<int64_t>(1, node.type.getIntOrFloatBitWidth() / 8);
      }
    }
    return 0;
  }

  void elementwise() {
    // In kernels with few loads, a thread processes several vectors at a time,
    // so that enough bytes are in flight.
    int64_t most =
        sequence > 0 ? 1 : std::max<int64_t>(1, 4 / std::max(loads, 1));
    int64_t vectors = mostVectors();
    while (most > 1 && rows * vectors < kEnoughBlocks * kBlock * most)
      most /= 2;
    int64_t threads = 1, waste = INT64_MAX;
    for (int64_t trial = kBlock; trial >= 1; trial /= 2) {
      int64_t copies = std::min(most, ceilDiv(vectors, trial));
      int64_t taken = llvm::alignTo(vectors, trial * copies) - vectors;
      if (copies < ceilDiv(vectors, trial) && trial < kWarp)
        break;
      if (taken < waste) {
        waste = taken;
        threads = trial;
      }
    }
    if (plan.shape == KernelPlan::Shape::Flat)
      threads = kBlock;
    // With a transposed operand, a warp covers so many rows that its reads
    // along rows fill whole memory sectors, as its writes along columns do.
    if (int64_t bytes = transposedBytes())
      threads = std::min<int64_t>(bytes, llvm::PowerOf2Ceil(vectors));
    bool alone = overwritesRowValues();
    if (alone)
      threads = std::min<int64_t>(kLargestBlock, llvm::PowerOf2Ceil(vectors));
    launch.threads = threads;
    for (auto &[columns, entry] : launch.columns) {
      int64_t needed = ceilDiv(entry.vectors, threads);
      entry.copies = std::clamp<int64_t>(needed, 1, most);
      if (alone)
        entry.kept = needed <= most;
      else
        launch.chunks = std::max(
            launch.chunks, ceilDiv(entry.vectors, threads * entry.copies));
    }
    if (plan.shape == KernelPlan::Shape::Flat)
      launch.grid = launch.chunks;
    else
      severalRows();
  }

  void scatter() {
    const Columns &columns = plan.scatter.columns;
    int64_t lanes = std::max<int64_t>(
        1, kAccess * 8 /
               std::max(8u, plan.scatter.value->type.getIntOrFloatBitWidth()));
    while (columns.count % lanes != 0)
      lanes /= 2;
    setLanes(columns, lanes);
    ColumnLaunch &entry = launch.columns[&columns];
    entry.kept = entry.vectors <= 8 * kWarp;
    entry.copies = entry.kept ? ceilDiv(entry.vectors, kWarp) : 4;
    launch.threads = kWarp;
    // Each warp reads all indices, so there are only as many warps as keep a
    // device busy.
    int64_t classes = 1, before = plan.scatter.before->size;
    while (classes * 2 <= plan.scatter.rows &&
           classes * before < 2 * kEnoughThreads / kWarp / 4)
      classes *= 2;
    launch.classes = classes;
    launch.rows =
        std::min<int64_t>(kBlock / kWarp, llvm::PowerOf2Ceil(classes * before));
    launch.grid = ceilDiv(classes * before, launch.rows);
  }

  const KernelPlan &plan;
  Launch launch;
  bool reducesRows = false;
  int64_t sequence = 0, rows = 1, widest = 1;
  int loads = 0;
};

} // namespace

Launch cleave::codegen::chooseLaunch(const KernelPlan &plan) {
  return Chooser(plan).run();
}
