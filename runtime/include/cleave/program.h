// A compiled program as plain data.
//
// The compiler fills these structs and writes them, the runtime reads them
// (program_io.h). No dependencies, no exceptions. Offsets and sizes of buffers
// are in bytes; extents, strides and counts are in elements unless a comment
// says otherwise.
//
// Conventions: the mesh is ordered slowest axis first and a rank is the
// row-major index over it. Strings are interned: a `StringId` indexes
// Program::strings, and id 0 is always the empty string.
#ifndef CLEAVE_PROGRAM_H
#define CLEAVE_PROGRAM_H

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cleave::program {

using StringId = uint32_t;

enum class DType : uint8_t {
  F32,
  F64,
  BF16,
  I64,
  I32,
  I8,
  U8 /* bool: 0 or 1 */
};
inline constexpr DType lastDType = DType::U8;

inline int64_t sizeOf(DType type) {
  switch (type) {
  case DType::F64:
  case DType::I64:
    return 8;
  case DType::F32:
  case DType::I32:
    return 4;
  case DType::BF16:
    return 2;
  case DType::I8:
  case DType::U8:
    return 1;
  }
  return 0;
}

inline const char *nameOf(DType type) {
  constexpr const char *names[] = {"f32", "f64", "bf16", "i64",
                                   "i32", "i8",  "u8"};
  return names[static_cast<int>(type)];
}

// One mesh axis. `link` is the class of link that it crosses ("intra",
// "inter", ...), for reports only.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  std::string link;
  // Ranks next to each other on the axis that share a node.
  int64_t within = 1;
};

// The part of mesh axis `axis` that has `pre` blocks before it and `size`
// positions: its index is (axis_index / (axisSize / (pre * size))) % size.
// The whole axis is {axis, 1, axisSize}.
struct SubAxis {
  int32_t axis = 0;
  int64_t pre = 1;
  int64_t size = 1;
};

enum class Lifespan : uint8_t {
  Persistent, // keeps its contents between actions (named buffers)
  Transient,  // undefined at the start of every action and of every Call
  Slots,      // undefined at the start of an action that the host runs; the
              // calls in it hand values to each other here
};
inline constexpr Lifespan lastLifespan = Lifespan::Slots;

// Memory of one rank. Arena 0 is "state" (persistent), arena 1 "transient".
// With `rankClass` >= 0 only ranks of that class have it; on others it has no
// bytes.
struct Arena {
  std::string name;
  Lifespan lifespan = Lifespan::Transient;
  int64_t size = 0; // bytes
  int32_t rankClass = -1;
};

// `coef` bytes times the rank's index on a part of a mesh axis.
struct AxisTerm {
  SubAxis on;
  int64_t coef = 0;
};

// An address in a rank's memory: arena + offset + the sum of the terms.
struct BufferRef {
  int32_t arena = -1; // -1: absent (an optional operand that is not there)
  int64_t offset = 0;
  std::vector<AxisTerm> terms;

  bool present() const { return arena >= 0; }
};

enum class ReduceOp : uint8_t { Sum, Max, Min };

