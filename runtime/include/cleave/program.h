// A compiled program as plain data, and its serialization to `program.bin`.
//
// The compiler fills these structs and calls serialize(); the runtime calls
// deserialize(). Both see one list of fields per struct (the fields()
// functions below), so writer and reader cannot drift apart. No dependencies,
// no exceptions. Offsets and sizes of buffers are in bytes; extents, strides
// and counts are in elements unless a comment says otherwise.
//
// Conventions: the mesh is ordered slowest axis first and a rank is the
// row-major index over it. Strings are interned: a `StringId` indexes
// Program::strings, and id 0 is always the empty string.
#ifndef CLEAVE_PROGRAM_H
#define CLEAVE_PROGRAM_H

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace cleave::program {

inline constexpr uint32_t formatVersion = 1;

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
  Transient,  // undefined at the start of every action
};

// Memory of one rank. Arena 0 is "state" (persistent), arena 1 "transient".
struct Arena {
  std::string name;
  Lifespan lifespan = Lifespan::Transient;
  int64_t size = 0; // bytes
};

// An address in a rank's memory: arena + offset + sum(axisCoef[i] *
// axis_index[i]). axisCoef is empty or has one entry per mesh axis.
struct BufferRef {
  int32_t arena = -1; // -1: absent (an optional operand that is not there)
  int64_t offset = 0;
  std::vector<int64_t> axisCoef;

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
};

// A compiled kernel, found in kernels.so by its symbol.
struct Kernel {
  std::string symbol;
  int32_t numArgs = 0;
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

// C = activation(alpha * A B + bias [+ C])
// A is [m, k], B [k, n], C [m, n], per batch element. `bias` has n contiguous
// elements. `preActivation`, if present, receives the activation's operand
// and has C's strides. dtype f32 or f64; all operands have it.
struct Gemm {
  DType dtype = DType::F32;
  std::vector<int64_t> batch; // empty: one matrix
  int64_t m = 0, n = 0, k = 0;
  MatrixRef a, b, c;
  double alpha = 1.0;
  bool accumulate = false;
  BufferRef bias;
  Activation activation = Activation::None;
  BufferRef preActivation;
  BufferRef workspace; // gemmWorkspace() bytes (cleave/workspace.h)
  int64_t workspaceSize = 0;
};

// Strides of [batch, position, kv head, group, feature]; the group stride of
// k, v, dk, dv is ignored, as is the feature stride of lse.
struct AttentionRef {
  BufferRef buffer;
  std::array<int64_t, 5> strides{};
};

enum class MaskKind : uint8_t {
  None,
  Boolean,  // u8, 0 hides
  Additive, // of the attention's dtype, added to the scaled score
};

// Attention over [b, qLen, n, g, d] queries and [b, kLen, n, d] keys. Query
// head h is group h % g of kv head h / g (so g = 1 is multi-head attention).
//   s = scale * q k^T + mask; o = softmax(s) v; lse = log sum exp s.
// Causal: key j is visible to query i iff kpos(j) <= qpos(i), where kpos(j) =
// keyPositions[j], else keyOffset + j, and qpos(i) = queryPositions[i], else
// queryOffset + i. A row without a visible key gives o = 0, lse = -inf and
// zero gradients. The mask's strides are those of [b, query, n, g, key]; 0
// broadcasts. Positions are i64 with strides [b, position]. Forward reads
// q, k, v and writes o, lse; backward reads q, k, v, o, dO, lse and writes
// dq, dk, dv. lse has the attention's dtype.
struct Attention {
  bool backward = false;
  DType dtype = DType::F32;
  int64_t b = 0, qLen = 0, kLen = 0, n = 0, g = 1, d = 0, dv = 0;
  AttentionRef q, k, v, o, lse, dO, dq, dk, dV;
  double scale = 1.0;
  bool causal = false;
  int64_t queryOffset = 0, keyOffset = 0;
  MaskKind mask = MaskKind::None;
  AttentionRef maskRef;
  BufferRef queryPositions, keyPositions;
  std::array<int64_t, 2> queryPositionStrides{}, keyPositionStrides{};
  BufferRef workspace; // attentionWorkspace() bytes (cleave/workspace.h)
  int64_t workspaceSize = 0;
};

enum class CollectiveKind : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Permute,
  Broadcast,
};
inline constexpr CollectiveKind lastCollectiveKind = CollectiveKind::Broadcast;

