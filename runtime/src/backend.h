// The interface of the device-dependent part of executing a program. A Rank
// resolves the addresses of a command and checks that they are within its
// arenas. The backend then turns the command into a call that runs it. Each
// rank has its own backend.
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

// The memory of one arena of one rank, zeroed when it is allocated. Addresses
// are device addresses; the host accesses the memory only through these
// functions.
class Storage {
public:
  virtual ~Storage() = default;
  virtual char *data() const = 0;
  virtual int64_t size() const = 0;
  virtual int64_t slack() const { return 0; } // usable bytes after the end

  // Copies bytes [at, at + bytes) from the host, or to the host.
  virtual void write(int64_t at, const void *from, int64_t bytes) = 0;
  virtual void read(int64_t at, void *to, int64_t bytes) const = 0;
  virtual void zero(int64_t at, int64_t bytes) = 0;
  // Returns when all written bytes are visible to other ranks and to the host,
  // not only to the rank's own commands.
  virtual void finish() {}
  // Returns whether the host may access data() directly.
  virtual bool isHost() const { return false; }

  // For the poison mode; see class Memory (memory.h).
  virtual void poison(int64_t at, int64_t bytes) = 0;
  virtual int64_t touched(int64_t at, int64_t bytes) const = 0;
  virtual void guard() {}
  virtual bool guardIntact() const { return true; }
};

// The largest byte range that a command may read or write through one operand.
struct Access {
  const char *at = nullptr;
  int64_t bytes = 0;
  bool written = false;
};

// The position of a call in the program, for messages and recordings.
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

  // Binds the backend to the calling thread, which must be the rank's own,
  // before all other calls: libraries keep state per thread. `meanwhile` is
  // called periodically while the host waits for the device; it throws if a
  // transfer is lost.
  virtual void attach(std::function<void()> meanwhile) = 0;

  virtual std::unique_ptr<Storage> allocate(int64_t bytes,
                                            const std::string &purpose) = 0;

  // Returns the bytes of scratch memory that a library command needs, or -1 if
  // the command is not supported, with the reason in `error`.
  virtual int64_t workspace(const program::Gemm &gemm,
                            std::string &error) const = 0;
  virtual int64_t workspace(const program::Attention &attention,
                            std::string &error) const = 0;
  virtual int64_t workspace(const program::GroupedGemm &grouped,
                            std::string &error) const = 0;
  virtual int64_t workspace(const program::Convolution &convolution,
                            std::string &error) const = 0;

  // Each of the following functions prepares a command and returns a call that
  // runs it. On a device the call only enqueues the command; finish() reports
  // errors of its execution.
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
  // Copies blocks of `block` bytes each. `dims` is the number of blocks in each
  // dimension, and strides are in bytes. The caller has merged trailing
  // dimensions that are dense in both arrays into the block.
  virtual Run copy(const CopyBuffers &buffers, int64_t block,
                   std::vector<int64_t> dims, std::vector<int64_t> srcStrides,
                   std::vector<int64_t> dstStrides) = 0;
  virtual Run fill(char *dst, int64_t count, int64_t size,
                   uint64_t pattern) = 0;

  // Waits until the flag of a condition has been computed and returns its
  // value.
  virtual char flag(const char *at) = 0;

  // Returns a call that does the same as `run` (the call of a command or of a
  // collective) and also records its position in the program.
  virtual Run at(CallSite site, Run run) {
    (void)site;
    return run;
  }

  // Called after the last command of an action; returns when all commands are
  // complete.
  virtual void finish() {}

  // Marks measure the times of commands for traces. A mark is reached when all
  // calls before it are complete; mark(0) precedes all calls of an action.
  // After finish(), passed(n) returns the time at which mark n was reached, on
  // the clock of traceClock().
  virtual void makeMarks(size_t count) { marks.resize(count); }
  virtual void mark(size_t number) { marks[number] = traceClock(); }
  virtual int64_t passed(size_t number) { return marks[number]; }

  // Recording and replay of actions (CUDA graphs). replay() runs an action that
  // was recorded earlier; it returns false if there is no recording. Between
  // beginCapture() and endCapture() calls are recorded and not executed. Then
  // endCapture() executes the recording.
  virtual bool replay(const program::Action &) { return false; }
  virtual bool beginCapture(const program::Action &) { return false; }
  virtual void endCapture(const program::Action &) {}
  virtual void cancelCapture() {} // discards a recording after a failure
  // Drops all recorded actions, because memory that they refer to will be
  // freed.
  virtual void forget() {}

  // Returns the stream on which commands are enqueued, so that transfers can be
  // ordered after them; NULL if the device has no streams.
  virtual void *stream() const { return nullptr; }

private:
  std::vector<int64_t> marks;
};

std::unique_ptr<Backend> makeCpuBackend(cleave_program &program, int rank,
                                        int threads,
                                        std::atomic<int64_t> &attentionFlops);

} // namespace cleave

#endif // CLEAVE_RUNTIME_BACKEND_H