// A named persistent buffer: what a host program may read and write.
//
// From the bytes in files to the bytes on a rank:
//   globalShape --reshape--> viewShape --transpose by viewPerm--> V
//   V is cut along dim i into tiles of localShape[i], in the row-major order
//   of the sub-axes sharding[i]; elements past V's end are padding (zero).
// viewShape and viewPerm are empty where they change nothing. Dim i of V is
// dim viewPerm[i] of viewShape. The tile is dense and row-major.
// Example: c_attn [h, 3h] as [h, 3, heads, d], heads split by "tensor":
// globalShape [h, 3h], viewShape [h, 3, heads, d], sharding [[],[],[t],[]].
//
// With `rankClass` >= 0 only ranks of that class hold the buffer, and there is
// an entry of the same name for each class that does (several where the class
// has several stages that do), which may lie elsewhere and be cut differently;
// name, role, dtype and globalShape are the same. The class is then all ranks
// with one index on some axes (the pipeline axis), which no sharding names. The
// host acts on all entries of a name.
struct Boundary {
  std::string name;
  std::string onnxName; // "" if it has none
  std::string tie;      // "" or the boundary whose storage this one shares
  // parameter | state | gradient | buffer | input | output | loss | weight |
  // step | lr | seed | microbatch | metric | ...
  std::string role;
  // For state and gradients: the parameter that they belong to. "" otherwise.
  std::string of;
  DType dtype = DType::F32;
  std::vector<int64_t> globalShape;
  std::vector<int64_t> viewShape;
  std::vector<int64_t> viewPerm;
  std::vector<std::vector<SubAxis>> sharding; // empty: replicated; major first
  std::vector<int64_t> localShape;            // empty only if rank 0
  // The value is the reduction of the ranks' copies over these axes (a
  // gradient before its all-reduce). A gather applies `partialOp`.
  std::vector<SubAxis> partial;
  ReduceOp partialOp = ReduceOp::Sum;
  BufferRef buffer;
  int32_t rankClass = -1;
};

// What a program runs on. Cuda: kernels are in kernels.ARCH.cubin, by the
// device's architecture, and in kernels.sm_80.ptx, which any can compile.
enum class Device : uint8_t { Cpu, Cuda };
inline constexpr Device lastDevice = Device::Cuda;

// What a kernel does with an argument: it reads or writes no byte but the
// `bytes` from its address on.
struct KernelArg {
  int64_t bytes = 0;
  bool written = false; // else only read
};

// A compiled kernel, found in kernels.so by its symbol.
struct Kernel {
  std::string symbol;
  int32_t numArgs = 0;
  // Operands, then results, which may lie in an operand. Empty: not known.
  std::vector<KernelArg> args = {};
  // Device::Cuda: blocks of a launch and threads of a block; what they share is
  // static. A last argument, which is none of `args`, is the address of the
  // rank's indices on the mesh axes (cleave_ctx).
  int64_t grid = 0, block = 0;
};

// Calls the kernel on pieces of the rows [0, extent), none smaller than
// `grain` rows (but the last), possibly from several threads.
struct Launch {
  uint32_t kernel = 0;
  std::vector<BufferRef> args;
  int64_t extent = 0;
  int64_t grain = 1;
};

// A batch of matrices; `batchStrides` has one entry per batch dimension of
// the Gemm. Strides may be 0 in a batch dimension (broadcast operand).
struct MatrixRef {
  BufferRef buffer;
  std::vector<int64_t> batchStrides;
  int64_t rowStride = 0;
  int64_t colStride = 1;
};

enum class Activation : uint8_t { None, GeluTanh, GeluErf, Relu, Silu };
enum class GemmOperand : uint8_t { A, B };

// C = activation(alpha * A B + bias [+ C])
// A is [m, k], B [k, n], C [m, n], per batch element. `bias` has n contiguous
// elements. `preActivation`, if present, receives the activation's operand
// and has C's strides. dtype f32 or f64; all operands have it.
// A product of bf16 is summed in f32; with wideResult it is not rounded.
//
// On CUDA devices alone: with `derivativeAt`, which has C's strides,
// C = alpha * A B * activation'(derivativeAt). And `sums` receives the sums
// along k of the operand that `sumsOf` says, one for each row of A or column
// of B, in C's type.
struct Gemm {
  DType dtype = DType::F32;
  bool wideResult = false;    // dtype bf16: C (and what it adds to) is f32
  std::vector<int64_t> batch; // empty: one matrix
  int64_t m = 0, n = 0, k = 0;
  MatrixRef a, b, c;
  double alpha = 1.0;
  bool accumulate = false;
  BufferRef bias;
  Activation activation = Activation::None;
  BufferRef preActivation;
  BufferRef derivativeAt;
  BufferRef sums;
  GemmOperand sumsOf = GemmOperand::A;
  BufferRef workspace; // gemmWorkspace() bytes (cleave/workspace.h)
  int64_t workspaceSize = 0;