// One buffer of a collective; N is the group's size. Elements of src and dst:
//   AllReduce, Permute, Broadcast: [count]; AllReduce, Broadcast: dst may be
//   src AllGather:     src [outer, inner] -> dst [outer, N, inner]
//   ReduceScatter: src [outer, N, inner] -> dst [outer, inner]
//   AllToAll:      src [outer, N, inner] -> dst [dstOuter, N, dstInner], block
//                  p of src goes to member p, block p of dst comes from it
// with count = outer * inner = dstOuter * dstInner. Other than above, src and
// dst do not overlap (AllGather: src may be its own block of dst when
// outer = 1; ReduceScatter: dst its own block of src when outer = 1).
struct Transfer {
  BufferRef src, dst;
  int64_t count = 0;
  int64_t outer = 1, inner = 0;
  int64_t dstOuter = 1, dstInner = 0;
};

// A collective over the ranks that agree on all mesh axes outside `group`,
// its members ordered row-major over `group` (first entry slowest). With
// `token` >= 0 it only starts, and a Wait with this token ends it; buffers
// are not touched in between. Permute: member i receives from
// sources[i] (-1: zeros). Broadcast: from member `root`.
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

struct Command {
  std::variant<Launch, Gemm, Attention, Collective, Wait, Copy, Fill> op;
  StringId source = 0; // what the user knows this command by
  int64_t flops = 0;
};

// Where a planned value lives, and from which command to which, inclusive.
// Optional; the poison mode fills a range with NaNs when it is not live.
struct Lifetime {
  StringId name = 0;
  int32_t arena = 0;
  int64_t offset = 0, size = 0;
  int32_t first = 0, last = 0;
};

// "loss_grad", "update", "init_state", "forward", ... for one class of ranks.
struct Action {
  std::string name;
  uint32_t rankClass = 0;
  std::vector<Command> commands;
  std::vector<Lifetime> lifetimes;
};

