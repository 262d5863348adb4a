// Where a rank computes: all of a command that depends on the device. A Rank
// finds addresses and checks that they are in its arenas; the backend makes
// calls of them. One backend for each rank.
#ifndef CLEAVE_RUNTIME_BACKEND_H
#define CLEAVE_RUNTIME_BACKEND_H

#include "cleave/program.h"
#include "command_buffers.h"
#include "trace.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

struct cleave_program;

namespace cleave {

// The memory of one arena of one rank, zeroed at first. Addresses are those of
// the device; the host may touch them only through these functions.
class Storage {
public:
  virtual ~Storage() = default;
  virtual char *data() const = 0;
  virtual int64_t size() const = 0;
  virtual int64_t slack() const { return 0; } // usable bytes past the end

  // Bytes [at, at + bytes) to and from the host.
  virtual void write(int64_t at, const void *from, int64_t bytes) = 0;
  virtual void read(int64_t at, void *to, int64_t bytes) const = 0;
  virtual void zero(int64_t at, int64_t bytes) = 0;
  // Until all that was written is there for others than the rank's commands.
  virtual void finish() {}
  // Whether the host may use data() as it is.
  virtual bool isHost() const { return false; }

  // Poison mode: as Memory has them.
  virtual void poison(int64_t at, int64_t bytes) = 0;
  virtual int64_t touched(int64_t at, int64_t bytes) const = 0;
  virtual void guard() {}
  virtual bool guardIntact() const { return true; }
};

// What a command reads or writes, at most.
struct Access {
  const char *at = nullptr;
  int64_t bytes = 0;
  bool written = false;
};

// Where a call stands in the program, for messages and recordings.
struct CallSite {
  const program::Action *action = nullptr;
  int index = -1;
  const program::Command *command = nullptr;
  std::vector<Access> accesses;
};

class Backend {
public:
  using Run = std::function<void()>;

  virtual ~Backend() = default;

  // On the rank's own thread, before all that follows: libraries keep state per
  // thread. `meanwhile` is called now and then while the host waits for the
  // device; it throws where a transfer is lost.
  virtual void attach(std::function<void()> meanwhile) = 0;

  virtual std::unique_ptr<Storage> allocate(int64_t bytes,
                                            const std::string &purpose) = 0;

  // Bytes of scratch memory of a library command; -1 where it is not
  // supported, with the reason in `error`.
  virtual int64_t workspace(const program::Gemm &gemm,
                            std::string &error) const = 0;
  virtual int64_t workspace(const program::Attention &attention,
                            std::string &error) const = 0;
  virtual int64_t workspace(const program::GroupedGemm &grouped,
                            std::string &error) const = 0;
  virtual int64_t workspace(const program::Convolution &convolution,
                            std::string &error) const = 0;

  // Calls that carry out a command. On a device they only enqueue it; what
  // goes wrong there is found by finish().
  virtual Run launch(const program::Launch &launch,
                     std::vector<void *> args) = 0;
  virtual Run gemm(const program::Gemm &gemm, const GemmBuffers &buffers,
                   int64_t workspaceBytes) = 0;
  virtual Run attention(const program::Attention &attention,
                        const AttentionBuffers &buffers) = 0;
  virtual Run grouped(const program::GroupedGemm &grouped,
                      const GroupedBuffers &buffers) = 0;
  virtual Run convolution(const program::Convolution &convolution,
                          const ConvolutionBuffers &buffers) = 0;
  virtual Run planRows(const program::PlanRows &plan,
                       const PlanRowsBuffers &buffers) = 0;
  virtual Run sortRows(const program::SortRows &sort,
                       const SortRowsBuffers &buffers) = 0;
  virtual Run positionInExpert(const program::PositionInExpert &order,
                               const PositionInExpertBuffers &buffers) = 0;
  // `dims` and the strides in bytes; trailing dimensions that are dense on both
  // sides are one block of `block` bytes already.
  virtual Run copy(const CopyBuffers &buffers, int64_t block,
                   std::vector<int64_t> dims, std::vector<int64_t> srcStrides,
                   std::vector<int64_t> dstStrides) = 0;
  virtual Run fill(char *dst, int64_t count, int64_t size,
                   uint64_t pattern) = 0;

  // The value of the byte of a condition, once it is known.
  virtual char flag(const char *at) = 0;

  // `run` at its place in the program, collectives included.
  virtual Run at(CallSite site, Run run) {
    (void)site;
    return run;
  }

  // After the last command of an action: returns when all of it is done.
  virtual void finish() {}

  // Traces. mark(n) is passed when all that was called before is done; once
  // finish() has returned, passed(n) is when that was, by traceClock(). mark(0)
  // comes first, before any call of an action.
  virtual void makeMarks(size_t count) { marks.resize(count); }
  virtual void mark(size_t number) { marks[number] = traceClock(); }
  virtual int64_t passed(size_t number) { return marks[number]; }

  // An action that has run before may be replayed as a whole. replay() does so,
  // or says that it cannot; between beginCapture() and endCapture() calls are
  // not carried out but kept, and endCapture() carries them out.
  virtual bool replay(const program::Action &) { return false; }
  virtual bool beginCapture(const program::Action &) { return false; }
  virtual void endCapture(const program::Action &) {}
  virtual void cancelCapture() {} // after a failure
  // Lets go of what can be replayed: memory that it names goes next.
  virtual void forget() {}

  // The stream of commands that transfers order themselves with; NULL: none.
  virtual void *stream() const { return nullptr; }

private:
  std::vector<int64_t> marks;
};

std::unique_ptr<Backend> makeCpuBackend(cleave_program &program, int rank,
                                        int threads,
                                        std::atomic<int64_t> &attentionFlops);

} // namespace cleave

#endif // CLEAVE_RUNTIME_BACKEND_H
