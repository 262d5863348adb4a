// Streams, events and operations of the simulated driver. Enqueued operations
// run one at a time, each as soon as the operations that it waits for have run.
#ifndef CLEAVE_TEST_GPU_RECORDER_QUEUE_H
#define CLEAVE_TEST_GPU_RECORDER_QUEUE_H

#include "clock.h"
#include "memory.h"
#include "report.h"

#include <cuda.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace recorder {

struct Capture;

// A recorded event. An operation that waits for the event happens after
// everything in the event's clock.
struct Signal {
  bool isDone = false;
  Clock clock;
  std::chrono::steady_clock::time_point when;
  Capture *capture = nullptr; // made by a stream that was capturing
};

// The part of an operation that several ranks execute together, such as a
// collective.
class Meeting {
public:
  virtual ~Meeting() = default;
  virtual void arrive(const Clock &clock) = 0; // once
  virtual bool isDone() const = 0;
  virtual void leave(Clock &clock) = 0; // joins the clocks of the ranks it met
  virtual std::string missing() const = 0;
};

struct Operation {
  std::shared_ptr<Who> who; // NULL: of an event, no work
  std::vector<Access> accesses;
  bool crossesDevices = false; // may touch other devices' memory
  std::function<void()> run;
  // Called when the operation is enqueued, in the order of the stream. Returns
  // the meeting in which this rank and the other ranks of the collective or
  // message execute it together.
  std::function<std::shared_ptr<Meeting>()> meet;
  std::shared_ptr<Signal> waits, records;

  std::shared_ptr<Meeting> meeting;
  std::shared_ptr<const Clock> host; // when it was enqueued
  bool hasBegun = false;
};

struct Stream {
  int number = 0, lane = 0, device = 0;
  std::deque<Operation> queue;
  Clock clock;
  uint64_t tick = 0;
  std::shared_ptr<const Note> note;
  Capture *capture = nullptr;
  bool isDefault = false;
};

struct Event {
  std::shared_ptr<Signal> signal; // of the last record
  int device = 0;
  bool isTimed = false;
};

// The operations of one capture, in the order in which they were enqueued. Lane
// 0 is the stream on which the capture began.
struct Graph {
  struct Step {
    int lane = 0;
    Operation operation;
  };
  std::vector<Step> steps;
  int lanes = 1;
};
struct Capture {
  Stream *origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const void *thread = nullptr;
  std::vector<Stream *> streams; // by lane
  Graph graph;
  bool isBroken = false;
};
struct GraphExec {
  Graph graph;
  std::vector<Stream *> lanes; // lane 0 is the stream it is launched on
};

struct Device {
  int number = 0;
  Stream defaultStream;
  std::set<int> peers; // whose memory it may touch
};

// All state of the simulated CUDA library, under one lock.
class Recorder {
public:
  static Recorder &get();

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex); }

  //--- Streams (queue.cpp) ---------------------------------------------------
  Stream *makeStream(int device);
  void destroyStream(Stream *stream);
  // Returns the stream of a handle, or NULL if there is none. Handle 0 is the
  // default stream of the current device.
  Stream *stream(CUstream handle);
  Event *event(CUevent handle);

  // Adds an operation to the stream. Stores the host's vector clock in the
  // operation, because the operation runs after everything that the host has
  // waited for.
  void enqueue(Stream &stream, Operation operation);
  std::shared_ptr<Who> name(Stream &stream, const std::string &what);
  // Runs all operations that can run.
  void advance();
  // Waits until done() returns true. Returns false and reports an error if that
  // takes longer than the timeout.
  bool wait(std::unique_lock<std::mutex> &lock, const std::string &what,
            const std::function<bool()> &done);
  void hostJoins(const Clock &clock);
  // Returns a text for error messages that says which operation is at the front
  // of the stream's queue and has not finished.
  std::string stuck(const Stream &stream) const;

  // Checks the memory that the operation accesses. Returns false if the
  // operation must not run.
  bool enter(Operation &operation, Stream &stream);

  //--- Captures (capture.cpp) ------------------------------------------------
  CUresult beginCapture(Stream &stream, CUstreamCaptureMode mode);
  CUresult endCapture(Stream &stream, Graph **out);
  CUresult waitEvent(Stream &stream, Event &event);
  CUresult recordEvent(Stream &stream, Event &event);
  CUresult launch(GraphExec &exec, Stream &stream);
  void append(Stream &stream, Operation operation);
  void addLane(Capture &capture, Stream &stream);
  // Returns an error if this thread or, depending on the capture mode, any
  // thread captures; called by functions that are unsafe during a capture.
  CUresult checkUnsafe();

  Report report;
  Memory memory;
  std::vector<std::unique_ptr<Device>> devices;
  std::set<Stream *> streams;
  std::set<Event *> events;
  std::set<Capture *> captures;
  std::set<Graph *> graphs;
  std::set<GraphExec *> execs;
  std::condition_variable changed;
  double timeout = 60;
  // The clock of the host, which all threads share: what a thread does comes
  // after everything that any thread has waited for, because the recorder does
  // not see how threads synchronise.
  std::shared_ptr<const Clock> host = std::make_shared<Clock>();

private:
  Recorder();
  bool step(Stream &stream);

  std::mutex mutex;
  int madeStreams = 0, madeLanes = 0;
  std::vector<std::pair<int, uint64_t>> freeLanes; // and their last tick
  uint64_t madeOperations = 0;
  bool isLazy = false; // work runs only when somebody waits for it
};

// The current device of this thread, or NULL if none is current.
extern thread_local Device *currentDevice;

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_QUEUE_H