struct Program {
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

// The fields of each struct, in the order of the file.
template <class A> void fields(A &a, MeshAxis &x) { a(x.name, x.size, x.link); }
template <class A> void fields(A &a, SubAxis &x) { a(x.axis, x.pre, x.size); }
template <class A> void fields(A &a, Arena &x) {
  a(x.name, x.lifespan, x.size);
}
template <class A> void fields(A &a, BufferRef &x) {
  a(x.arena, x.offset, x.axisCoef);
}
template <class A> void fields(A &a, Boundary &x) {
  a(x.name, x.onnxName, x.tie, x.role, x.of, x.dtype, x.globalShape,
    x.viewShape, x.viewPerm, x.sharding, x.localShape, x.partial, x.partialOp,
    x.buffer);
}
template <class A> void fields(A &a, Kernel &x) { a(x.symbol, x.numArgs); }
template <class A> void fields(A &a, Launch &x) {
  a(x.kernel, x.args, x.extent, x.grain);
}
template <class A> void fields(A &a, MatrixRef &x) {
  a(x.buffer, x.batchStrides, x.rowStride, x.colStride);
}
template <class A> void fields(A &a, Gemm &x) {
  a(x.dtype, x.batch, x.m, x.n, x.k, x.a, x.b, x.c, x.alpha, x.accumulate,
    x.bias, x.activation, x.preActivation, x.workspace, x.workspaceSize);
}
template <class A> void fields(A &a, AttentionRef &x) {
  a(x.buffer, x.strides);
}
template <class A> void fields(A &a, Attention &x) {
  a(x.backward, x.dtype, x.b, x.qLen, x.kLen, x.n, x.g, x.d, x.dv, x.q, x.k,
    x.v, x.o, x.lse, x.dO, x.dq, x.dk, x.dV, x.scale, x.causal, x.queryOffset,
    x.keyOffset, x.mask, x.maskRef, x.queryPositions, x.keyPositions,
    x.queryPositionStrides, x.keyPositionStrides, x.workspace, x.workspaceSize);
}
template <class A> void fields(A &a, Transfer &x) {
  a(x.src, x.dst, x.count, x.outer, x.inner, x.dstOuter, x.dstInner);
}
template <class A> void fields(A &a, Collective &x) {
  a(x.kind, x.reduce, x.dtype, x.group, x.parts, x.purpose, x.token, x.sources,
    x.root);
}
template <class A> void fields(A &a, Wait &x) { a(x.token); }
template <class A> void fields(A &a, Copy &x) {
  a(x.src, x.dst, x.elementSize, x.shape, x.srcStrides, x.dstStrides);
}
template <class A> void fields(A &a, Fill &x) {
  a(x.dst, x.elementSize, x.count, x.pattern);
}
template <class A> void fields(A &a, Command &x) { a(x.op, x.source, x.flops); }
template <class A> void fields(A &a, Lifetime &x) {
  a(x.name, x.arena, x.offset, x.size, x.first, x.last);
}
template <class A> void fields(A &a, Action &x) {
  a(x.name, x.rankClass, x.commands, x.lifetimes);
}
template <class A> void fields(A &a, Program &x) {
  a(x.strings, x.mesh, x.rankClass, x.arenas, x.kernels, x.boundary, x.actions,
    x.threadsPerRank, x.meta);
}

// The largest enumerator of each enum in the file, so that a damaged byte is
// found while reading.
constexpr uint8_t last(DType) { return uint8_t(lastDType); }
constexpr uint8_t last(Lifespan) { return uint8_t(Lifespan::Transient); }
constexpr uint8_t last(ReduceOp) { return uint8_t(ReduceOp::Min); }
constexpr uint8_t last(Activation) { return uint8_t(Activation::Silu); }
constexpr uint8_t last(MaskKind) { return uint8_t(MaskKind::Additive); }
constexpr uint8_t last(CollectiveKind) { return uint8_t(lastCollectiveKind); }

// Little-endian integers of fixed width; a vector or string is a u64 length
// and its elements; a variant is a u8 index and the alternative.
class Writer {
public:
  template <class... Ts> void operator()(Ts &...xs) { (value(xs), ...); }
  std::string take() { return std::move(bytes); }

private:
  template <class T> void value(T &x) {
    if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
      bytes.push_back(static_cast<char>(x));
    } else if constexpr (std::is_floating_point_v<T>) {
      uint64_t bits;
      static_assert(sizeof(T) == sizeof(bits));
      std::memcpy(&bits, &x, sizeof(bits));
      value(bits);
    } else if constexpr (std::is_integral_v<T>) {
      auto bits = static_cast<std::make_unsigned_t<T>>(x);
      for (size_t i = 0; i < sizeof(T); ++i)
        bytes.push_back(static_cast<char>(uint64_t(bits) >> (8 * i)));
    } else {
      fields(*this, x);
    }
  }
  void value(std::string &x) {
    length(x.size());
    bytes += x;
  }
  template <class T> void value(std::vector<T> &xs) {
    length(xs.size());
    for (T &x : xs)
      value(x);
  }
  template <class T, size_t N> void value(std::array<T, N> &xs) {
    for (T &x : xs)
      value(x);
  }
  template <class S, class T> void value(std::pair<S, T> &x) {
    value(x.first);
    value(x.second);
  }
  template <class... Ts> void value(std::variant<Ts...> &x) {
    bytes.push_back(static_cast<char>(x.index()));
    std::visit([&](auto &alternative) { value(alternative); }, x);
  }
  void length(uint64_t n) { value(n); }

  std::string bytes;
};

