// Copies and reductions that move the data of collectives, on the stream that a
// rank uses for transfers.
#ifndef CLEAVE_RUNTIME_CUDA_DEVICE_MOVES_H
#define CLEAVE_RUNTIME_CUDA_DEVICE_MOVES_H

#include "cuda/backend.h"
#include "group_operation.h"
#include "kernels.h"

namespace cleave::cuda {

class Transfers {
public:
  explicit Transfers(const RankStream &rank)
      : rank(rank), stream(makeStream()), kernels(Kernels::of(*rank.device)) {}

  // Sets the collective to which the following calls belong.
  void begin(const CollectiveCall &call);

  void copy(char *dst, const char *src, int64_t bytes);
  void zero(char *dst, int64_t bytes);
  // Copies `rows` rows of `bytes` bytes. Row i is at src + i * srcStride and
  // goes to dst + i * dstStride.
  void copy2d(char *dst, int64_t dstStride, const char *src, int64_t srcStride,
              int64_t rows, int64_t bytes);
  // Copies `count` elements. In memory they form contiguous runs, whose length
  // may differ between source and destination.
  void retile(const Runs &dst, const ConstRuns &src, int64_t count,
              int64_t elementSize);
  // Sets the element type and the operation of `reduction` to those of the
  // call, and enqueues it.
  void reduce(Reduction &reduction, const CollectiveCall &call);
  // Writes one rectangular part ("box") of the target tile of an exchange: the
  // reduction over the senders' parts, or zeros if there is no sender.
  void box(const program::ExchangePiece &piece, char *dst,
           const std::vector<int64_t> &dstStrides,
           const std::vector<const char *> &from,
           const std::vector<int64_t> &srcStrides, const CollectiveCall &call);
  // Copies `count` integers from the device to the host, and waits for the
  // stream.
  std::vector<int64_t> read(const int64_t *at, int64_t count);

  const RankStream rank;
  const Stream stream;

private:
  void strided(StridedCopy copy);
  void note(const std::vector<Access> &accesses);

  Kernels &kernels;
  const CollectiveCall *current = nullptr;
};

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_DEVICE_MOVES_H
