// Launches the runtime's attention kernels.

#include "kernels.h"

#include "cleave/philox.h"
#include "cleave/workspace.h"
#include "error.h"
#include "kernels/attention_arguments.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;
using program::DType;

namespace {
AttentionArray arrayOf(const void *data, const program::AttentionRef &ref,
                       bool isOfKeys = false) {
  AttentionArray out{};
  out.data = const_cast<void *>(data);
  std::copy(ref.strides.begin(), ref.strides.end(), out.strides);
  if (isOfKeys)
    out.strides[3] = 0;
  return out;
}

AttentionIndexArray indexOf(const void *data, const program::IndexRef &ref,
                            int64_t offset = 0) {
  return {data, {ref.strides[0], ref.strides[1]}, offset};
}

AttentionArguments argumentsOf(const program::Attention &x,
                               const AttentionBuffers &at) {
  AttentionArguments out{};
  out.b = x.b, out.qLen = x.qLen, out.kLen = x.kLen;
  out.n = x.n, out.g = x.g, out.d = x.d, out.dv = x.dv;
  out.q = arrayOf(at.q, x.q);
  out.k = arrayOf(at.k, x.k, true), out.v = arrayOf(at.v, x.v, true);
  out.o = arrayOf(at.o, x.o), out.lse = arrayOf(at.lse, x.lse);
  out.dO = arrayOf(at.dO, x.dO), out.dq = arrayOf(at.dq, x.dq);
  out.dk = arrayOf(at.dk, x.dk, true), out.dV = arrayOf(at.dV, x.dV, true);
  out.bias = arrayOf(at.bias, x.bias);
  out.queryPositions =
      indexOf(at.queryPositions, x.queryPositions, x.queryOffset);
  out.keyPositions = indexOf(at.keyPositions, x.keyPositions, x.keyOffset);
  out.querySegments = indexOf(at.querySegments, x.querySegments);
  out.keySegments = indexOf(at.keySegments, x.keySegments);
  out.keyMask = indexOf(at.keyMask, x.keyMask);
  out.delta = at.workspace;
  out.scale = x.scale, out.softcap = x.softcap;
  out.window = x.window;
  out.causal = x.causal, out.backward = x.backward;
  out.isBf16 = x.dtype == DType::BF16;
  if (x.dropout > 0) {
    out.dropoutKeys = at.dropoutKeys;
    const auto &strides = x.dropoutKeys.strides;
    out.dropoutStrides[0] = strides[0];
    out.dropoutStrides[1] = strides[2], out.dropoutStrides[2] = strides[3];
    out.queryIndices = indexOf(at.queryIndices, x.queryIndices);
    out.keyIndices = indexOf(at.keyIndices, x.keyIndices);
    out.leastKept = philox::leastKept(x.dropout);
    out.keptScale = 1 / (1 - x.dropout);
  }
  return out;
}

// Returns whether tensor cores can compute this attention. They need bf16, a
// multiple of 8 and at most 128 features per head, and contiguous features.
// Rows are read and written in units of 16 bytes, so the addresses of all
// arrays and rows must be multiples of 16 bytes.
bool fitsMatrices(const program::Attention &x, const AttentionArguments &args) {
  if (x.dtype != DType::BF16 || x.d > 128 || x.dv > 128 || x.d % 8 || x.dv % 8)
    return false;
  auto fits = [](const AttentionArray &array) {
    int64_t bits = array.strides[0] | array.strides[1] | array.strides[2] |
                   array.strides[3];
    return array.strides[4] == 1 && bits % 8 == 0 &&
           address(array.data) % 16 == 0;
  };
  return fits(args.q) && fits(args.k) && fits(args.v) && fits(args.o) &&
         (!x.backward ||
          (fits(args.dO) && fits(args.dq) && fits(args.dk) && fits(args.dV)));
}

// The name of the kernels for a type and a head size, and their tile size,
// shared memory and threads.
struct Variant {
  std::string name;
  int64_t tile, shared;
  int threads = attentionThreads;
};
Variant plainVariantOf(const program::Attention &x,
                       const AttentionArguments &args) {
  if (x.dtype == DType::F64)
    return {"f64_256", 32, sizeof(AttentionShared<double, 2>)};
  int64_t features = std::max(x.d, x.dv);
  if (fitsMatrices(x, args)) {
    auto shared = [&]<int wide>() {
      return x.backward ? sizeof(AttentionMatrixShared<4, wide>)
                        : sizeof(AttentionMatrixShared<3, wide>);
    };
    bool isNarrow = features <= 64;
    return {
        isNarrow ? "bf16_64" : "bf16_128", attentionMatrixTile,
        int64_t(isNarrow ? shared.operator()<64>() : shared.operator()<128>()),
        attentionMatrixThreads};
  }
  const char *name = features <= 64    ? "f32_64"
                     : features <= 128 ? "f32_128"
                                       : "f32_256";
  return {name, 64, sizeof(AttentionShared<float, 4>)};
}
Variant variantOf(const program::Attention &x, const AttentionArguments &args) {
  Variant out = plainVariantOf(x, args);
  if (x.dropout > 0) {
    out.name = "dropped_" + out.name;
    out.shared += out.tile * out.tile / 4; // for AttentionKept
  }
  return out;
}
} // namespace

Enqueue cuda::makeAttention(Kernels &kernels, const program::Attention &x,
                            const AttentionBuffers &at) {
  std::string error;
  if (cuda::attentionWorkspace(x, error) < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  AttentionArguments args = argumentsOf(x, at);
  Variant variant = variantOf(x, args);
  auto tiles = [&](int64_t length) {
    return (length + variant.tile - 1) / variant.tile;
  };
  int64_t heads = x.b * x.n * x.g;
  if (!x.backward)
    return [&kernels, args, shared = variant.shared, threads = variant.threads,
            blocks = heads * tiles(x.qLen),
            name = "cleave_attention_" + variant.name](CUstream stream) {
      kernels.launch(name.c_str(), blocks, threads, shared, stream, args);
    };
  int64_t rowsPerBlock = attentionThreads / 32;
  int64_t deltaBlocks = (heads * x.qLen + rowsPerBlock - 1) / rowsPerBlock;
  return [&kernels, args, shared = variant.shared, threads = variant.threads,
          deltaBlocks,
          delta = x.dtype == DType::F64 ? "cleave_attention_delta_f64"
                                        : "cleave_attention_delta_f32",
          queryBlocks = heads * tiles(x.qLen),
          keyBlocks = x.b * x.n * tiles(x.kLen),
          dq = "cleave_attention_dq_" + variant.name,
          dkv = "cleave_attention_dkv_" + variant.name](CUstream stream) {
    kernels.launch(delta, deltaBlocks, attentionThreads, 0, stream, args);
    kernels.launch(dq.c_str(), queryBlocks, threads, shared, stream, args);
    kernels.launch(dkv.c_str(), keyBlocks, threads, shared, stream, args);
  };
}
