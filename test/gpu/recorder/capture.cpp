// Events of the simulated driver, and graphs that are captured across streams
// through events.

#include "queue.h"

#include <map>

using namespace recorder;

namespace {
// The address of this variable identifies the thread.
thread_local char threadMark;

int laneOf(const Capture &capture, const Stream &stream) {
  for (size_t lane = 0; lane < capture.streams.size(); ++lane)
    if (capture.streams[lane] == &stream)
      return int(lane);
  return -1;
}
} // namespace

CUresult Recorder::checkUnsafe() {
  for (Capture *capture : captures)
    if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
        (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
         capture->thread == &threadMark)) {
      capture->isBroken = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  return CUDA_SUCCESS;
}

CUresult Recorder::beginCapture(Stream &stream, CUstreamCaptureMode mode) {
  if (stream.isDefault)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream.capture)
    return CUDA_ERROR_ILLEGAL_STATE;
  auto *capture = new Capture;
  capture->origin = &stream;
  capture->mode = mode;
  capture->thread = &threadMark;
  capture->streams = {&stream};
  stream.capture = capture;
  captures.insert(capture);
  return CUDA_SUCCESS;
}

void Recorder::append(Stream &stream, Operation operation) {
  Capture &capture = *stream.capture;
  capture.graph.steps.push_back(
      {laneOf(capture, stream), std::move(operation)});
}

void Recorder::addLane(Capture &capture, Stream &stream) {
  stream.capture = &capture;
  capture.streams.push_back(&stream);
  capture.graph.lanes = int(capture.streams.size());
}

CUresult Recorder::recordEvent(Stream &stream, Event &event) {
  event.signal = std::make_shared<Signal>();
  event.signal->capture = stream.capture;
  Operation record;
  record.records = event.signal;
  enqueue(stream, std::move(record));
  return CUDA_SUCCESS;
}

CUresult Recorder::waitEvent(Stream &stream, Event &event) {
  if (!event.signal) {
    // In CUDA, a stream does not wait for an event that was never recorded. A
    // caller never intends that, so it is an error here.
    report.error("stream " + std::to_string(stream.number) +
                 " waits for an event that was never recorded");
    return CUDA_SUCCESS;
  }
  if (Capture *capture = event.signal->capture) {
    if (!captures.count(capture))
      return CUDA_ERROR_CAPTURED_EVENT;
    if (!stream.capture)
      addLane(*capture, stream);
    if (stream.capture != capture) {
      capture->isBroken = stream.capture->isBroken = true;
      return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
  } else if (stream.capture) {
    stream.capture->isBroken = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  Operation wait;
  wait.waits = event.signal;
  enqueue(stream, std::move(wait));
  return CUDA_SUCCESS;
}

CUresult Recorder::endCapture(Stream &stream, Graph **out) {
  *out = nullptr;
  Capture *capture = stream.capture;
  if (!capture)
    return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != &stream)
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  for (Stream *member : capture->streams)
    member->capture = nullptr;
  captures.erase(capture);
  // The capture is complete only if the last operation of every lane, that is,
  // of every captured stream, happens before the end of the origin stream.
  std::vector<Clock> clocks(capture->graph.lanes);
  std::vector<uint64_t> ticks(capture->graph.lanes);
  std::map<const Signal *, Clock> signals;
  for (const Graph::Step &step : capture->graph.steps) {
    Clock &clock = clocks[step.lane];
    if (step.operation.waits)
      clock.join(signals[step.operation.waits.get()]);
    if (step.operation.who)
      clock.advance(step.lane, ++ticks[step.lane]);
    if (step.operation.records)
      signals[step.operation.records.get()] = clock;
  }
  bool isJoined = true;
  for (int lane = 0; lane < capture->graph.lanes; ++lane)
    isJoined = isJoined && clocks[0].at(lane) >= ticks[lane];
  CUresult status = capture->isBroken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                    : isJoined        ? CUDA_SUCCESS
                                      : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  if (status == CUDA_SUCCESS) {
    *out = new Graph(std::move(capture->graph));
    graphs.insert(*out);
  }
  // Events identify a capture by its address, so the capture object is kept and
  // its address is not used again.
  capture->graph = {};
  return status;
}

// Enqueues the captured operations again. Those of the stream on which the
// capture began run on `stream`; those of other captured streams run on streams
// that belong to the graph.
CUresult Recorder::launch(GraphExec &exec, Stream &stream) {
  if (stream.capture)
    return CUDA_ERROR_NOT_SUPPORTED;
  ++report.totals.graphs;
  for (size_t lane = exec.lanes.size(); lane < size_t(exec.graph.lanes); ++lane)
    exec.lanes.push_back(lane == 0 ? nullptr : makeStream(stream.device));
  auto on = [&](int lane) -> Stream & {
    return lane == 0 ? stream : *exec.lanes[lane];
  };
  auto signal = [&](Stream &from, Stream &to) {
    Operation record, wait;
    record.records = wait.waits = std::make_shared<Signal>();
    enqueue(from, std::move(record));
    enqueue(to, std::move(wait));
  };
  for (int lane = 1; lane < exec.graph.lanes; ++lane)
    signal(stream, on(lane));
  std::map<const Signal *, std::shared_ptr<Signal>> signals;
  for (const Graph::Step &step : exec.graph.steps) {
    Operation copy = step.operation;
    for (std::shared_ptr<Signal> *end : {&copy.records, &copy.waits})
      if (*end) {
        std::shared_ptr<Signal> &anew = signals[end->get()];
        if (!anew)
          anew = std::make_shared<Signal>();
        *end = anew;
      }
    enqueue(on(step.lane), std::move(copy));
  }
  for (int lane = 1; lane < exec.graph.lanes; ++lane)
    signal(on(lane), stream);
  return CUDA_SUCCESS;
}
