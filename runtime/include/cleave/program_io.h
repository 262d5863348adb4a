// Reads and writes `program.bin`.
//
// The compiler calls serialize(), the runtime deserialize(). Both use the same
// list of fields of each struct (the fields() functions), so that writer and
// reader cannot disagree.

#ifndef CLEAVE_PROGRAM_IO_H
#define CLEAVE_PROGRAM_IO_H

#include "cleave/program.h"

#include <array>
#include <cstring>
#include <type_traits>

namespace cleave::program {

inline constexpr uint32_t formatVersion = 14;

// List the fields of each struct, in their order in the file: fields(a, x)
// applies `a` to each field of x.
template <class A> constexpr auto fields(A &a, MeshAxis &x) {
  return a(x.name, x.size, x.link, x.within);
}
template <class A> constexpr auto fields(A &a, SubAxis &x) {
  return a(x.axis, x.pre, x.size);
}
template <class A> constexpr auto fields(A &a, AxisTerm &x) {
  return a(x.on, x.coef);
}
template <class A> constexpr auto fields(A &a, Arena &x) {
  return a(x.name, x.lifespan, x.size, x.rankClass);
}
template <class A> constexpr auto fields(A &a, BufferRef &x) {
  return a(x.arena, x.offset, x.terms);
}
template <class A> constexpr auto fields(A &a, Boundary &x) {
  return a(x.name, x.onnxName, x.tie, x.role, x.of, x.dtype, x.globalShape,
           x.viewShape, x.viewPerm, x.sharding, x.localShape, x.partial,
           x.partialOp, x.buffer, x.rankClass);
}
template <class A> constexpr auto fields(A &a, KernelArg &x) {
  return a(x.bytes, x.written);
}
template <class A> constexpr auto fields(A &a, Kernel &x) {
  return a(x.symbol, x.numArgs, x.args, x.grid, x.block);
}
template <class A> constexpr auto fields(A &a, Launch &x) {
  return a(x.kernel, x.args, x.extent, x.grain);
}
template <class A> constexpr auto fields(A &a, MatrixRef &x) {
  return a(x.buffer, x.batchStrides, x.rowStride, x.colStride);
}
template <class A> constexpr auto fields(A &a, Gemm &x) {
  return a(x.dtype, x.wideResult, x.batch, x.m, x.n, x.k, x.a, x.b, x.c,
           x.alpha, x.accumulate, x.bias, x.activation, x.preActivation,
           x.derivativeAt, x.sums, x.sumsOf, x.workspace, x.workspaceSize);
}
template <class A> constexpr auto fields(A &a, AttentionRef &x) {
  return a(x.buffer, x.strides);
}
template <class A> constexpr auto fields(A &a, IndexRef &x) {
  return a(x.buffer, x.strides);
}
template <class A> constexpr auto fields(A &a, Attention &x) {
  return a(x.backward, x.dtype, x.b, x.qLen, x.kLen, x.n, x.g, x.d, x.dv, x.q,
           x.k, x.v, x.o, x.lse, x.dO, x.dq, x.dk, x.dV, x.scale, x.softcap,
           x.causal, x.window, x.queryOffset, x.keyOffset, x.bias,
           x.queryPositions, x.keyPositions, x.querySegments, x.keySegments,
           x.keyMask, x.dropout, x.dropoutKeys, x.queryIndices, x.keyIndices,
           x.workspace, x.workspaceSize);
}
template <class A> constexpr auto fields(A &a, RowsRef &x) {
  return a(x.buffer, x.strides, x.column);
}
template <class A> constexpr auto fields(A &a, GroupedGemm &x) {
  return a(x.outer, x.dtype, x.wideResult, x.rows, x.e, x.k, x.n, x.a, x.c,
           x.ids, x.w, x.workspace, x.workspaceSize);
}
template <class A> constexpr auto fields(A &a, PlanRows &x) {
  return a(x.rows, x.rounds, x.ranks, x.places, x.tile, x.ids, x.sources,
           x.placeOf, x.sent, x.counts);
}
template <class A> constexpr auto fields(A &a, SortRows &x) {
  return a(x.rows, x.groups, x.ids, x.order, x.placeOf, x.sorted);
}
template <class A> constexpr auto fields(A &a, PositionInExpert &x) {
  return a(x.b, x.s, x.k, x.e, x.rows, x.perSample, x.ids, x.positions, x.loads,
           x.samples, x.result, x.scratch);
}
template <class A> constexpr auto fields(A &a, Convolution &x) {
  return a(x.kind, x.dtype, x.narrow, x.samples, x.groups, x.channels,
           x.features, x.input, x.kernel, x.output, x.strides, x.dilations,
           x.low, x.high, x.x, x.w, x.y, x.workspace, x.workspaceSize);
}
template <class A> constexpr auto fields(A &a, Transfer &x) {
  return a(x.src, x.dst, x.count, x.outer, x.inner, x.dstOuter, x.dstInner);
}
template <class A> constexpr auto fields(A &a, Exchange &x) {
  return a(x.shape, x.from, x.to, x.partial, x.toPartial, x.rounds);
}
template <class A> constexpr auto fields(A &a, Collective &x) {
  return a(x.kind, x.reduce, x.dtype, x.group, x.parts, x.purpose, x.token,
           x.sources, x.root, x.exchanges, x.positions, x.sent, x.received,
           x.expected, x.by, x.home);
}
template <class A> constexpr auto fields(A &a, Wait &x) { return a(x.token); }
template <class A> constexpr auto fields(A &a, Copy &x) {
  return a(x.src, x.dst, x.elementSize, x.shape, x.srcStrides, x.dstStrides);
}
template <class A> constexpr auto fields(A &a, Fill &x) {
  return a(x.dst, x.elementSize, x.count, x.pattern);
}
template <class A> constexpr auto fields(A &a, Rebase &x) {
  return a(x.arena, x.offset);
}
template <class A> constexpr auto fields(A &a, Call &x) {
  return a(x.action, x.rebase, x.label);
}
template <class A> constexpr auto fields(A &a, Repeat &x) {
  return a(x.action, x.trips);
}
template <class A> constexpr auto fields(A &a, Command &x) {
  return a(x.op, x.source, x.flops, x.when);
}
template <class A> constexpr auto fields(A &a, Lifetime &x) {
  return a(x.name, x.arena, x.offset, x.size, x.first, x.last);
}
template <class A> constexpr auto fields(A &a, Action &x) {
  return a(x.name, x.rankClass, x.commands, x.lifetimes);
}
template <class A> constexpr auto fields(A &a, Program &x) {
  return a(x.device, x.tf32, x.strings, x.mesh, x.rankClass, x.arenas,
           x.kernels, x.boundary, x.actions, x.threadsPerRank, x.meta);
}

// Returns the number of fields of a struct: the largest number of initializers
// in its aggregate initialization that compiles.
struct AnyField {
  template <class T> constexpr operator T() const;
};
template <class T, class... Fields> constexpr size_t numFields() {
  if constexpr (requires { T{Fields()..., AnyField()}; })
    return numFields<T, Fields..., AnyField>();
  else
    return sizeof...(Fields);
}

// Checks at compile time that `fields` lists all fields of a struct and of
// nested structs. A field that is not listed would be lost in the file.
template <class T> struct ListsAll {
  template <class... Fields> struct Listed {
    static constexpr size_t count = sizeof...(Fields);
    static constexpr bool inside = (ListsAll<Fields>::value && ...);
  };
  struct Collect {
    template <class... Fields> Listed<Fields...> operator()(Fields &...);
  };
  static constexpr bool check() {
    if constexpr (std::is_class_v<T>) {
      using Found =
          decltype(fields(std::declval<Collect &>(), std::declval<T &>()));
      static_assert(Found::count == numFields<T>(),
                    "`fields` does not list all fields of the struct");
      return Found::inside;
    }
    return true;
  }
  static constexpr bool value = check();
};
template <> struct ListsAll<std::string> : std::true_type {};
template <class T> struct ListsAll<std::vector<T>> : ListsAll<T> {};
template <class T, size_t N> struct ListsAll<std::array<T, N>> : ListsAll<T> {};
template <class S, class T>
struct ListsAll<std::pair<S, T>> : std::conjunction<ListsAll<S>, ListsAll<T>> {
};
template <class... T>
struct ListsAll<std::variant<T...>> : std::conjunction<ListsAll<T>...> {};
static_assert(ListsAll<Program>::value);

// The largest enumerator of each enum that the file contains. A larger value in
// the file means damage, and is refused.
constexpr uint8_t last(Device) { return uint8_t(lastDevice); }
constexpr uint8_t last(DType) { return uint8_t(lastDType); }
constexpr uint8_t last(Lifespan) { return uint8_t(lastLifespan); }
constexpr uint8_t last(ReduceOp) { return uint8_t(ReduceOp::Min); }
constexpr uint8_t last(Activation) { return uint8_t(Activation::Silu); }
constexpr uint8_t last(GemmOperand) { return uint8_t(GemmOperand::B); }
constexpr uint8_t last(ConvolutionKind) { return uint8_t(lastConvolutionKind); }
constexpr uint8_t last(CollectiveKind) { return uint8_t(lastCollectiveKind); }

// Writes fields to bytes: integers are little endian, of fixed width; a vector
// or string is a u64 length and its elements; a variant is a u8 index and the
// alternative.
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

// Reads the fields of a program from bytes. After the first failure all reads
// return zeros, and ok() is false.
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
  // Every element takes at least one byte, so a length beyond the remaining
  // bytes means damage. Checking this first keeps a damaged file from
  // exhausting memory.
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

// Returns the bytes of program.bin. Equal programs give equal bytes.
inline std::string serialize(const Program &program) {
  Writer writer;
  std::string magic(formatMagic);
  uint32_t version = formatVersion;
  writer(magic, version, const_cast<Program &>(program));
  return writer.take();
}

// Reads a program. Returns false, with a message in `error`, if the bytes are
// not a program of this version.
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

#endif // CLEAVE_PROGRAM_IO_H
