// Describes which memory each command reads and writes. All code that needs to
// know this calls the functions of this file.
//
// accesses(kernels, command, visit) calls visit(operand) for every address of a
// command: first what is read, then what is written, then scratch memory, last
// the command's condition. The arguments of a kernel and the buffers of a
// collective are visited in the order of their lists. Addresses that the
// command does not use, such as those of missing optional operands, are
// visited, too: see Operand::isUsed(). A Wait has no addresses, because those
// of its asynchronous start count. A Call and a Repeat have none either,
// because the commands that they run have their own.
//
// The users of this file:
// - A rank of the runtime (rank.h) resolves the used addresses, checks that
//   each operand is within its arena, and records accesses for a device.
// - Traces (traffic.cpp) add up the bytes of operands of the kind Data.
// - The proofs about asynchronous transfers and about slots, that is, the equal
//   parts of an arena, one for each microbatch in flight
//   (lib/PipelineSchedule/Touches.h), compare the ranges that are read and
//   written.
// - Injected faults (lib/Check) find the commands that read the data of a
//   transfer, and move all addresses of a command to another slot.
//
// Compiling this file checks that no operand is forgotten: a command
// without operands() does not compile, nor does a command with an address in
// its fields that operands() does not visit. A test compares the accesses with
// the operations of the rt dialect (test/unit/Target/AccessesTest.cpp).
#ifndef CLEAVE_ACCESSES_H
#define CLEAVE_ACCESSES_H

#include "cleave/program_io.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace cleave::program {

enum class OperandKind : uint8_t {
  Data,      // the tensors that the command computes with
  Guide,     // auxiliary: masks, positions, dropout keys, counts of rows
  Scratch,   // old contents are not read, and new contents are not kept
  Sent,      // the source buffer of a collective
  Received,  // the destination buffer of a collective
  Condition, // the flag that says whether the command runs
};

// An address of a command, and how the command accesses it. The command touches
// only a rectangular range of elements that begins at the address: `dims`
// elements of `elementSize` bytes each. Strides are in elements, one for each
// of `dims`; without strides the range is dense, the last dimension fastest. A
// dimension along which the operand is broadcast may be left out of dims and
// strides, or have stride 0.
//
// Sizes are taken from the program unchecked. Those of a damaged program may
// have any value, so code that reads such programs must check products for
// overflow (runtime/src/operands.h).
template <class Ref> // BufferRef, const where the command is
struct Operand {
  Ref &buffer;
  int64_t elementSize = 1;
  std::vector<int64_t> dims, strides;
  OperandKind kind = OperandKind::Data;
  // Both flags are set if the operand is updated in place (accumulation), or if
  // a kernel does not declare its accesses. Neither is set if the command
  // ignores the operand, such as the cotangents of attention in the forward
  // pass.
  bool isRead = false, isWritten = false;
  bool isOptional = false;

  constexpr bool isUsed() const {
    return (isRead || isWritten) && (!isOptional || buffer.present());
  }
  constexpr int64_t elements() const {
    int64_t count = 1;
    for (int64_t size : dims)
      count *= size;
    return count;
  }
  // The number of bytes from the first element to the end of the last one, gaps
  // between rows included.
  constexpr int64_t spannedBytes() const {
    int64_t count = elements();
    if (count == 0 || strides.size() != dims.size())
      return count * elementSize;
    int64_t last = 0;
    for (size_t i = 0; i < dims.size(); ++i)
      last += (dims[i] - 1) * std::max<int64_t>(strides[i], 0);
    return (last + 1) * elementSize;
  }

  // The functions below are only for the functions operands().
  constexpr Operand reads(bool is = true) && {
    isRead = is;
    return std::move(*this);
  }
  constexpr Operand writes(bool is = true) && {
    isWritten = is;
    return std::move(*this);
  }
  constexpr Operand ifPresent() && {
    isOptional = true;
    return std::move(*this);
  }
  constexpr Operand as(OperandKind of) && {
    kind = of;
    return std::move(*this);
  }
};

