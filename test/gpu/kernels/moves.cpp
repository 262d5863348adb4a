// Checks copies, fills and reductions.

#include "harness.h"

#include <algorithm>
#include <cstring>

using namespace cleave;
using namespace cleave::gpu;
using program::ReduceOp;

namespace {
enum class Kind { Dense, Strided, Transposing };

// Checks copies of elements of any size over up to five dimensions. The copied
// bytes must be equal.
void checkCopy(Case &one, Kind kind) {
  cuda::StridedCopy copy;
  copy.size = int64_t(1) << one.below(5);
  if (kind == Kind::Strided && one.one(6))
    copy.size = 12;
  int64_t rank = kind == Kind::Dense ? 1 : one.between(2, 5);
  int64_t most = one.isSmall ? 70 : 300;
  for (int64_t i = 0; i < rank; ++i)
    copy.dims.push_back(kind == Kind::Dense ? one.length(most * most)
                        : rank == 2         ? one.length(most)
                        : i < 2             ? one.between(1, most / 4)
                                            : one.between(1, 6));
  int64_t dstCount = 0, srcCount = 0;
  std::vector<int64_t> dst, src;
  if (kind == Kind::Transposing) {
    std::vector<int64_t> turned(rank), order = one.shuffled(rank);
    for (int64_t i = 0; i < rank; ++i)
      turned[i] = copy.dims[order[i]];
    dst = denseStrides(copy.dims, dstCount);
    std::vector<int64_t> strides = denseStrides(turned, srcCount);
    src.resize(rank);
    for (int64_t i = 0; i < rank; ++i)
      src[order[i]] = strides[i];
  } else {
    dst = kind == Kind::Dense ? denseStrides(copy.dims, dstCount)
                              : randomStrides(one, copy.dims, dstCount);
    src = kind == Kind::Dense ? denseStrides(copy.dims, srcCount)
                              : randomStrides(one, copy.dims, srcCount);
    if (kind == Kind::Strided && one.one(4)) // a broadcast
      src[one.below(rank)] = 0;
  }
  // The arrays hold bytes, and the copy may begin at any element of them.
  int64_t dstShift = one.one(3) ? one.below(4) * copy.size : 0,
          srcShift = one.one(3) ? one.below(4) * copy.size : 0;
  one.say("size", copy.size), one.say("dims", copy.dims);
  one.say("to", dst), one.say("from", src);
  one.say("shifts", {dstShift, srcShift});
  Array to(DType::U8, dstCount * copy.size, dstShift),
      from(DType::U8, srcCount * copy.size, srcShift);
  for (int64_t i = 0; i < from.size(); ++i)
    from.host<uint8_t>()[i] = uint8_t(one.engine() >> 20);
  std::vector<uint8_t> want(to.size(), 0xff); // gaps stay
  forAll(copy.dims, [&](const std::vector<int64_t> &index) {
    std::copy_n(from.host<uint8_t>() + dot(index, src) * copy.size, copy.size,
                want.data() + dot(index, dst) * copy.size);
  });
  copy.dst = to.upload(one.stream), copy.src = from.upload(one.stream);
  for (int64_t i = 0; i < rank; ++i) {
    copy.dstStrides.push_back(dst[i] * copy.size);
    copy.srcStrides.push_back(src[i] * copy.size);
  }
  one.run(cuda::makeCopy(one.kernels, copy));
  to.download(one.stream);
  one.compareExactly("byte", to, want);
}

void checkFill(Case &one) {
  int size = 1 << one.below(4);
  int64_t count = one.length(one.isSmall ? 5000 : 1 << 20);
  int64_t shift = one.below(4) * size;
  uint64_t pattern = one.engine();
  one.say("size", size), one.say("count", count), one.say("shift", shift);
  Array to(DType::U8, count * size, shift);
  std::vector<uint8_t> want(to.size());
  for (int64_t i = 0; i < to.size(); ++i)
    want[i] = uint8_t(pattern >> i % size * 8);
  one.run(
      cuda::makeFill(one.kernels, to.upload(one.stream), count, size, pattern));
  to.download(one.stream);
  one.compareExactly("byte", to, want);
}

Expected combined(const std::vector<Array> &sources, int64_t at, ReduceOp op) {
  Expected out;
  out.isWritten = true;
  for (size_t i = 0; i < sources.size(); ++i) {
    double x = sources[i].at(at);
    out.isNan |= std::isnan(x);
    if (i == 0 || op == ReduceOp::Sum)
      out.add(x, std::abs(x));
    else
      out.value =
          op == ReduceOp::Max ? std::max(out.value, x) : std::min(out.value, x);
  }
  // Sums of booleans are modulo 2.
  if (sources[0].type == DType::U8 && op == ReduceOp::Sum)
    out.value = std::fmod(out.value, 2);
  if (out.isNan)
    out.value = NAN;
  return out;
}

void checkReduction(Case &one, DType type) {
  cuda::Reduction x;
  x.dtype = type;
  x.op = ReduceOp(one.below(3));
  int64_t count = one.length(one.isSmall ? 300 : 40000);
  x.count = count, x.rows = one.one(2) ? 1 : one.between(2, 9);
  int64_t stride = count + (one.one(2) ? 0 : one.between(1, 16));
  if (one.one(2)) // in whole units of 16 bytes
    stride = (stride + 15) / 16 * 16;
  x.dstStride = x.srcStride = stride * program::sizeOf(type);
  int64_t numSources = one.between(1, 9);
  bool isInPlace = one.one(2);
  int64_t shift = one.one(3) ? one.between(1, 3) : 0;
  one.say("op", int64_t(x.op)), one.say("rows", x.rows);
  one.say("count", count), one.say("stride", stride);
  one.say("sources", numSources), one.say("in place", isInPlace);
  one.say("shift", shift);
  bool isFloat =
      type == DType::F32 || type == DType::F64 || type == DType::BF16;
  std::vector<Array> sources;
  for (int64_t i = 0; i < numSources; ++i) {
    Array &source = sources.emplace_back(type, stride * x.rows, shift);
    if (isFloat) {
      source.randomize(one);
      if (one.one(4)) // wins
        source.set(one.below(source.size()), NAN);
    } else // sums of nine fit
      for (int64_t j = 0; j < source.size(); ++j)
        source.set(j, double(type == DType::U8 ? one.below(2)
                             : type == DType::I8
                                 ? one.between(-12, 12)
                                 : one.between(-1 << 20, 1 << 20)));
    x.srcs.push_back(source.upload(one.stream));
  }
  Array own(type, stride * x.rows, shift);
  Array &to = isInPlace ? sources[0] : own;
  x.dst = isInPlace ? to.device() : to.upload(one.stream);
  std::vector<Expected> want(to.size());
  for (int64_t row = 0; row < x.rows; ++row)
    for (int64_t i = 0; i < count; ++i)
      want[row * stride + i] = combined(sources, row * stride + i, x.op);
  one.run([&](CUstream stream) { cuda::reduce(one.kernels, x, stream); });
  to.download(one.stream);
  bool isExact = !isFloat || x.op != ReduceOp::Sum || numSources == 1;
  one.compare("element", to, want, isExact ? Limit{0, 0, 0} : limitOf(type));
}

template <Kind kind> void copies(Case &one) { checkCopy(one, kind); }
template <DType type> void reduces(Case &one) { checkReduction(one, type); }
} // namespace

void gpu::addMoveFamilies(std::vector<Family> &to) {
  to.push_back({"copy, dense", copies<Kind::Dense>, 48, 12});
  to.push_back({"copy, strided", copies<Kind::Strided>, 64, 24});
  to.push_back({"copy, transposing", copies<Kind::Transposing>, 64, 24});
  to.push_back({"fill", checkFill, 48, 12});
  using enum DType;
  to.push_back({"reduce, f32", reduces<F32>, 32, 8});
  to.push_back({"reduce, f64", reduces<F64>, 32, 8});
  to.push_back({"reduce, bf16", reduces<BF16>, 32, 8});
  to.push_back({"reduce, i64", reduces<I64>, 32, 8});
  to.push_back({"reduce, i32", reduces<I32>, 32, 8});
  to.push_back({"reduce, i8", reduces<I8>, 32, 8});
  to.push_back({"reduce, u8", reduces<U8>, 32, 8});
}
