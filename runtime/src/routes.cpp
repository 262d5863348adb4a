// Plans the messages of a collective, and reduces received data.

#include "routes.h"

#include <algorithm>
#include <cstring>

using namespace cleave;
using program::CollectiveKind;

namespace {
bool isSentBy(const program::ExchangePiece &piece, int member) {
  return std::find(piece.senders.begin(), piece.senders.end(), member) !=
         piece.senders.end();
}

// Copies a sequence of bytes. Source and destination may divide the sequence
// into rows of different lengths.
void copyRows(const Rows &from, const Rows &to) {
  for (int64_t at = 0, total = from.total(); at < total;) {
    int64_t srcColumn = at % from.bytes, dstColumn = at % to.bytes;
    int64_t run = std::min(from.bytes - srcColumn, to.bytes - dstColumn);
    char *src = from.at + at / from.bytes * from.stride + srcColumn;
    char *dst = to.at + at / to.bytes * to.stride + dstColumn;
    if (src != dst)
      std::memcpy(dst, src, run);
    at += run;
  }
}
} // namespace

Routes::Routes(const CollectiveCall &call)
    : call(call), elementSize(program::sizeOf(call.dtype)),
      size(static_cast<int>(call.members.size())), sources(size) {
  if (call.kind != CollectiveKind::AllToAllV)
    replan();
}

void Routes::replan() {
  for (std::vector<Parcel> &phase : parcels)
    phase.clear();
  for (int step = 1; step < size; ++step)
    plan((call.self + step) % size, (call.self + size - step) % size);
}

bool Routes::isMutual() const {
  return call.kind != CollectiveKind::Permute &&
         call.kind != CollectiveKind::Broadcast &&
         call.kind != CollectiveKind::Exchange &&
         call.kind != CollectiveKind::SendRecv;
}

//--- The plan ----------------------------------------------------------------

Rows Routes::dense(char *at, int64_t elements) const {
  int64_t bytes = elements * elementSize;
  return {at, 1, bytes, bytes};
}
// Returns the rows of block `member` in an array of shape [outer, size, inner]
// that begins at `at`.
Rows Routes::block(char *at, int member, int64_t outer, int64_t inner) const {
  int64_t row = inner * elementSize;
  return {at + member * row, outer, row, size * row};
}

// Calls body(offset in the sender's tile, offset in the receiver's tile, bytes)
// for each contiguous row of the rectangular range of elements `piece`.
template <class Body>
void Routes::forRows(const Part &part, const program::ExchangePiece &piece,
                     Body body) const {
  size_t rank = piece.sizes.size();
  int64_t row = rank ? piece.sizes.back() : 1;
  int64_t rows = row ? piece.count() / row : 0;
  const std::vector<int64_t> &strides =
      piece.round ? part.dstStrides : part.srcStrides;
  for (int64_t number = 0; number < rows; ++number) {
    int64_t src = rank ? piece.srcAt.back() : 0;
    int64_t dst = rank ? piece.dstAt.back() : 0;
    int64_t rest = number;
    for (size_t dim = rank; dim-- > 1; rest /= piece.sizes[dim - 1]) {
      int64_t at = rest % piece.sizes[dim - 1];
      src += (piece.srcAt[dim - 1] + at) * strides[dim - 1];
      dst += (piece.dstAt[dim - 1] + at) * part.dstStrides[dim - 1];
    }
    body(src * elementSize, dst * elementSize, row * elementSize);
  }
}

void Routes::keep(Phase phase, Parcel parcel) {
  if (parcel.bytes)
    parcels[phase].push_back(std::move(parcel));
}