template <class Ref>
constexpr Operand<Ref> dense(Ref &buffer, int64_t elementSize,
                             std::vector<int64_t> dims) {
  return {buffer, elementSize, std::move(dims), {}};
}

template <class Ref, class Strides>
constexpr Operand<Ref> strided(Ref &buffer, int64_t elementSize,
                               std::vector<int64_t> dims,
                               const Strides &strides) {
  return {buffer,
          elementSize,
          std::move(dims),
          {std::begin(strides), std::end(strides)}};
}

// The workspace that was planned for a library call. The runtime allocates one
// itself if no workspace was planned, or if the planned one is too small.
template <class Op> constexpr auto workspaceOf(Op &x) {
  return dense(x.workspace, 1, {x.workspaceSize})
      .writes()
      .as(OperandKind::Scratch)
      .ifPresent();
}

using Kernels = std::vector<Kernel>;
template <class T, class Op>
concept Is = std::is_same_v<std::remove_const_t<T>, Op>;

//===----------------------------------------------------------------------===//
// operands(kernels, op, visit) for each command
//===----------------------------------------------------------------------===//

// If a kernel does not declare its accesses, their byte ranges are unknown.
template <Is<Launch> T, class Visit>
constexpr void operands(const Kernels &kernels, T &x, Visit &&visit) {
  for (size_t i = 0; i < x.args.size(); ++i) {
    bool isKnown =
        x.kernel < kernels.size() && i < kernels[x.kernel].args.size();
    KernelArg arg = isKnown ? kernels[x.kernel].args[i] : KernelArg();
    visit(dense(x.args[i], 1, {arg.bytes})
              .reads(!isKnown || !arg.written)
              .writes(!isKnown || arg.written));
  }
}

// Returns the operand that consists of all matrices of a batch, stored in
// `buffer` with the strides of `like`. Along a batch dimension with stride 0 (a
// broadcast) every index refers to the same matrix, so this dimension is left
// out.
template <class Ref>
constexpr Operand<Ref> matrices(Ref &buffer, const MatrixRef &like,
                                const std::vector<int64_t> &batch, int64_t rows,
                                int64_t columns, DType type) {
  std::vector<int64_t> dims, strides;
  for (size_t i = 0; i < batch.size(); ++i) {
    int64_t stride = i < like.batchStrides.size() ? like.batchStrides[i] : 0;
    if (stride == 0 && batch[i] > 1)
      continue;
    dims.push_back(batch[i]);
    strides.push_back(stride);
  }
  dims.insert(dims.end(), {rows, columns});
  strides.insert(strides.end(), {like.rowStride, like.colStride});
  return strided(buffer, sizeOf(type), std::move(dims), strides);
}

template <Is<Gemm> T, class Visit>
constexpr void operands(const Kernels &, T &x, Visit &&visit) {
  auto likeC = [&](auto &buffer, DType type) {
    return matrices(buffer, x.c, x.batch, x.m, x.n, type);
  };
  visit(matrices(x.a.buffer, x.a, x.batch, x.m, x.k, x.dtype).reads());
  visit(matrices(x.b.buffer, x.b, x.batch, x.k, x.n, x.dtype).reads());
  visit(dense(x.bias, sizeOf(x.dtype), {x.n}).reads().ifPresent());
  // With a result wider than the operands, a product has neither derivativeAt
  // nor preActivation.
  visit(likeC(x.derivativeAt, x.dtype).reads().ifPresent());
  visit(likeC(x.c.buffer, x.resultType()).reads(x.accumulate).writes());
  visit(likeC(x.preActivation, x.dtype).writes().ifPresent());
  visit(dense(x.sums, sizeOf(x.resultType()), {x.numSums()})
            .writes()
            .ifPresent());
  visit(workspaceOf(x));
}

