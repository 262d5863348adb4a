// Compares copies, fills and reductions on a device with loops and with the CPU
// runtime.

#include "Helpers.h"
#include "TinyDriver.h"

#include "error.h"
#include "transport.h"

#include <numeric>

using namespace cleave;
using namespace cleave::program;
using namespace cleave::test;

namespace {
struct CopyCase {
  int64_t size;
  std::vector<int64_t> dims, dst, src; // strides in elements
  int64_t dstShift = 0, srcShift = 0;  // bytes
  const char *kernel = nullptr;
};

void expectCopies(const CopyCase &x) {
  cuda::StridedCopy copy;
  copy.size = x.size, copy.dims = x.dims;
  int64_t dstEnd = 0, srcEnd = 0, count = 1;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    copy.dstStrides.push_back(x.dst[i] * x.size);
    copy.srcStrides.push_back(x.src[i] * x.size);
    dstEnd += (x.dims[i] - 1) * x.dst[i] * x.size;
    srcEnd += (x.dims[i] - 1) * x.src[i] * x.size;
    count *= x.dims[i];
  }
  if (count == 0)
    dstEnd = srcEnd = 0;
  int64_t dstBytes = dstEnd + x.size + x.dstShift,
          srcBytes = srcEnd + x.size + x.srcShift;
  Aligned<char> dst(dstBytes), src(srcBytes);
  std::mt19937 engine(3);
  for (int64_t i = 0; i < srcBytes; ++i)
    src.data.get()[i] = static_cast<char>(engine());
  std::vector<char> want(dstBytes, 7);
  std::vector<int64_t> index(x.dims.size());
  for (int64_t n = 0; n < count; ++n) {
    int64_t at = x.dstShift, from = x.srcShift, rest = n;
    for (size_t i = x.dims.size(); i-- > 0; rest /= x.dims[i]) {
      at += rest % x.dims[i] * x.dst[i] * x.size;
      from += rest % x.dims[i] * x.src[i] * x.size;
    }
    std::copy_n(src.data.get() + from, x.size, want.data() + at);
  }
  copy.dst = dst.data.get() + x.dstShift;
  copy.src = src.data.get() + x.srcShift;
  cuda::Enqueue enqueue = cuda::makeCopy(kernels(), copy);
  std::fill_n(dst.data.get(), dstBytes, char(7));
  takeLaunches();
  enqueue(nullptr);
  std::vector<std::string> launches = takeLaunches();
  if (x.kernel)
    EXPECT_EQ(launches, std::vector<std::string>{x.kernel});
  EXPECT_TRUE(std::equal(want.begin(), want.end(), dst.data.get()))
      << "element of " << x.size << ", first dim " << x.dims[0];
}

template <class T>
void expectReduces(DType type, ReduceOp op, int64_t rows, int64_t count,
                   int64_t pad, int64_t shift, int sources) {
  int64_t stride = count + pad, size = stride * rows + shift;
  std::mt19937 engine(static_cast<uint32_t>(count + sources));
  std::vector<std::vector<T>> srcs(sources);
  for (auto &src : srcs)
    for (int64_t i = 0; i < size; ++i) {
      T value;
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
        value = static_cast<T>(std::normal_distribution<double>()(engine));
      else
        value = static_cast<T>(engine() * 0x9e3779b97f4a7c15ull >> 20);
      if (type == DType::BF16)
        value = T(toBf16(std::normal_distribution<double>()(engine)));
      if (type == DType::U8)
        value = T(engine() & 1);
      src.push_back(value);
    }
  if constexpr (std::is_same_v<T, float>)
    srcs[1][shift] = NAN;
  std::vector<T> want = srcs[0], got = srcs[0];
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<const char *> from;
    for (auto &src : srcs)
      from.push_back(
          reinterpret_cast<char *>(src.data() + shift + row * stride));
    reduceInto(reinterpret_cast<char *>(want.data() + shift + row * stride),
               from, count, type, op);
  }
  cuda::Reduction x;
  x.dst = reinterpret_cast<char *>(got.data() + shift);
  for (auto &src : srcs)
    x.srcs.push_back(reinterpret_cast<char *>(src.data() + shift));
  x.srcs[0] = x.dst; // in place
  x.rows = rows, x.count = count;
  x.dstStride = x.srcStride = stride * int64_t(sizeof(T));
  x.dtype = type, x.op = op;
  cuda::reduce(kernels(), x, nullptr);
  EXPECT_TRUE(bytesOf(got) == bytesOf(want))
      << nameOf(type) << " op " << int(op) << ", " << rows << " rows of "
      << count << ", shift " << shift;
}
} // namespace

TEST(CudaKernels, AreFoundByName) {
  EXPECT_NE(kernels().find("cleave_fill"), nullptr);
  EXPECT_EQ(cuda::findEmulated("cleave_none"), nullptr);
  try {
    kernels().find("cleave_none");
    FAIL();
  } catch (const RuntimeError &error) {
    EXPECT_STREQ(error.what(), "there is no kernel cleave_none");
  }
}

