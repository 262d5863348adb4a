// Enqueues the copies and reductions of collectives on a device.

#include "device_moves.h"

#include "span.h"

#include <algorithm>
#include <numeric>

using namespace cleave;
using namespace cleave::cuda;

void Transfers::begin(const CollectiveCall &call) { current = &call; }

void Transfers::note(const std::vector<Access> &accesses) {
  if (!driver().note)
    return;
  std::vector<cleave_access> all;
  for (const Access &access : accesses)
    all.push_back({access.at, access.bytes, access.written});
  cleave_note note{};
  note.rank = current->members[current->self];
  note.action = "";
  note.source = current->name.c_str();
  note.kind = nameOf(current->kind);
  note.command = -1;
  note.accesses = all.data();
  note.num_accesses = std::ssize(all);
  driver().note(stream.get(), &note);
}

void Transfers::copy(char *dst, const char *src, int64_t bytes) {
  if (bytes == 0 || dst == src)
    return;
  check(driver().cuMemcpyDtoDAsync(address(dst), address(src), bytes,
                                   stream.get()),
        describe(*current));
}

void Transfers::zero(char *dst, int64_t bytes) {
  if (bytes)
    check(driver().cuMemsetD8Async(address(dst), 0, bytes, stream.get()),
          describe(*current));
}

// Adds to `accesses` the byte ranges that a strided copy reads or writes: one
// range for each row if there are few rows, else a single range from the first
// to the last byte.
static void addAccesses(std::vector<Access> &accesses, const char *at,
                        const StridedCopy &copy,
                        const std::vector<int64_t> &strides, bool written) {
  constexpr int64_t mostRows = 64;
  std::vector<int64_t> dims = copy.dims;
  int64_t row = copy.size, rows = 1;
  while (!dims.empty() &&
         (dims.back() == 1 || strides[dims.size() - 1] == row)) {
    row *= dims.back();
    dims.pop_back();
  }
  for (int64_t dim : dims)
    rows *= dim;
  if (rows > mostRows) {
    accesses.push_back(
        {at, spanOf(copy.dims, strides, 1) + copy.size - 1, written});
    return;
  }
  for (int64_t number = 0; number < rows; ++number) {
    int64_t rest = number, offset = 0;
    for (size_t i = dims.size(); i-- > 0; rest /= dims[i])
      offset += rest % dims[i] * strides[i];
    accesses.push_back({at + offset, row, written});
  }
}

void Transfers::strided(StridedCopy copy) {
  for (int64_t dim : copy.dims)
    if (dim == 0)
      return;
  if (driver().note) {
    std::vector<Access> accesses;
    addAccesses(accesses, copy.src, copy, copy.srcStrides, false);
    addAccesses(accesses, copy.dst, copy, copy.dstStrides, true);
    note(accesses);
  }
  makeCopy(kernels, copy)(stream.get());
}

void Transfers::copy2d(char *dst, int64_t dstStride, const char *src,
                       int64_t srcStride, int64_t rows, int64_t bytes) {
  if (rows == 1 || (dstStride == bytes && srcStride == bytes)) {
    copy(dst, src, rows * bytes);
    return;
  }
  int64_t size = std::gcd(std::gcd(dstStride, srcStride), bytes);
  size = std::gcd(size, std::gcd(reinterpret_cast<int64_t>(src),
                                 reinterpret_cast<int64_t>(dst)));
  size = std::gcd(size, int64_t(16));
  if (dst != src)
    strided({dst,
             src,
             size,
             {rows, bytes / size},
             {dstStride, size},
             {srcStride, size}});
}