template <Is<Attention> T, class Visit>
constexpr void operands(const Kernels &, T &x, Visit &&visit) {
  int64_t size = sizeOf(x.dtype);
  int64_t wide = std::max(size, sizeOf(DType::F32)); // lse and bias
  auto queries = [&](auto &ref, int64_t features) {
    return strided(ref.buffer, size, {x.b, x.qLen, x.n, x.g, features},
                   ref.strides);
  };
  auto keys = [&](auto &ref, int64_t features) {
    return strided(ref.buffer, size, {x.b, x.kLen, x.n, 1, features},
                   ref.strides);
  };
  auto index = [&](auto &ref, int64_t length, DType type, bool isRead = true) {
    visit(strided(ref.buffer, sizeOf(type), {x.b, length}, ref.strides)
              .reads(isRead)
              .as(OperandKind::Guide)
              .ifPresent());
  };
  visit(queries(x.q, x.d).reads());
  visit(keys(x.k, x.d).reads());
  visit(keys(x.v, x.dv).reads());
  visit(queries(x.dO, x.dv).reads(x.backward));
  visit(strided(x.bias.buffer, wide, {x.b, x.qLen, x.n, x.g, x.kLen},
                x.bias.strides)
            .reads()
            .as(OperandKind::Guide)
            .ifPresent());
  bool drops = x.dropout != 0;
  visit(strided(x.dropoutKeys.buffer, sizeOf(DType::I64), {x.b, 1, x.n, x.g, 1},
                x.dropoutKeys.strides)
            .reads(drops)
            .as(OperandKind::Guide)
            .ifPresent());
  index(x.queryPositions, x.qLen, DType::I64);
  index(x.keyPositions, x.kLen, DType::I64);
  index(x.querySegments, x.qLen, DType::I64);
  index(x.keySegments, x.kLen, DType::I64);
  index(x.keyMask, x.kLen, DType::U8);
  index(x.queryIndices, x.qLen, DType::I64, drops);
  index(x.keyIndices, x.kLen, DType::I64, drops);
  visit(queries(x.o, x.dv).reads(x.backward).writes(!x.backward));
  visit(strided(x.lse.buffer, wide, {x.b, x.qLen, x.n, x.g, 1}, x.lse.strides)
            .reads(x.backward)
            .writes(!x.backward));
  visit(queries(x.dq, x.d).writes(x.backward));
  visit(keys(x.dk, x.d).writes(x.backward));
  visit(keys(x.dV, x.dv).writes(x.backward));
  visit(workspaceOf(x));
}

template <Is<GroupedGemm> T, class Visit>
constexpr void operands(const Kernels &, T &x, Visit &&visit) {
  auto rows = [&](auto &ref, int64_t width, DType type) {
    std::vector<int64_t> dims = x.rows, strides = ref.strides;
    dims.push_back(width);
    strides.push_back(ref.column);
    return strided(ref.buffer, sizeOf(type), std::move(dims), strides);
  };
  std::vector<int64_t> strides = x.w.batchStrides;
  strides.insert(strides.end(), {x.w.rowStride, x.w.colStride});
  visit(rows(x.a, x.k, x.dtype).reads());
  visit(rows(x.ids, 1, DType::I64).reads());
  visit(rows(x.c, x.n, x.outer ? x.dtype : x.resultType())
            .reads(x.outer)
            .writes(!x.outer));
  visit(strided(x.w.buffer, sizeOf(x.outer ? x.resultType() : x.dtype),
                {x.e, x.k, x.n}, strides)
            .reads(!x.outer)
            .writes(x.outer));
  visit(workspaceOf(x));
}

template <Is<Convolution> T, class Visit>
constexpr void operands(const Kernels &, T &x, Visit &&visit) {
  auto tensor = [&](auto &buffer, std::vector<int64_t> dims,
                    const std::vector<int64_t> &spatial,
                    ConvolutionKind written) {
    dims.insert(dims.end(), spatial.begin(), spatial.end());
    visit(dense(buffer, sizeOf(x.dtype), std::move(dims))
              .reads(x.kind != written)
              .writes(x.kind == written));
  };
  tensor(x.x, {x.samples, x.groups, x.channels}, x.input,
         ConvolutionKind::InputGrad);
  tensor(x.w, {x.groups, x.features, x.channels}, x.kernel,
         ConvolutionKind::FilterGrad);
  tensor(x.y, {x.samples, x.groups, x.features}, x.output,
         ConvolutionKind::Forward);
  visit(workspaceOf(x));
}

