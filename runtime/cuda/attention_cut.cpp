// Decides whether cuDNN may compute an attention command, and into how many
// parts the command is divided.

#include "attention_cut.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;
using program::Attention;

namespace {
constexpr int64_t mostFeatures = 128; // of cuDNN's gradient on all devices
constexpr int64_t most = int64_t(1) << 30;
// A reserve in the workspace for small buffers of cuDNN's engines. It is added
// to the bytes that are computed from the sizes of the attention.
constexpr int64_t fixed = 512;

int64_t roundedTo(int64_t x, int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

AttentionCut partOf(const Attention &x, int64_t batch, int64_t heads) {
  AttentionCut out{batch, heads, 0, fixed};
  if (!x.backward)
    return out;
  int64_t queryHeads = batch * heads * x.g;
  out.sumBytes = roundedTo(queryHeads * x.qLen * 4, 256);
  // Workspace for deterministic gradients of attention. On sm_80 and sm_90
  // cuDNN's engines store the gradients of all scores in bf16, rounded up to
  // whole tiles; if query heads share KV heads, they also store the
  // contribution of each query head to dk and dv, in bf16. On sm_100 the
  // engines store only these contributions, in f32. The larger of these two
  // needs is planned, so that it is enough on every device.
  int64_t scores =
      2 * queryHeads * roundedTo(x.qLen, 64) * roundedTo(x.kLen, 128);
  int64_t shared =
      x.g > 1 ? 2 * queryHeads * x.kLen * (x.d + x.dv) : int64_t(0);
  out.engineBytes += roundedTo(std::max(scores + shared, 2 * shared), 256);
  return out;
}
} // namespace

std::optional<AttentionDiagonal> cuda::diagonalOf(const Attention &x,
                                                  std::string &why) {
  auto refuse = [&](const char *text) {
    why = text;
    return std::nullopt;
  };
  if (x.dtype != program::DType::BF16)
    return refuse("it is not in bf16");
  if (x.softcap != 0)
    return refuse("its scores are bent");
  if (x.dropout != 0)
    return refuse("it drops weights");
  if (x.bias.buffer.present())
    return refuse("it has a bias");
  for (const program::IndexRef *index :
       {&x.queryPositions, &x.keyPositions, &x.querySegments, &x.keySegments,
        &x.keyMask})
    if (index->buffer.present())
      return refuse("it has positions, segments or a mask of keys");
  if (x.d % 8 || x.dv % 8 || x.d < 8 || x.dv < 8 || x.d > mostFeatures ||
      x.dv > mostFeatures)
    return refuse("its heads are not of 8, 16, ... 128 features");
  if (x.b < 1 || x.n < 1 || x.g < 1)
    return refuse("it is empty");
  if (x.qLen < 2 || x.kLen < 2)
    return refuse("it has fewer than two queries or keys");
  // Below this bound no product of these sizes overflows an int64.
  int64_t largest = 1 << 20;
  if (std::max({x.b, x.n, x.g, x.qLen, x.kLen}) > largest ||
      double(x.b) * double(x.n) * double(x.g) > double(largest))
    return refuse("it has more than 2^20 heads, queries or keys");

  // Key j is (i + shift) - j positions before query i.
  int64_t shift = x.queryOffset - x.keyOffset;
  int64_t farthest = x.qLen - 1 + shift; // of a key before a query
  if (!x.causal)
    farthest = std::max(farthest, x.kLen - 1 - shift); // or after it
  bool hasWindow = x.window > 0 && farthest >= x.window;
  bool isCausal = x.causal && shift < x.kLen - 1;
  if (hasWindow && !isCausal)
    return refuse("it has a window that no diagonal ends");
  if (!isCausal)
    return AttentionDiagonal{};
  // cuDNN supports a causal mask only if its diagonal begins at the first key
  // (shift 0) or ends at the last key. Every query must see at least one key.
  if (shift < 0 || (shift != 0 && shift != x.kLen - x.qLen))
    return refuse("its diagonal neither begins at the first key nor ends at "
                  "the last one");
  if (hasWindow && (shift != 0 || x.qLen > x.kLen))
    return refuse("its window is not along the first keys");
  return AttentionDiagonal{true, shift, hasWindow ? x.window : 0};
}

std::optional<AttentionCut> cuda::cutOf(const Attention &x, std::string &why,
                                        int64_t enough) {
  if (!diagonalOf(x, why))
    return std::nullopt;
  // First tries parts of fewer samples, then parts of one sample with fewer
  // heads. Each part of lse must begin at a multiple of 16 bytes.
  AttentionCut smallest = partOf(x, x.b, x.n);
  auto isEnough = [&](int64_t batch, int64_t heads) {
    if (batch * heads * x.g * x.qLen % 4)
      return false;
    smallest = partOf(x, batch, heads);
    return smallest.bytes() <= enough;
  };
  if (smallest.bytes() <= enough)
    return smallest;
  for (int64_t parts = 2; parts <= x.b; ++parts)
    if (x.b % parts == 0 && isEnough(x.b / parts, x.n))
      return smallest;
  for (int64_t parts = 2; parts <= x.n; ++parts)
    if (x.n % parts == 0 && isEnough(1, x.n / parts))
      return smallest;
  if (smallest.bytes() <= most)
    return smallest;
  why = "it takes more scratch memory than is ever planned";
  return std::nullopt;
}