// After a failure every further read gives zeros, and ok() is false.
class Reader {
public:
  explicit Reader(std::string_view bytes) : bytes(bytes) {}
  template <class... Ts> void operator()(Ts &...xs) { (value(xs), ...); }
  bool ok() const { return good; }
  size_t position() const { return at; }
  bool atEnd() const { return at == bytes.size(); }

private:
  uint64_t integer(size_t width) {
    if (!good || bytes.size() - at < width) {
      good = false;
      return 0;
    }
    uint64_t bits = 0;
    for (size_t i = 0; i < width; ++i)
      bits |= uint64_t(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
    at += width;
    return bits;
  }
  template <class T> void value(T &x) {
    if constexpr (std::is_enum_v<T>) {
      uint64_t bits = integer(1);
      if (bits > last(T{}))
        good = false;
      x = good ? static_cast<T>(bits) : T{};
    } else if constexpr (std::is_same_v<T, bool>) {
      uint64_t bits = integer(1);
      if (bits > 1)
        good = false;
      x = good && bits == 1;
    } else if constexpr (std::is_floating_point_v<T>) {
      uint64_t bits = integer(8);
      std::memcpy(&x, &bits, sizeof(bits));
    } else if constexpr (std::is_integral_v<T>) {
      x = static_cast<T>(integer(sizeof(T)));
    } else {
      fields(*this, x);
    }
  }
  // Every element takes at least a byte, so a length beyond what is left is
  // damage; checking it first keeps a bad file from exhausting memory.
  uint64_t length() {
    uint64_t n = integer(8);
    if (n > bytes.size() - at)
      good = false;
    return good ? n : 0;
  }
  void value(std::string &x) {
    uint64_t n = length();
    x.assign(bytes.substr(at, n));
    at += n;
  }
  template <class T> void value(std::vector<T> &xs) {
    uint64_t n = length();
    xs.clear();
    for (uint64_t i = 0; i < n && good; ++i)
      value(xs.emplace_back());
  }
  template <class T, size_t N> void value(std::array<T, N> &xs) {
    for (T &x : xs)
      value(x);
  }
  template <class S, class T> void value(std::pair<S, T> &x) {
    value(x.first);
    value(x.second);
  }
  template <size_t I = 0, class... Ts>
  void alternative(std::variant<Ts...> &x, size_t index) {
    if constexpr (I < sizeof...(Ts)) {
      if (I == index)
        return value(x.template emplace<I>());
      return alternative<I + 1>(x, index);
    } else {
      good = false;
    }
  }
  template <class... Ts> void value(std::variant<Ts...> &x) {
    alternative(x, integer(1));
  }

  std::string_view bytes;
  size_t at = 0;
  bool good = true;
};

inline constexpr std::string_view formatMagic = "CLEAVEPR";

// Equal programs give equal bytes.
inline std::string serialize(const Program &program) {
  Writer writer;
  std::string magic(formatMagic);
  uint32_t version = formatVersion;
  writer(magic, version, const_cast<Program &>(program));
  return writer.take();
}

// False, with a message, when the bytes are not a program of this version.
inline bool deserialize(std::string_view bytes, Program &program,
                        std::string &error) {
  Reader reader(bytes);
  std::string magic;
  uint32_t version = 0;
  reader(magic);
  if (!reader.ok() || magic != formatMagic) {
    error = "not a cleave program (wrong magic)";
    return false;
  }
  reader(version);
  if (version != formatVersion) {
    error = "program format version " + std::to_string(version) +
            ", expected " + std::to_string(formatVersion) +
            "; compile the model again";
    return false;
  }
  program = Program();
  reader(program);
  if (!reader.ok()) {
    error = "damaged or truncated program at byte " +
            std::to_string(reader.position()) + " of " +
            std::to_string(bytes.size());
    return false;
  }
  if (!reader.atEnd()) {
    error = std::to_string(bytes.size() - reader.position()) +
            " bytes after the end of the program";
    return false;
  }
  return true;
}

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_H
