// Prepares all commands of a rank except transfers: computes the addresses of
// their operands, and passes these to the backend in a struct that has a field
// for each operand.

#include "convolution.h"
#include "rank.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::program;

template <class Op> int64_t Rank::needOf(const Op &op) const {
  std::string error;
  int64_t need = backend->workspace(op, error);
  if (need < 0)
    fail(CLEAVE_UNSUPPORTED, error);
  return need;
}

template <class Op> void *Rank::workspace(const Op &op, int64_t neededBytes) {
  if (Operand planned = workspaceOf(op); planned.isUsed()) {
    char *at = use(planned);
    if (op.workspaceSize >= neededBytes)
      return at;
  }
  if (neededBytes > 0)
    accesses.push_back({unplanned->data(), neededBytes, true});
  return unplanned->data();
}

template <class Op> Addresses Rank::useAll(const Op &op) {
  Addresses at;
  program::operands(data.kernels, op, [&](const Operand &operand) {
    bool isPlanned =
        operand.kind != OperandKind::Scratch || !operand.isOptional;
    if (isPlanned && operand.isUsed())
      at.add(operand, use(operand));
  });
  return at;
}

Rank::Run Rank::prepare(const Launch &launch) {
  std::vector<void *> args;
  program::operands(data.kernels, launch, [&](const Operand &operand) {
    args.push_back(use(operand));
  });
  if (launch.extent < 0 || launch.grain < 1)
    bad("rows [0, " + std::to_string(launch.extent) + ") in pieces of " +
        std::to_string(launch.grain));
  return backend->launch(launch, std::move(args));
}

Rank::Run Rank::prepare(const Gemm &gemm) {
  int64_t need = needOf(gemm);
  Addresses at = useAll(gemm);
  GemmBuffers buffers;
  buffers.a = at[gemm.a.buffer];
  buffers.b = at[gemm.b.buffer];
  buffers.c = at[gemm.c.buffer];
  buffers.bias = at[gemm.bias];
  buffers.preActivation = at[gemm.preActivation];
  buffers.derivativeAt = at[gemm.derivativeAt];
  buffers.sums = at[gemm.sums];
  buffers.workspace = workspace(gemm, need);
  return backend->gemm(gemm, buffers, std::max(need, gemm.workspaceSize));
}

Rank::Run Rank::prepare(const Attention &x) {
  int64_t need = needOf(x);
  if (x.dropout != 0)
    for (const BufferRef *ref :
         {&x.dropoutKeys.buffer, &x.queryIndices.buffer, &x.keyIndices.buffer})
      if (!ref->present())
        fail(CLEAVE_UNSUPPORTED,
             "attention with dropout but no numbers for it");
  Addresses at = useAll(x);
  AttentionBuffers buffers;
  buffers.q = at[x.q.buffer];
  buffers.k = at[x.k.buffer];
  buffers.v = at[x.v.buffer];
  buffers.o = at[x.o.buffer];
  buffers.lse = at[x.lse.buffer];
  buffers.dO = at[x.dO.buffer];
  buffers.dq = at[x.dq.buffer];
  buffers.dk = at[x.dk.buffer];
  buffers.dV = at[x.dV.buffer];
  buffers.bias = at[x.bias.buffer];
  buffers.queryPositions = at[x.queryPositions.buffer];
  buffers.keyPositions = at[x.keyPositions.buffer];
  buffers.querySegments = at[x.querySegments.buffer];
  buffers.keySegments = at[x.keySegments.buffer];
  buffers.keyMask = at[x.keyMask.buffer];
  buffers.dropoutKeys = at[x.dropoutKeys.buffer];
  buffers.queryIndices = at[x.queryIndices.buffer];
  buffers.keyIndices = at[x.keyIndices.buffer];
  buffers.workspace = workspace(x, need);
  return backend->attention(x, buffers);
}

Rank::Run Rank::prepare(const GroupedGemm &x) {
  int64_t need = needOf(x);
  Addresses at = useAll(x);
  GroupedBuffers buffers;
  buffers.a = at[x.a.buffer];
  buffers.c = at[x.c.buffer];
  buffers.ids = at[x.ids.buffer];
  buffers.w = at[x.w.buffer];
  buffers.workspace = workspace(x, need);
  return backend->grouped(x, buffers);
}

