// Streams, events and operations: what was enqueued runs, one operation at a
// time, as soon as what it waits for has run.
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

// The record of an event: what comes after it comes after its clock.
struct Signal {
  bool isDone = false;
  Clock clock;
  std::chrono::steady_clock::time_point when;
  Capture *capture = nullptr; // made by a stream that was capturing
};

// What an operation does together with others, of other ranks.
class Meeting {
public:
  virtual ~Meeting() = default;
  virtual void arrive(const Clock &clock) = 0; // once
  virtual bool isDone() const = 0;
  virtual void leave(Clock &clock) = 0; // joins the clocks of those it heard
  virtual std::string missing() const = 0;
};

struct Operation {
  std::shared_ptr<Who> who; // NULL: of an event, no work
  std::vector<Access> accesses;
  bool crossesDevices = false; // may touch other devices' memory
  std::function<void()> run;
  // Called when the operation is enqueued, in order.
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

// What one capture has seen, in the order in which it was enqueued. Lane 0 is
// the stream that began it.
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

// All that there is, under one lock.
class Recorder {
public:
  static Recorder &get();

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex); }

  //--- Streams (queue.cpp) ---------------------------------------------------
  Stream *makeStream(int device);
  void destroyStream(Stream *stream);
  // NULL where there is none; the handle 0 is the device's default stream.
  Stream *stream(CUstream handle);
  Event *event(CUevent handle);

  // Fills who (but for `what`) and what the host has seen.
  void enqueue(Stream &stream, Operation operation);
  std::shared_ptr<Who> name(Stream &stream, const std::string &what);
  // Runs what can run.
  void advance();
  // Until done() holds; false after a while, with an error.
  bool wait(std::unique_lock<std::mutex> &lock, const std::string &what,
            const std::function<bool()> &done);
  void hostJoins(const Clock &clock);
  // What a queue is stuck at, for messages.
  std::string stuck(const Stream &stream) const;

  // Checks what it touches; false where it must not run.
  bool enter(Operation &operation, Stream &stream);

  //--- Captures (capture.cpp) ------------------------------------------------
  CUresult beginCapture(Stream &stream, CUstreamCaptureMode mode);
  CUresult endCapture(Stream &stream, Graph **out);
  CUresult waitEvent(Stream &stream, Event &event);
  CUresult recordEvent(Stream &stream, Event &event);
  CUresult launch(GraphExec &exec, Stream &stream);
  void append(Stream &stream, Operation operation);
  void addLane(Capture &capture, Stream &stream);
  // What may not be done while this thread, or any, captures.
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
  // What any thread does on the host comes after all that any has waited for:
  // how threads wait for each other is not seen.
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

// The device that is current on this thread; NULL: none.
extern thread_local Device *currentDevice;

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_QUEUE_H
