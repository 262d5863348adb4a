// Executes collectives by calls of NCCL.

#include "nccl_call.h"

#include "span.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;
using program::CollectiveKind;
using program::DType;
using program::ReduceOp;

namespace {
ncclDataType_t typeOf(DType type) {
  switch (type) {
  case DType::F32:
    return ncclFloat32;
  case DType::F64:
    return ncclFloat64;
  case DType::BF16:
    return ncclBfloat16;
  case DType::I64:
    return ncclInt64;
  case DType::I32:
    return ncclInt32;
  case DType::I8:
    return ncclInt8;
  case DType::U8:
    return ncclUint8;
  }
  return ncclInt8;
}

ncclRedOp_t opOf(ReduceOp op) {
  return op == ReduceOp::Sum   ? ncclSum
         : op == ReduceOp::Max ? ncclMax
                               : ncclMin;
}

cudaStream_t streamOf(const Transfers &transfers) {
  return reinterpret_cast<cudaStream_t>(transfers.stream.get());
}

// Returns the box of `piece` as an array of its own: its position is 0 in the
// source (`atSrc`) or in the destination (`atDst`).
program::ExchangePiece alone(const program::ExchangePiece &piece, bool atSrc,
                             bool atDst) {
  program::ExchangePiece out = piece;
  if (atSrc)
    std::fill(out.srcAt.begin(), out.srcAt.end(), 0);
  if (atDst)
    std::fill(out.dstAt.begin(), out.dstAt.end(), 0);
  return out;
}

std::vector<int64_t> denseStrides(const std::vector<int64_t> &sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

// Runs calls between ncclGroupStart and ncclGroupEnd. The group is ended even
// if a call throws.
template <class Body> void together(const CollectiveCall &call, Body body) {
  check(nccl().ncclGroupStart(), describe(call));
  try {
    body();
  } catch (...) {
    (void)nccl().ncclGroupEnd();
    throw;
  }
  check(nccl().ncclGroupEnd(), describe(call));
}
} // namespace

NcclCall::NcclCall(CollectiveCall given)
    : call(std::move(given)), planned(call),
      elementSize(program::sizeOf(call.dtype)),
      size(static_cast<int>(call.members.size())), routes(planned),
      sources(call.members.size()) {
  place();
  // How many rows an AllToAllV moves is known only when it runs. So staging
  // memory is planned for all rows that could be sent, and for all that could
  // be received.
  if (call.kind == CollectiveKind::AllToAllV && call.parts.size() > 1)
    for (int way = 0; way < 2; ++way)
      for (int p = 0; p < size; ++p) {
        int64_t bytes = 0;
        for (const Part &part : call.parts)
          bytes += part.count * elementSize;
        take(bytes);
      }
}

bool NcclCall::isNative() const {
  if (size == 1)
    return false;
  // The sum of booleans is their parity, which NCCL does not have.
  bool canReduce = call.dtype != DType::U8 || call.reduce != ReduceOp::Sum;
  switch (call.kind) {
  case CollectiveKind::AllReduce:
  case CollectiveKind::ReduceScatter:
    return canReduce;
  case CollectiveKind::AllGather:
  case CollectiveKind::Broadcast:
    return true;
  default:
    return false;
  }
}

int64_t NcclCall::bytesOf(bool isIncoming) const {
  int64_t bytes = 0;
  for (const std::vector<Parcel> &phase : routes.parcels)
    for (const Parcel &parcel : phase)
      if (parcel.isIncoming == isIncoming)
        bytes += parcel.bytes;
  return bytes;
}

//--- Staging -----------------------------------------------------------------

int64_t NcclCall::take(int64_t bytes) {
  int64_t at = staging;
  staging += (bytes + 255) / 256 * 256;
  return at;
}

namespace {
bool isDense(const Parcel &parcel) {
  return parcel.places.size() == 1 && parcel.places[0].dense();
}
} // namespace

void NcclCall::place() {
  staging = 0;
  if (isNative()) {
    bool isCut = call.kind == CollectiveKind::AllGather ||
                 call.kind == CollectiveKind::ReduceScatter;
    partStaging.assign(call.parts.size(), -1);
    for (size_t i = 0; i < call.parts.size(); ++i)
      if (isCut && call.parts[i].outer != 1)
        partStaging[i] = take(call.parts[i].count * size * elementSize);
    return;
  }
  for (int phase = 0; phase < Routes::phases; ++phase) {
    parcelStaging[phase].clear();
    for (const Parcel &parcel : routes.parcels[phase])
      parcelStaging[phase].push_back(isDense(parcel) ? -1 : take(parcel.bytes));
  }
  int64_t own = 0;
  for (const Part &part : call.parts)
    for (const program::ExchangePiece &piece : part.pieces)
      own = std::max(own, piece.count() * elementSize);
  ownStaging = take(own);
}

//--- Enqueueing --------------------------------------------------------------

void NcclCall::begin(Transfers &transfers) {
  transfers.begin(call);
  if (call.kind != CollectiveKind::AllToAllV)
    return;
  sentRows = transfers.read(call.sent, size);
  receivedRows = transfers.read(call.received, size);
  planned.sent = sentRows.data();
  planned.received = receivedRows.data();
  routes.replan();
  place();
}

void NcclCall::enqueue(ncclComm_t comm, Transfers &transfers, char *stagingAt) {
  if (isNative()) {
    native(comm, transfers, stagingAt);
    return;
  }
  messages(Routes::First, comm, transfers, stagingAt);
  combine(transfers, stagingAt);
  messages(Routes::Second, comm, transfers, stagingAt);
}

void NcclCall::native(ncclComm_t comm, Transfers &transfers, char *base) {
  ncclDataType_t type = typeOf(call.dtype);
  cudaStream_t stream = streamOf(transfers);
  for (size_t i = 0; i < call.parts.size(); ++i) {
    const Part &part = call.parts[i];
    if (partStaging[i] < 0 || call.kind != CollectiveKind::ReduceScatter)
      continue;
    int64_t row = part.inner * elementSize;
    for (int p = 0; p < size; ++p)
      transfers.copy2d(base + partStaging[i] + p * part.count * elementSize,
                       row, part.src + p * row, size * row, part.outer, row);
  }
  together(call, [&] {
    for (size_t i = 0; i < call.parts.size(); ++i) {
      const Part &part = call.parts[i];
      if (part.count == 0)
        continue;
      char *staged = partStaging[i] < 0 ? nullptr : base + partStaging[i];
      auto count = static_cast<size_t>(part.count);
      ncclResult_t status = ncclSuccess;
      if (call.kind == CollectiveKind::AllReduce)
        status = nccl().ncclAllReduce(part.src, part.dst, count, type,
                                      opOf(call.reduce), comm, stream);
      else if (call.kind == CollectiveKind::AllGather)
        status = nccl().ncclAllGather(part.src, staged ? staged : part.dst,
                                      count, type, comm, stream);
      else if (call.kind == CollectiveKind::ReduceScatter)
        status = nccl().ncclReduceScatter(staged ? staged : part.src, part.dst,
                                          count, type, opOf(call.reduce), comm,
                                          stream);
      else
        status = nccl().ncclBroadcast(part.src, part.dst, count, type,
                                      call.root, comm, stream);
      check(status, describe(call));
    }
  });
  for (size_t i = 0; i < call.parts.size(); ++i) {
    const Part &part = call.parts[i];
    if (partStaging[i] < 0 || call.kind != CollectiveKind::AllGather)
      continue;
    int64_t row = part.inner * elementSize;
    for (int p = 0; p < size; ++p)
      transfers.copy2d(part.dst + p * row, size * row,
                       base + partStaging[i] + p * part.count * elementSize,
                       row, part.outer, row);
  }
}

void NcclCall::messages(Routes::Phase phase, ncclComm_t comm,
                        Transfers &transfers, char *base) {
  std::vector<Parcel> &parcels = routes.parcels[phase];
  if (parcels.empty())
    return;
  auto move = [&](const Parcel &parcel, bool packs) {
    char *at = parcel.memory;
    for (const Rows &rows : parcel.places) {
      if (packs)
        transfers.copy2d(at, rows.bytes, rows.at, rows.stride, rows.rows,
                         rows.bytes);
      else
        transfers.copy2d(rows.at, rows.stride, at, rows.bytes, rows.rows,
                         rows.bytes);
      at += rows.total();
    }
  };
  for (size_t i = 0; i < parcels.size(); ++i) {
    int64_t staged = parcelStaging[phase][i];
    parcels[i].memory = staged < 0 ? parcels[i].places[0].at : base + staged;
    if (!parcels[i].isIncoming && staged >= 0)
      move(parcels[i], /*packs=*/true);
  }
  together(call, [&] {
    for (const Parcel &parcel : parcels) {
      auto bytes = static_cast<size_t>(parcel.bytes);
      check(parcel.isIncoming
                ? nccl().ncclRecv(parcel.memory, bytes, ncclInt8, parcel.member,
                                  comm, streamOf(transfers))
                : nccl().ncclSend(parcel.memory, bytes, ncclInt8, parcel.member,
                                  comm, streamOf(transfers)),
            describe(call));
    }
  });
  for (const Parcel &parcel : parcels)
    if (parcel.isIncoming && !isDense(parcel))
      move(parcel, /*packs=*/false);
}

//--- Processing of received data ----------------------------------------------

void NcclCall::combine(Transfers &transfers, char *base) {
  switch (call.kind) {
  case CollectiveKind::AllReduce:
    return reduceChunk(transfers);
  case CollectiveKind::ReduceScatter:
    return reduceBlocks(transfers);
  case CollectiveKind::Exchange:
    return assemble(transfers, base);
  case CollectiveKind::SendRecv:
    return;
  default:
    return copyOwn(transfers);
  }
}

// Sets sources[m] to the address at which the data of member m begins: `own`
// for this rank, and for another member the byte `offset` of the data that was
// received from it.
void NcclCall::aim(int64_t offset, const char *own) {
  for (const Parcel &parcel : routes.parcels[Routes::First])
    if (parcel.isIncoming)
      sources[parcel.member] = parcel.memory + offset;
  sources[call.self] = own;
}

void NcclCall::reduceChunk(Transfers &transfers) {
  int64_t offset = 0;
  forChunk(call, call.self, [&](size_t index, int64_t begin, int64_t end) {
    const Part &part = call.parts[index];
    aim(offset, part.src + begin * elementSize);
    Reduction all;
    all.dst = part.dst + begin * elementSize;
    all.srcs = sources;
    all.count = end - begin;
    transfers.reduce(all, call);
    offset += (end - begin) * elementSize;
  });
}

void NcclCall::reduceBlocks(Transfers &transfers) {
  int64_t offset = 0;
  for (const Part &part : call.parts) {
    int64_t row = part.inner * elementSize;
    for (int64_t o = 0; o < part.outer && row; ++o, offset += row) {
      aim(offset, part.src + (o * size + call.self) * row);
      Reduction all;
      all.dst = part.dst + o * row;
      all.srcs = sources;
      all.count = part.inner;
      transfers.reduce(all, call);
    }
  }
}

// Assembles the target tile of an exchange from the boxes that were received. A
// member's message contains its boxes in the order of Part::pieces.
void NcclCall::assemble(Transfers &transfers, char *base) {
  std::vector<const char *> next(size);
  for (const Parcel &parcel : routes.parcels[Routes::First])
    if (parcel.isIncoming)
      next[parcel.member] = parcel.memory;
  for (const Part &part : call.parts)
    for (const program::ExchangePiece &piece : part.pieces) {
      if (piece.receiver != call.self || piece.round)
        continue;
      std::vector<int64_t> dense = denseStrides(piece.sizes);
      bool isOwn = piece.senders.size() == 1 && piece.senders[0] == call.self;
      if (isOwn || piece.senders.empty()) {
        std::vector<const char *> from;
        if (isOwn)
          from.push_back(part.src);
        transfers.box(piece, part.dst, part.dstStrides, from, part.srcStrides,
                      call);
        continue;
      }
      std::vector<const char *> from;
      for (int32_t sender : piece.senders) {
        if (sender == call.self) {
          char *own = base + ownStaging;
          transfers.box(alone(piece, false, true), own, dense, {part.src},
                        part.srcStrides, call);
          from.push_back(own);
          continue;
        }
        from.push_back(next[sender]);
        next[sender] += piece.count() * elementSize;
      }
      transfers.box(alone(piece, true, false), part.dst, part.dstStrides, from,
                    dense, call);
    }
}

// Copies the part of the data that a member sends to itself.
void NcclCall::copyOwn(Transfers &transfers) {
  for (const Part &part : call.parts) {
    int64_t bytes = part.count * elementSize;
    int64_t row = part.inner * elementSize;
    switch (call.kind) {
    case CollectiveKind::AllGather:
      transfers.copy2d(part.dst + call.self * row, size * row, part.src, row,
                       part.outer, row);
      break;
    case CollectiveKind::AllToAll:
      transfers.retile(
          {part.dst + call.self * part.dstInner * elementSize, part.dstInner,
           size * part.dstInner},
          {part.src + call.self * row, part.inner, size * part.inner},
          part.count, elementSize);
      break;
    case CollectiveKind::AllToAllV:
      transfers.copy(part.dst + call.self * bytes, part.src + call.self * bytes,
                     rowsOf(planned, planned.sent, call.self) * row);
      break;
    case CollectiveKind::Permute:
      if (call.sources[call.self] < 0)
        transfers.zero(part.dst, bytes);
      else if (call.sources[call.self] == call.self)
        transfers.copy(part.dst, part.src, bytes);
      break;
    default: // Broadcast
      if (call.root == call.self)
        transfers.copy(part.dst, part.src, bytes);
    }
  }
}