Rank::Run Rank::prepare(const Convolution &x) {
  if (std::string error = checkConvolution(x); !error.empty())
    bad(error);
  int64_t need = needOf(x);
  Addresses at = useAll(x);
  ConvolutionBuffers buffers;
  buffers.x = at[x.x];
  buffers.w = at[x.w];
  buffers.y = at[x.y];
  buffers.workspace = workspace(x, need);
  return backend->convolution(x, buffers);
}

Rank::Run Rank::prepare(const PlanRows &x) {
  if (x.rows < 0 || x.rounds < 1 || x.ranks < 1 || x.places < 0 || x.tile < 1 ||
      checkedProduct(x.rounds, x.places) < x.rows)
    bad(std::to_string(x.rows) + " rows in " + std::to_string(x.rounds) +
        " rounds of " + std::to_string(x.places) + " places on each of " +
        std::to_string(x.ranks) + " ranks with tiles of " +
        std::to_string(x.tile));
  Addresses at = useAll(x);
  return backend->planRows(
      x, {at[x.ids], at[x.sources], at[x.placeOf], at[x.sent], at[x.counts]});
}

Rank::Run Rank::prepare(const SortRows &x) {
  if (x.rows < 0 || x.groups < 1)
    bad(std::to_string(x.rows) + " rows in " + std::to_string(x.groups) +
        " groups");
  Addresses at = useAll(x);
  return backend->sortRows(
      x, {at[x.ids], at[x.order], at[x.placeOf], at[x.sorted]});
}

Rank::Run Rank::prepare(const PositionInExpert &x) {
  if (x.b < 0 || x.s < 0 || x.k < 0 || x.e < 1 || x.rows < 0)
    bad("slots of " + std::to_string(x.b) + " x " + std::to_string(x.s) +
        " x " + std::to_string(x.k) + " among " + std::to_string(x.e) +
        " experts after " + std::to_string(x.rows) + " samples");
  Addresses at = useAll(x);
  return backend->positionInExpert(x, {at[x.ids], at[x.positions], at[x.loads],
                                       at[x.samples], at[x.result],
                                       at[x.scratch]});
}

Rank::Run Rank::prepare(const Copy &copy) {
  int64_t size = copy.elementSize;
  if (size < 1)
    bad("elements of " + std::to_string(size) + " bytes");
  std::vector<int64_t> dims = copy.shape;
  if (copy.srcStrides.size() != dims.size() ||
      copy.dstStrides.size() != dims.size())
    bad("a copy of rank " + std::to_string(dims.size()) +
        " needs as many strides");
  Addresses at = useAll(copy);
  CopyBuffers buffers;
  buffers.src = at[copy.src];
  buffers.dst = at[copy.dst];
  int64_t elements = 1;
  for (int64_t dim : dims)
    elements = checkedProduct(elements, dim);
  std::vector<int64_t> srcStrides = copy.srcStrides,
                       dstStrides = copy.dstStrides;
  for (size_t i = 0; i < dims.size(); ++i) {
    srcStrides[i] *= size;
    dstStrides[i] *= size;
  }
  // Trailing dimensions that are dense in source and destination are copied as
  // one block.
  int64_t block = size;
  while (!dims.empty() && srcStrides.back() == block &&
         dstStrides.back() == block) {
    block *= dims.back();
    dims.pop_back();
    srcStrides.pop_back();
    dstStrides.pop_back();
  }
  if (elements == 0)
    return [] {};
  return backend->copy(buffers, block, std::move(dims), std::move(srcStrides),
                       std::move(dstStrides));
}

Rank::Run Rank::prepare(const Fill &fill) {
  int64_t size = fill.elementSize;
  if (size != 1 && size != 2 && size != 4 && size != 8)
    bad("elements of " + std::to_string(size) +
        " bytes, expected 1, 2, 4 or 8");
  return backend->fill(useAll(fill)[fill.dst], fill.count, size, fill.pattern);
}