// Plans an all-reduce: each member reduces one chunk and sends the result to
// the other members.
void Routes::planAllReduce(Messages &m) const {
  const int to = m.out.member, from = m.in.member;
  forChunk(call, to, [&](size_t index, int64_t begin, int64_t end) {
    const Part &part = call.parts[index];
    m.out.add(dense(part.src + begin * elementSize, end - begin));
  });
  forChunk(call, call.self, [&](size_t index, int64_t begin, int64_t end) {
    const Part &part = call.parts[index];
    m.in.bytes += (end - begin) * elementSize;
    m.outNext.add(dense(part.dst + begin * elementSize, end - begin));
  });
  forChunk(call, from, [&](size_t index, int64_t begin, int64_t end) {
    const Part &part = call.parts[index];
    m.inNext.add(dense(part.dst + begin * elementSize, end - begin));
  });
}

// Plans collectives in which a dimension of the buffer consists of one block
// for each member.
void Routes::planBlocks(Messages &m, const Part &part) const {
  const int to = m.out.member, from = m.in.member;
  switch (call.kind) {
  case CollectiveKind::AllGather:
    m.out.add(dense(part.src, part.count));
    m.in.add(block(part.dst, from, part.outer, part.inner));
    break;
  case CollectiveKind::ReduceScatter:
    m.out.add(block(part.src, to, part.outer, part.inner));
    m.in.bytes += part.count * elementSize;
    break;
  case CollectiveKind::AllToAll:
    m.out.add(block(part.src, to, part.outer, part.inner));
    m.in.add(block(part.dst, from, part.dstOuter, part.dstInner));
    break;
  default: { // AllToAllV
    int64_t block = part.count * elementSize;
    m.out.add(
        dense(part.src + to * block, rowsOf(call, call.sent, to) * part.inner));
    m.in.add(dense(part.dst + from * block,
                   rowsOf(call, call.received, from) * part.inner));
  }
  }
}

// Plans collectives that move whole tiles (SendRecv, Permute, Broadcast). A
// tile is sent to each member that receives it.
void Routes::planTiles(Messages &m) const {
  const int to = m.out.member, from = m.in.member;
  bool sends = call.self == 0, receives = !sends; // for SendRecv
  if (call.kind == CollectiveKind::Permute) {
    sends = call.sources[to] == call.self;
    receives = call.sources[call.self] == from;
  } else if (call.kind == CollectiveKind::Broadcast) {
    sends = call.root == call.self;
    receives = call.root == from;
  }
  for (const Part &part : call.parts) {
    if (sends)
      m.out.add(dense(part.src, part.count));
    if (receives)
      m.in.add(dense(part.dst, part.count));
  }
}

void Routes::planExchange(Messages &m) const {
  const int to = m.out.member, from = m.in.member;
  for (const Part &part : call.parts)
    for (const program::ExchangePiece &piece : part.pieces) {
      bool goes = piece.receiver == to && isSentBy(piece, call.self);
      bool comes = piece.receiver == call.self && isSentBy(piece, from);
      if (!goes && !comes)
        continue;
      if (!piece.round && comes)
        m.in.bytes += piece.count() * elementSize;
      if (piece.round || goes)
        forRows(part, piece, [&](int64_t src, int64_t dst, int64_t bytes) {
          if (!piece.round)
            m.out.add({part.src + src, 1, bytes, bytes});
          else if (goes)
            m.outNext.add({part.dst + src, 1, bytes, bytes});
          else
            m.inNext.add({part.dst + dst, 1, bytes, bytes});
        });
    }
}

void Routes::plan(int to, int from) {
  Messages m(to, from);
  switch (call.kind) {
  case CollectiveKind::AllReduce:
    planAllReduce(m);
    break;
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::AllToAll:
  case CollectiveKind::AllToAllV:
    for (const Part &part : call.parts)
      planBlocks(m, part);
    break;
  case CollectiveKind::Permute:
  case CollectiveKind::Broadcast:
  case CollectiveKind::SendRecv:
    planTiles(m);
    break;
  case CollectiveKind::Exchange:
    planExchange(m);
    break;
  }
  keep(First, std::move(m.out));
  keep(First, std::move(m.in));
  keep(Second, std::move(m.outNext));
  keep(Second, std::move(m.inNext));
}

//--- Processing of received data ---------------------------------------------