template <Is<PlanRows> T, class Visit>
constexpr void operands(const Kernels &, T &x, Visit &&visit) {
  auto numbers = [](auto &buffer, std::vector<int64_t> dims) {
    return dense(buffer, sizeOf(DType::I64), std::move(dims));
  };
  visit(numbers(x.ids, {x.rows}).reads());
  visit(numbers(x.sources, {x.rounds, x.ranks, x.places}).writes());
  visit(numbers(x.placeOf, {x.rows}).writes());
  visit(numbers(x.sent, {x.rounds, x.ranks, x.places}).writes());
  visit(numbers(x.counts, {x.ranks, x.rounds}).writes());
}

template <Is<SortRows> T, class Visit>
constexpr void operands(const Kernels &, T &x, Visit &&visit) {
  auto numbers = [&](auto &buffer) {
    return dense(buffer, sizeOf(DType::I64), {x.rows});
  };
  visit(numbers(x.ids).reads());
  visit(numbers(x.order).writes());
  visit(numbers(x.placeOf).writes());
  visit(numbers(x.sorted).writes());
}

template <Is<PositionInExpert> T, class Visit>
constexpr void operands(const Kernels &, T &x, Visit &&visit) {
  auto numbers = [](auto &buffer, std::vector<int64_t> dims) {
    return dense(buffer, sizeOf(DType::I64), std::move(dims));
  };
  bool adds = x.loads.present();
  visit(numbers(x.ids, {x.b, x.s, x.k}).reads());
  visit(numbers(x.positions, {x.perSample ? x.b : 1, x.s}).reads());
  visit(numbers(x.loads, {x.rows, x.e}).reads().ifPresent());
  visit(numbers(x.samples, {x.b}).reads(adds).as(OperandKind::Guide));
  visit(numbers(x.result, {x.b, x.s, x.k}).writes());
  int64_t scratch = INT64_MAX; // if the sizes would overflow
  if (x.e <= INT64_MAX / 4 && x.s <= INT64_MAX / 4)
    scratch = 2 * x.e + x.s;
  visit(numbers(x.scratch, {scratch}).writes().as(OperandKind::Scratch));
}

template <Is<Copy> T, class Visit>
constexpr void operands(const Kernels &, T &x, Visit &&visit) {
  visit(strided(x.src, x.elementSize, x.shape, x.srcStrides).reads());
  visit(strided(x.dst, x.elementSize, x.shape, x.dstStrides).writes());
}

template <Is<Fill> T, class Visit>
constexpr void operands(const Kernels &, T &x, Visit &&visit) {
  visit(dense(x.dst, x.elementSize, {x.count}).writes());
}

// An asynchronous collective uses its operands until its Wait ends.
template <Is<Collective> T, class Visit>
constexpr void operands(const Kernels &, T &x, Visit &&visit) {
  int64_t size = sizeOf(x.dtype), members = 1;
  for (const SubAxis &sub : x.group)
    members *= sub.size;
  if (!x.positions.empty())
    members = std::ssize(x.positions);
  bool gathers = x.kind == CollectiveKind::AllGather;
  bool scatters = x.kind == CollectiveKind::ReduceScatter;
  bool swaps =
      x.kind == CollectiveKind::AllToAll || x.kind == CollectiveKind::AllToAllV;
  for (auto &part : x.parts) {
    std::vector<int64_t> one = {part.count}, all = {part.count, members};
    visit(dense(part.src, size, scatters || swaps ? all : one)
              .reads()
              .as(OperandKind::Sent));
    if (x.kind == CollectiveKind::Exchange)
      one = {part.dstOuter, part.dstInner};
    visit(dense(part.dst, size, gathers || swaps ? all : one)
              .writes()
              .as(OperandKind::Received));
  }
  for (auto *counts : {&x.sent, &x.received})
    visit(dense(*counts, sizeOf(DType::I64), {members})
              .reads(x.kind == CollectiveKind::AllToAllV)
              .as(OperandKind::Guide));
}