  DType resultType() const { return wideResult ? DType::F32 : dtype; }
  // How many `sums` are.
  int64_t numSums() const { return sumsOf == GemmOperand::A ? m : n; }
};

// Strides of [batch, position, kv head, group, feature]; the group stride of
// k, v, dk, dv is ignored, as is the feature stride of lse.
struct AttentionRef {
  BufferRef buffer;
  std::array<int64_t, 5> strides{};
};

// i64 or u8 of [batch, position].
struct IndexRef {
  BufferRef buffer;
  std::array<int64_t, 2> strides{};
};

// Attention over [b, qLen, n, g, d] queries and [b, kLen, n, d] keys. Query
// head h is group h % g of kv head h / g (so g = 1 is multi-head attention).
//   s = cap(scale * q k^T) + bias, masked; o = softmax(s) v;
//   lse = log sum exp s; cap(x) = softcap * tanh(x / softcap), or x for 0.
// Key j is visible to query i unless
// - causal, and kpos(j) > qpos(i), where kpos(j) is the entry of keyPositions,
//   else keyOffset + j, and qpos(i) that of queryPositions, else queryOffset +
//   i;
// - window > 0, and |qpos(i) - kpos(j)| >= window;
// - there are segments, and those of the two differ;
// - there is a keyMask, and its entry (u8) is 0: such keys and values are not
//   read and may hold anything.
// With dropout = p > 0, weight (i, j) of the softmax is kept, and divided by 1
// - p, where the word that philox.h has for dropoutKeys (i64, [b, n, g]; other
// strides are ignored), queryIndices of i and keyIndices of j (i64) is at least
// leastKept(p); else it is 0. lse does not depend on it.
// A row without a visible key gives o = 0, lse = -inf and zero gradients. The
// bias has strides [b, query, n, g, key]; 0 broadcasts. Positions and segments
// are i64 and come in pairs. Forward reads q, k, v and writes o, lse; backward
// reads q, k, v, o, dO, lse and writes dq, dk, dv. lse and the bias have the
// attention's dtype, f32 for bf16, in which everything is computed then.
struct Attention {
  bool backward = false;
  DType dtype = DType::F32;
  int64_t b = 0, qLen = 0, kLen = 0, n = 0, g = 1, d = 0, dv = 0;
  AttentionRef q, k, v, o, lse, dO, dq, dk, dV;
  double scale = 1.0, softcap = 0.0;
  bool causal = false;
  int64_t window = 0;
  int64_t queryOffset = 0, keyOffset = 0;
  AttentionRef bias;
  IndexRef queryPositions, keyPositions, querySegments, keySegments, keyMask;
  double dropout = 0.0;
  AttentionRef dropoutKeys;
  IndexRef queryIndices, keyIndices;
  BufferRef workspace; // attentionWorkspace() bytes (cleave/workspace.h)
  int64_t workspaceSize = 0;
};

// Where rows of `column`-strided elements begin: a stride for each dimension
// of GroupedGemm::rows. Strides may be 0 in what is read.
struct RowsRef {
  BufferRef buffer;
  std::vector<int64_t> strides;
  int64_t column = 1;
};

// Rows r, over the dimensions `rows`, choose one of `e` matrices by ids[r]
// (i64); a row whose id is outside [0, e) chooses none.
//   c[r] = a[r] w[ids[r]], zeros where none is chosen; or, with `outer`,
//   w[m] = sum of a[r]^T c[r] over the rows that choose m.
// a has k elements a row, c has n, a matrix is [k, n]; w's one batch stride is
// from matrix to matrix. dtype f32, f64 or bf16, whose result may be f32
// (wideResult). No work is done for rows that
// choose nothing, nor for matrices that no row chooses.
struct GroupedGemm {
  bool outer = false;
  DType dtype = DType::F32;
  bool wideResult = false;
  std::vector<int64_t> rows;
  int64_t e = 0, k = 0, n = 0;
  RowsRef a, c, ids;
  MatrixRef w;
  BufferRef workspace; // groupedWorkspace() bytes (cleave/workspace.h)
  int64_t workspaceSize = 0;