void Routes::combine() {
  switch (call.kind) {
  case CollectiveKind::AllReduce:
    return reduceChunk();
  case CollectiveKind::ReduceScatter:
    return reduceBlocks();
  case CollectiveKind::Exchange:
    return assemble();
  case CollectiveKind::SendRecv:
    return;
  default:
    return copyOwn();
  }
}

// Sets sources[m] to the address at which the data of member m begins: `own`
// for this rank, and for another member the byte `offset` of the data that was
// received from it.
void Routes::aim(int64_t offset, const char *own) {
  for (const Parcel &parcel : parcels[First])
    if (parcel.isIncoming)
      sources[parcel.member] = parcel.memory + offset;
  sources[call.self] = own;
}

void Routes::reduceChunk() {
  int64_t offset = 0;
  forChunk(call, call.self, [&](size_t index, int64_t begin, int64_t end) {
    const Part &part = call.parts[index];
    aim(offset, part.src + begin * elementSize);
    reduceInto(part.dst + begin * elementSize, sources, end - begin, call.dtype,
               call.reduce);
    offset += (end - begin) * elementSize;
  });
}

void Routes::reduceBlocks() {
  int64_t offset = 0;
  for (const Part &part : call.parts) {
    int64_t row = part.inner * elementSize;
    for (int64_t o = 0; o < part.outer && row; ++o, offset += row) {
      aim(offset, part.src + (o * size + call.self) * row);
      reduceInto(part.dst + o * row, sources, part.inner, call.dtype,
                 call.reduce);
    }
  }
}

// Assembles this member's target tile of an exchange (cleave/exchange.h) from
// the rectangular ranges of elements that it received. The message from each
// member contains its ranges in the order of Part::pieces. Ranges that another
// member assembled and sends in the second round are received directly into the
// target tile, so they are left out here.
void Routes::assemble() {
  std::vector<const char *> &next = sources;
  for (const Parcel &parcel : parcels[First])
    if (parcel.isIncoming)
      next[parcel.member] = parcel.memory;
  for (const Part &part : call.parts)
    for (const program::ExchangePiece &piece : part.pieces) {
      if (piece.receiver != call.self || piece.round)
        continue;
      terms.resize(piece.senders.size());
      forRows(part, piece, [&](int64_t src, int64_t dst, int64_t bytes) {
        for (size_t i = 0; i < terms.size(); ++i) {
          int sender = piece.senders[i];
          terms[i] = sender == call.self ? part.src + src : next[sender];
          if (sender != call.self)
            next[sender] += bytes;
        }
        if (terms.empty())
          std::memset(part.dst + dst, 0, bytes);
        else if (terms.size() == 1)
          std::memcpy(part.dst + dst, terms[0], bytes);
        else
          reduceInto(part.dst + dst, terms, bytes / elementSize, call.dtype,
                     call.reduce);
      });
    }
}

// Copies the part of the data that this member sends to itself.
void Routes::copyOwn() {
  for (const Part &part : call.parts) {
    Rows from = dense(part.src, part.count), to = dense(part.dst, part.count);
    if (call.kind == CollectiveKind::AllGather) {
      to = block(part.dst, call.self, part.outer, part.inner);
    } else if (call.kind == CollectiveKind::AllToAll) {
      from = block(part.src, call.self, part.outer, part.inner);
      to = block(part.dst, call.self, part.dstOuter, part.dstInner);
    } else if (call.kind == CollectiveKind::AllToAllV) {
      int64_t own = call.self * part.count * elementSize;
      int64_t elements = rowsOf(call, call.sent, call.self) * part.inner;
      from = dense(part.src + own, elements);
      to = dense(part.dst + own, elements);
    } else if (call.kind == CollectiveKind::Permute) {
      if (call.sources[call.self] < 0)
        std::memset(part.dst, 0, to.bytes);
      if (call.sources[call.self] != call.self)
        continue;
    } else if (call.root != call.self) {
      continue;
    }
    copyRows(from, to);
  }
}