// Returns whether member `self` of the group uses an operand of this kind. In a
// SendRecv the sender (member 0) uses the source and the receiver the
// destination.
constexpr bool isOfMember(const Collective &x, OperandKind kind, int64_t self) {
  if (x.kind != CollectiveKind::SendRecv)
    return true;
  return (kind != OperandKind::Sent || self == 0) &&
         (kind != OperandKind::Received || self == 1);
}

template <Is<Wait> T, class Visit>
constexpr void operands(const Kernels &, T &, Visit &&) {}

template <Is<Call> T, class Visit>
constexpr void operands(const Kernels &, T &, Visit &&) {}

template <Is<Repeat> T, class Visit>
constexpr void operands(const Kernels &, T &, Visit &&) {}

template <Is<Command> T> constexpr auto conditionOf(T &command) {
  return dense(command.when, 1, {1})
      .reads()
      .as(OperandKind::Condition)
      .ifPresent();
}

// The accesses of a command, const or not. `kernels` are the kernels of the
// program, which declare what they do with their arguments; it may be empty if
// only addresses matter.
template <Is<Command> T, class Visit>
constexpr void accesses(const Kernels &kernels, T &command, Visit &&visit) {
  std::visit([&](auto &op) { operands(kernels, op, visit); }, command.op);
  visit(conditionOf(command));
}

//===----------------------------------------------------------------------===//
// Checks that operands() visits all addresses
//===----------------------------------------------------------------------===//

// Collects the addresses among the fields of a command, as fields() lists them.
// If a field is a list of addresses, the list gets one element, so that its
// address is collected, too.
class AddressList {
public:
  template <class... T> constexpr void operator()(T &...x) { (value(x), ...); }
  std::vector<const BufferRef *> found;

private:
  template <class T> constexpr void value(T &x) {
    if constexpr (std::is_class_v<T>)
      fields(*this, x);
  }
  constexpr void value(BufferRef &x) { found.push_back(&x); }
  template <class T> constexpr void value(std::vector<T> &list) {
    list.resize(1);
    value(list[0]);
  }
  template <class T, size_t N> constexpr void value(std::array<T, N> &list) {
    for (T &x : list)
      value(x);
  }
  // Commands inside a command are skipped: each command is checked by itself.
  template <class... T> constexpr void value(std::variant<T...> &) {}
};

template <class Op> constexpr bool visitsAll() {
  Op op{};
  AddressList listed;
  fields(listed, op);
  std::vector<const BufferRef *> visited;
  operands(Kernels(), op, [&](const auto &x) { visited.push_back(&x.buffer); });
  return std::is_permutation(listed.found.begin(), listed.found.end(),
                             visited.begin(), visited.end());
}

template <class Op> struct VisitsAll;
template <class... Ops> struct VisitsAll<std::variant<Ops...>> {
  template <class Op> static constexpr bool check() {
    static_assert(visitsAll<Op>(),
                  "operands() of a command does not visit all its addresses");
    return true;
  }
  static constexpr bool value = (check<Ops>() && ...);
};
static_assert(VisitsAll<decltype(Command::op)>::value);

constexpr bool visitsCondition() {
  Command command{};
  AddressList listed;
  fields(listed, command);
  return listed.found.size() == 1 &&
         listed.found[0] == &conditionOf(command).buffer;
}
static_assert(visitsCondition(),
              "accesses() does not visit all addresses beside a command's op");

} // namespace cleave::program

#endif // CLEAVE_ACCESSES_H