  DType resultType() const { return wideResult ? DType::F32 : dtype; }
};

enum class ConvolutionKind : uint8_t { Forward, InputGrad, FilterGrad };
inline constexpr ConvolutionKind lastConvolutionKind =
    ConvolutionKind::FilterGrad;

// A convolution or a derivative of it, over one to three spatial dimensions:
//   y[n, m, o] = sum over c, k of
//                x[n, c, o * strides + k * dilations - low] w[m, c, k]
// with zeros outside of x. x is [samples, groups * channels, input...], w
// [groups * features, channels, kernel...], y [samples, groups * features,
// output...]; features of a group read its channels. All are dense. Forward
// reads x and w and writes y; InputGrad reads w and y, the cotangent, and
// writes that of x; FilterGrad reads x and y and writes that of w. `high` zeros
// lie behind x, as far as output makes windows reach there. bf16 is summed in
// f32. `narrow`: f32 whose operands are values of bf16, so that rounding them
// to TF32 changes nothing.
struct Convolution {
  ConvolutionKind kind = ConvolutionKind::Forward;
  DType dtype = DType::F32;
  bool narrow = false;
  int64_t samples = 0, groups = 1, channels = 0, features = 0;
  std::vector<int64_t> input, kernel, output;
  std::vector<int64_t> strides, dilations, low, high;
  BufferRef x, w, y;
  BufferRef workspace; // convolutionWorkspace() bytes (cleave/workspace.h)
  int64_t workspaceSize = 0;
};

// How many pairs of a query and a key the causal rule and the window leave, at
// positions 0, 1, ... of both.
inline int64_t attentionPairs(int64_t queries, int64_t keys, bool causal,
                              int64_t window) {
  // Pairs with key <= query + shift: in rows [first, full) some of them.
  auto upTo = [&](int64_t shift) {
    int64_t first = std::clamp<int64_t>(-shift, 0, queries);
    int64_t full = std::clamp<int64_t>(keys - 1 - shift, first, queries);
    return (full - first) * (first + full + 2 * shift + 1) / 2 +
           (queries - full) * keys;
  };
  int64_t reach = queries + keys;
  if (window > 0)
    reach = std::min(reach, window);
  return upTo(causal ? 0 : reach - 1) - upTo(-reach);
}

// The mean over ranks where queries and keys have positions of their own, as
// the tiles of a ring do: over all tiles, a query sees half of the other keys.
inline int64_t meanAttentionPairs(int64_t queries, int64_t keys, bool causal,
                                  int64_t window) {
  int64_t pairs = causal ? queries * keys / 2 : queries * keys;
  if (window > 0 && window < keys)
    pairs = std::min(pairs, queries * (causal ? window : 2 * window - 1));
  return pairs;
}

// Plans in which of `rounds`, and where, rows go that are sent to the ranks of
// what they choose: row r goes to rank ids[r] / tile, to the next free of its
// places, of which a rank has `places` in each round. sources [rounds, ranks,
// places]: the row at each place; sent: its id less the first of the rank's
// tile; placeOf [rows]: the place of each row, counted over all rounds and
// ranks; -1 where there is none. counts [ranks, rounds]: how many. All are i64.
struct PlanRows {
  int64_t rows = 0, rounds = 1, ranks = 0, places = 0, tile = 1;
  BufferRef ids, sources, placeOf, sent, counts;
};

// Sorts rows by their ids, those of one id in order; rows whose id is outside
// [0, groups) come last. order [rows]: the row at each place; placeOf [rows]:
// the place of each row; sorted [rows]: the id at each place, -1 where it is
// outside. All are i64.
struct SortRows {
  int64_t rows = 0, groups = 1;
  BufferRef ids, order, placeOf, sorted;
};

// For each slot of ids [b, s, k], how many slots of its sample come before it,
// in the order of (position, index in k), that have chosen the same of e
// experts; ids of no expert give 0. With loads [rows, e], loads[r, id] is added
// for r < samples[b]. Positions are [b, s] where each sample has its own, else
// [s]. All are i64; scratch has 2 e + s.
struct PositionInExpert {
  int64_t b = 0, s = 0, k = 1, e = 1, rows = 0;
  bool perSample = false;
  BufferRef ids, positions, loads, samples, result, scratch;
};

