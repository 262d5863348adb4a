// Collectives and transfers between ranks.
#ifndef CLEAVE_PROGRAM_COLLECTIVES_H
#define CLEAVE_PROGRAM_COLLECTIVES_H

#include "cleave/program/values.h"

#include <cstdint>
#include <vector>

namespace cleave::program {

enum class CollectiveKind : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Permute,
  Broadcast,
  Exchange,
  SendRecv,
  AllToAllV,
};
inline constexpr CollectiveKind lastCollectiveKind = CollectiveKind::AllToAllV;

// One buffer of a collective; N is the group's size. Elements of src and dst:
//   AllReduce, Permute, Broadcast: [count]
//   AllGather:     src [outer, inner] -> dst [outer, N, inner]
//   ReduceScatter: src [outer, N, inner] -> dst [outer, inner]
//   AllToAll:      src [outer, N, inner] -> dst [dstOuter, N, dstInner], block
//                  p of src goes to member p, block p of dst comes from it
//   AllToAllV:     src, dst [N, outer, inner]: the first Collective::sent[p]
//                  rows of block p of src go to member p; the rows that come
//                  from p are the first Collective::received[p] rows of block p
//                  of dst
//   Exchange:      src [count], the source tile; dst [dstOuter * dstInner], the
//                  target tile (see Exchange); inner = count
//   SendRecv:      src [count] at the sender, dst [count] at the receiver; the
//                  other buffer is ignored
// Here count = outer * inner = dstOuter * dstInner, except for Exchange. src
// and dst do not overlap, with these exceptions: for AllReduce and Broadcast
// dst may be src; if outer = 1, src of an AllGather may be the member's own
// block of dst, and dst of a ReduceScatter its own block of src.
struct Transfer {
  BufferRef src, dst;
  int64_t count = 0;
  int64_t outer = 1, inner = 0;
  int64_t dstOuter = 1, dstInner = 0;
};

// For an Exchange: the layout of a tensor of the given shape before and after
// it. Dimension i is split along the sub-axes from[i] before and to[i] after
// the exchange, into tiles of ceil(shape[i] / number of tiles), in row-major
// order. The source is a partial sum over the axes `partial`, which the
// exchange reduces; the result is a partial sum over `toPartial`. Sub-axes
// outside the group split both layouts in the same way. With two rounds every
// element is first assembled at one member and then copied to the others.
// cleave/exchange.h computes which member sends which elements to which.
// Padding is not written.
struct Exchange {
  std::vector<int64_t> shape;
  std::vector<std::vector<SubAxis>> from, to;
  std::vector<SubAxis> partial, toPartial;
  int32_t rounds = 1;
};

// A collective. Ranks with the same index on all mesh axes outside `group` form
// a group, ordered row-major over the axes of `group` (first entry slowest).
// With `token` >= 0 the collective is asynchronous: a Wait with this token ends
// it, and until then no other command accesses its buffers. Permute: member i
// receives from sources[i], or zeros if sources[i] is -1. Broadcast: all
// receive from member `root`.
//
// If `positions` is not empty, only the ranks at these positions of the group
// take part and run the command: member i is the rank at positions[i].
//
// SendRecv is always asynchronous: positions[0] sends to positions[1]. For each
// ordered pair of ranks, the k-th start of the sender matches the k-th start of
// the receiver, regardless of other commands. The sender's Wait returns when
// src may be overwritten, the receiver's Wait when dst is complete. Each Wait
// requires only that the other rank has started the transfer.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  ReduceOp reduce = ReduceOp::Sum;
  DType dtype = DType::F32;
  std::vector<SubAxis> group;
  std::vector<Transfer> parts;
  // gradient | parameter | activation | expert | norm | loss | pipeline
  StringId purpose = 0;
  int32_t token = -1;
  std::vector<int32_t> sources;
  int32_t root = 0;
  std::vector<Exchange> exchanges; // Exchange: one for each part
  std::vector<int32_t> positions;
  // For AllToAllV: the addresses of the numbers of rows (i64) that go to each
  // member and that come from each member. Sender and receiver know the numbers
  // before the collective starts.
  BufferRef sent, received;
  // For reports only: the number of rows that a rank is expected to send to all
  // members together. If this number depends on a rank's index on some sub-axes
  // of the mesh, `by` lists them, and `expected` has one number for each
  // combination of indices on them; otherwise `expected` has one number. `home`
  // is true if the collective returns rows to the ranks that they came from.
  std::vector<int64_t> expected;
  std::vector<SubAxis> by;
  bool home = false;
};

struct Wait {
  int32_t token = 0;
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_COLLECTIVES_H
