// The messages of a collective: which member sends which bytes to which, and
// how a member processes received bytes. The number of bytes and the order of
// summation are the same as in the `local` transport.
#ifndef CLEAVE_RUNTIME_ROUTES_H
#define CLEAVE_RUNTIME_ROUTES_H

#include "transport.h"
#include "wire.h"

#include <vector>

namespace cleave {

// Rows of bytes of equal length and at equal distances. Each row is contiguous.
struct Rows {
  char *at = nullptr;
  int64_t rows = 1, bytes = 0, stride = 0;

  int64_t total() const { return rows * bytes; }
  bool dense() const { return rows == 1 || stride == bytes; }

  // If `next` is a single row that continues these rows at the same stride,
  // adds it to them; otherwise returns false.
  bool append(const Rows &next) {
    int64_t step = rows == 1 ? next.at - at : stride;
    if (next.rows != 1 || next.bytes != bytes || step < bytes ||
        next.at != at + rows * step)
      return false;
    ++rows;
    stride = step;
    return true;
  }
};

// The data that is sent to one member or received from it in one phase.
// `places` lists the memory from which the data is sent or to which it is
// received. It is empty for received data that must be reduced first; such data
// stays in scratch memory.
struct Parcel {
  Parcel(int member, bool isIncoming)
      : member(member), isIncoming(isIncoming) {}

  void add(Rows rows) {
    if (rows.total() == 0)
      return;
    bytes += rows.total();
    if (!places.empty() && places.back().append(rows))
      return;
    places.push_back(rows);
  }

  int member;
  bool isIncoming;
  int64_t bytes = 0;
  std::vector<Rows> places;
  char *memory = nullptr, *scratch = nullptr; // while data is in flight
  std::vector<Wire::Request> pieces;
};

// One member's part in a collective. The call must outlive this object.
class Routes {
public:
  // Most collectives have only a first phase. An all-reduce has a second phase,
  // in which each member sends the chunk that it has reduced. An exchange of
  // two rounds (cleave/exchange.h) has a second phase, too: in the first phase
  // members assemble elements of the target tiles, and in the second phase they
  // send these elements to the other members that need them.
  enum Phase { First, Second, phases };

  explicit Routes(const CollectiveCall &call);

  // For AllToAllV: plans again, with the counts that are in memory now.
  void replan();

  // Reduces or copies the received data. Must be called when the first phase is
  // complete.
  void combine();

  // Returns whether every member waits for every other member. If so, the
  // members that never arrived can be named in the error after a timeout.
  bool isMutual() const;

  std::vector<Parcel> parcels[phases];

private:
  // The messages to one member and from another one, in both phases.
  struct Messages {
    Messages(int to, int from)
        : out(to, false), in(from, true), outNext(to, false),
          inNext(from, true) {}
    Parcel out, in, outNext, inNext;
  };

  template <class Body>
  void forRows(const Part &part, const program::ExchangePiece &piece,
               Body body) const;
  Rows dense(char *at, int64_t elements) const;
  Rows block(char *at, int member, int64_t outer, int64_t inner) const;
  void plan(int to, int from);
  void planAllReduce(Messages &m) const;
  void planBlocks(Messages &m, const Part &part) const;
  void planTiles(Messages &m) const;
  void planExchange(Messages &m) const;
  void keep(Phase phase, Parcel parcel);
  void aim(int64_t offset, const char *own);
  void reduceChunk();
  void reduceBlocks();
  void assemble();
  void copyOwn();

  const CollectiveCall &call;
  const int64_t elementSize;
  const int size;
  std::vector<const char *> sources, terms;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_ROUTES_H