enum class CollectiveKind : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Permute,
  Broadcast,
  Exchange,
  SendRecv,
  AllToAllV,
};
inline constexpr CollectiveKind lastCollectiveKind = CollectiveKind::AllToAllV;

// One buffer of a collective; N is the group's size. Elements of src and dst:
//   AllReduce, Permute, Broadcast: [count]; AllReduce, Broadcast: dst may be
//   src AllGather:     src [outer, inner] -> dst [outer, N, inner]
//   ReduceScatter: src [outer, N, inner] -> dst [outer, inner]
//   AllToAll:      src [outer, N, inner] -> dst [dstOuter, N, dstInner], block
//                  p of src goes to member p, block p of dst comes from it
//   AllToAllV:     src, dst [N, outer, inner]: the first Collective::sent[p]
//   rows of block p of src go to member p, what comes from it is the first
//   Collective::received[p] rows of block p of dst
//   Exchange:      src [count], the source tile; dst [dstOuter * dstInner], the
//                  target tile (see Exchange); inner = count
//   SendRecv:      src [count] at the sender, dst [count] at the receiver; the
//                  other one is not looked at
// with count = outer * inner = dstOuter * dstInner (but for Exchange). Other
// than above, src and dst do not overlap (AllGather: src may be its own block
// of dst when outer = 1; ReduceScatter: dst its own block of src when outer =
// 1).
struct Transfer {
  BufferRef src, dst;
  int64_t count = 0;
  int64_t outer = 1, inner = 0;
  int64_t dstOuter = 1, dstInner = 0;
};

// Of an exchange: how the whole tensor of `shape` lies before and after. Dim i
// is cut into tiles of ceil(shape[i] / ways), in the row-major order of the
// sub-axes from[i], then of to[i]. The source ranks hold addends over
// `partial`, which the result reduces; the result has addends (of a sum) over
// `toPartial`. Sub-axes outside the group cut alike in both. In two rounds
// every element is assembled once and copied then. Who sends what to whom
// follows (cleave/exchange.h); padding is left as it is.
struct Exchange {
  std::vector<int64_t> shape;
  std::vector<std::vector<SubAxis>> from, to;
  std::vector<SubAxis> partial, toPartial;
  int32_t rounds = 1;
};

// A collective over the ranks that agree on all mesh axes outside `group`,
// its members ordered row-major over `group` (first entry slowest). With
// `token` >= 0 it only starts, and a Wait with this token ends it; buffers
// are not touched in between. Permute: member i receives from
// sources[i] (-1: zeros). Broadcast: from member `root`.
//
// If `positions` is not empty, only these positions of the group take part,
// in this order: member i is positions[i]. Only their ranks run the command.
//
// SendRecv: positions[0] sends to positions[1]; always with a token. The k-th
// start of the sender matches the k-th start of the receiver, per ordered pair
// of ranks and apart from all else that the two do. At the sender the Wait
// returns when src may be overwritten, at the receiver when dst is complete;
// neither waits for more than the other's start.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  ReduceOp reduce = ReduceOp::Sum;
  DType dtype = DType::F32;
  std::vector<SubAxis> group;
  std::vector<Transfer> parts;
  // gradient | parameter | activation | expert | norm | loss | pipeline
  StringId purpose = 0;
  int32_t token = -1;
  std::vector<int32_t> sources;
  int32_t root = 0;
  std::vector<Exchange> exchanges; // Exchange: one for each part
  std::vector<int32_t> positions;
  // AllToAllV: rows for each member, and from each; i64, known on both sides.
  BufferRef sent, received;
  // For reports: rows that a rank is reckoned to have for all members alike;
  // one number, or one for each position on `by`. With `home` they come back.
  std::vector<int64_t> expected;
  std::vector<SubAxis> by;
  bool home = false;
};