void Transfers::retile(const Runs &dst, const ConstRuns &src, int64_t count,
                       int64_t elementSize) {
  if (count == 0)
    return;
  int64_t shorter = std::min(dst.run, src.run);
  int64_t longer = std::max(dst.run, src.run), s = elementSize;
  if (longer % shorter == 0) {
    // The elements as an array [longer runs, shorter runs in each, elements].
    auto strides = [&](int64_t run, int64_t stride) {
      return run == longer ? std::vector<int64_t>{stride * s, shorter * s, s}
                           : std::vector<int64_t>{longer / shorter * stride * s,
                                                  stride * s, s};
    };
    strided({dst.at,
             src.at,
             s,
             {count / longer, longer / shorter, shorter},
             strides(dst.run, dst.stride),
             strides(src.run, src.stride)});
    return;
  }
  for (int64_t at = 0; at < count;) {
    int64_t dstColumn = at % dst.run, srcColumn = at % src.run;
    int64_t run =
        std::min({dst.run - dstColumn, src.run - srcColumn, count - at});
    copy(dst.at + (at / dst.run * dst.stride + dstColumn) * s,
         src.at + (at / src.run * src.stride + srcColumn) * s, run * s);
    at += run;
  }
}

void Transfers::reduce(Reduction &reduction, const CollectiveCall &call) {
  if (reduction.rows == 0 || reduction.count == 0)
    return;
  reduction.dtype = call.dtype;
  reduction.op = call.reduce;
  int64_t row = reduction.count * program::sizeOf(call.dtype);
  std::vector<Access> accesses{
      {reduction.dst, (reduction.rows - 1) * reduction.dstStride + row, true}};
  for (const char *src : reduction.srcs)
    accesses.push_back(
        {src, (reduction.rows - 1) * reduction.srcStride + row, false});
  note(accesses);
  cuda::reduce(kernels, reduction, stream.get());
}

void Transfers::box(const program::ExchangePiece &piece, char *dst,
                    const std::vector<int64_t> &dstStrides,
                    const std::vector<const char *> &from,
                    const std::vector<int64_t> &srcStrides,
                    const CollectiveCall &call) {
  if (piece.count() == 0)
    return;
  int64_t size = program::sizeOf(call.dtype);
  size_t rank = piece.sizes.size();
  int64_t srcAt = 0, dstAt = 0;
  std::vector<int64_t> dims = piece.sizes, dstBytes(rank), srcBytes(rank);
  for (size_t i = 0; i < rank; ++i) {
    srcAt += piece.srcAt[i] * srcStrides[i] * size;
    dstAt += piece.dstAt[i] * dstStrides[i] * size;
    dstBytes[i] = dstStrides[i] * size;
    srcBytes[i] = srcStrides[i] * size;
  }
  if (from.size() == 1) {
    strided({dst + dstAt, from[0] + srcAt, size, dims, dstBytes, srcBytes});
    return;
  }
  // A box with more than two dimensions is copied as a sequence of matrices. A
  // box with fewer dimensions gets outer dimensions of size 1.
  while (dims.size() < 2) {
    dims.insert(dims.begin(), 1);
    dstBytes.insert(dstBytes.begin(), 0);
    srcBytes.insert(srcBytes.begin(), 0);
  }
  int64_t columns = dims.back(), rows = dims[dims.size() - 2];
  if (dims.size() >= 2 && rank == 0)
    columns = rows = 1;
  int64_t matrices = piece.count() / (rows * columns);
  for (int64_t number = 0; number < matrices; ++number) {
    int64_t src = srcAt, to = dstAt, rest = number;
    for (size_t i = dims.size() - 2; i-- > 0; rest /= dims[i]) {
      src += rest % dims[i] * srcBytes[i];
      to += rest % dims[i] * dstBytes[i];
    }
    if (from.empty()) {
      for (int64_t row = 0; row < rows; ++row)
        zero(dst + to + row * dstBytes[dims.size() - 2], columns * size);
      continue;
    }
    Reduction all;
    all.dst = dst + to;
    for (const char *at : from)
      all.srcs.push_back(at + src);
    all.rows = rows;
    all.count = columns;
    all.dstStride = dstBytes[dims.size() - 2];
    all.srcStride = srcBytes[dims.size() - 2];
    reduce(all, call);
  }
}

std::vector<int64_t> Transfers::read(const int64_t *at, int64_t count) {
  std::vector<int64_t> numbers(count);
  check(driver().cuMemcpyDtoHAsync(numbers.data(), address(at), 8 * count,
                                   stream.get()),
        describe(*current));
  check(driver().cuStreamSynchronize(stream.get()), describe(*current));
  return numbers;
}