TEST(CudaMove, CopiesAnyStrides) {
  expectCopies({4, {1000}, {1}, {1}, 0, 0, "cleave_copy_16"});
  expectCopies({4, {1001}, {1}, {1}, 0, 0, "cleave_copy_4"});
  expectCopies({8, {77}, {1}, {1}, 4, 4, "cleave_copy_4"});
  expectCopies(
      {2, {3, 5, 64}, {320, 64, 1}, {640, 128, 1}, 0, 0, "cleave_copy_16"});
  // A transpose, a broadcast, and a copy to a destination that is not dense.
  for (int64_t size : {1, 2, 4, 8}) {
    std::string name = "cleave_transpose_" + std::to_string(size);
    expectCopies({size, {37, 29}, {29, 1}, {1, 37}, 0, 0, name.c_str()});
    expectCopies({size, {131, 70}, {71, 1}, {1, 131}, 0, 0, name.c_str()});
    expectCopies({size,
                  {3, 20, 2, 66},
                  {20 * 2 * 66, 2 * 66, 66, 1},
                  {20, 1, 3 * 20, 2 * 3 * 20},
                  0,
                  0,
                  name.c_str()});
  }
  expectCopies({4, {7, 300}, {300, 1}, {1, 7}, 0, 0, "cleave_copy_4"});
  expectCopies({2, {4, 9, 16}, {144, 16, 1}, {0, 16, 1}});
  expectCopies({1, {5, 3, 7}, {1, 40, 5}, {21, 7, 1}, 3, 1});
  expectCopies({12, {6, 5}, {10, 1}, {1, 7}});
  expectCopies(
      {8, {2, 3, 2, 3, 2, 2}, {144, 48, 16, 5, 2, 1}, {1, 2, 6, 12, 36, 72}});
  expectCopies({4, {3, 0, 4}, {4, 4, 1}, {4, 4, 1}});
  expectCopies({4, {1}, {1}, {1}});
}

TEST(CudaMove, CopiesRandomLayouts) {
  std::mt19937 engine(11);
  for (int round = 0; round < 200; ++round) {
    CopyCase x;
    x.size = int64_t(1) << engine() % 5;
    int64_t rank = 1 + engine() % 4;
    for (int64_t i = 0; i < rank; ++i)
      x.dims.push_back(1 + engine() % (rank < 3 ? 80 : 12));
    auto strides = [&] {
      std::vector<int64_t> order(rank), out(rank);
      std::iota(order.begin(), order.end(), 0);
      if (engine() % 2)
        std::shuffle(order.begin(), order.end(), engine);
      int64_t stride = 1;
      for (int64_t i = rank; i-- > 0; stride += engine() % 3 == 0) {
        out[order[i]] = stride;
        stride *= x.dims[order[i]];
      }
      return out;
    };
    x.dst = strides(), x.src = strides();
    x.dstShift = engine() % 2 * x.size, x.srcShift = engine() % 2 * x.size;
    expectCopies(x);
  }
}

TEST(CudaMove, Fills) {
  for (int size : {1, 2, 4, 8})
    for (int64_t count : {0, 1, 7, 100, 5000})
      for (int64_t shift : {0, 1, 3}) {
        int64_t bytes = size * (count + shift);
        Aligned<char> dst(bytes + 8);
        std::fill_n(dst.data.get(), bytes + 8, char(9));
        uint64_t pattern = 0x8877665544332211;
        cuda::makeFill(kernels(), dst.data.get() + shift * size, count, size,
                       pattern)(nullptr);
        for (int64_t i = 0; i < bytes + 8; ++i) {
          bool isInside = i >= shift * size && i < bytes;
          auto want = isInside ? static_cast<char>(pattern >> i % size * 8) : 9;
          ASSERT_EQ(dst.data.get()[i], want)
              << size << " " << count << " " << shift << " at " << i;
        }
      }
}

TEST(CudaMove, ReducesLikeTheCpu) {
  for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min})
    for (int sources : {2, 3, 9})
      for (int64_t rows : {1, 5})
        for (int64_t count : {1, 33, 64}) {
          // Rows that allow vector accesses, and rows that are not aligned.
          for (int64_t shift : {0, 1}) {
            int64_t pad = shift ? 3 : 16 - count % 16;
            expectReduces<float>(DType::F32, op, rows, count, pad, shift,
                                 sources);
            expectReduces<double>(DType::F64, op, rows, count, pad, shift,
                                  sources);
            expectReduces<uint16_t>(DType::BF16, op, rows, count, pad, shift,
                                    sources);
            expectReduces<int64_t>(DType::I64, op, rows, count, pad, shift,
                                   sources);
            expectReduces<int32_t>(DType::I32, op, rows, count, pad, shift,
                                   sources);
            expectReduces<int8_t>(DType::I8, op, rows, count, pad, shift,
                                  sources);
            expectReduces<uint8_t>(DType::U8, op, rows, count, pad, shift,
                                   sources);
          }
        }
}