struct Wait {
  int32_t token = 0;
};

// dst[i...] = src[i...] over `shape` with strides; bytes move unchanged.
struct Copy {
  BufferRef src, dst;
  int32_t elementSize = 1;
  std::vector<int64_t> shape, srcStrides, dstStrides;
};

// Writes `count` elements of `elementSize` (1, 2, 4, 8) bytes, whose bits are
// the low bytes of `pattern`.
struct Fill {
  BufferRef dst;
  int32_t elementSize = 4;
  int64_t count = 0;
  uint64_t pattern = 0;
};

// Moves all references to an arena by so many bytes.
struct Rebase {
  int32_t arena = 0;
  int64_t offset = 0;
};

// Runs the commands of another action of the same class on other slots: an
// arena of n slots of one size has the action compiled for slot 0 and is moved
// to the others. Called actions call nothing. All members of a group call in
// the same order.
struct Call {
  uint32_t action = 0;        // index into Program::actions
  std::vector<Rebase> rebase; // at most one for each arena
  StringId label = 0; // for traces: what and which microbatch, e.g. "0F3"
};

struct Command {
  std::variant<Launch, Gemm, Attention, GroupedGemm, Collective, Wait, Copy,
               Fill, Call, PlanRows, SortRows, PositionInExpert, Convolution>
      op;
  StringId source = 0; // what the user knows this command by
  int64_t flops = 0;
  // Absent: always runs. Else a byte, 0 or 1: 0 means that it does not run,
  // here and on all ranks that it would meet. Not for what starts or ends a
  // transfer.
  BufferRef when = {};
};

// Where a planned value lives, and from which command to which, inclusive.
// Optional; the poison mode fills a range with NaNs when it is not live. Those
// of a called action hold in each call, moved like its references.
struct Lifetime {
  StringId name = 0;
  int32_t arena = 0;
  int64_t offset = 0, size = 0;
  int32_t first = 0, last = 0;
};

// "loss_grad", "update", "init_state", "forward", ... for one class of ranks. A
// class without the action that the host runs does nothing. A name that begins
// with "." (".F.0") is only called, never run by the host.
struct Action {
  std::string name;
  uint32_t rankClass = 0;
  std::vector<Command> commands;
  std::vector<Lifetime> lifetimes;

  bool isOnlyCalled() const { return name.starts_with("."); }
};

struct Program {
  Device device = Device::Cpu;
  // Cuda: products of f32 may round their operands to TF32 (10 bits behind the
  // point); they sum in f32.
  bool tf32 = false;
  std::vector<std::string> strings{""};
  std::vector<MeshAxis> mesh;
  std::vector<uint32_t> rankClass; // one per rank; empty: all in class 0
  std::vector<Arena> arenas;
  std::vector<Kernel> kernels;
  std::vector<Boundary> boundary;
  std::vector<Action> actions;
  int32_t threadsPerRank = 1; // what workspaces were sized for
  std::vector<std::pair<std::string, std::string>> meta; // free for the host

  int64_t numRanks() const {
    int64_t ranks = 1;
    for (const MeshAxis &axis : mesh)
      ranks *= axis.size;
    return ranks;
  }

  // Linear search: fine for the few distinct purposes; a writer with many
  // source strings keeps its own map.
  StringId intern(std::string_view text) {
    for (StringId id = 0; id < strings.size(); ++id)
      if (strings[id] == text)
        return id;
    strings.emplace_back(text);
    return static_cast<StringId>(strings.size() - 1);
  }

  uint32_t classOf(int64_t rank) const {
    return rankClass.empty() ? 0 : rankClass[rank];
  }

  // The first entry of the name.
  const Boundary *findBoundary(std::string_view name) const {
    for (const Boundary &entry : boundary)
      if (entry.name == name)
        return &entry;
    return nullptr;
  }

  const Action *findAction(std::string_view name, uint32_t ofClass = 0) const {
    for (const Action &action : actions)
      if (action.name == name && action.rankClass == ofClass)
        return &action;
    return nullptr;
  }
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_H
