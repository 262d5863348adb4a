// The simulated CUDA driver: streams, events, graphs.

#include "driver.h"

using namespace recorder;

namespace {
// Calls body(all, lock, stream) with the recorder locked.
template <class Body> CUresult with(CUstream handle, Body body) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  Stream *stream = all.stream(handle);
  return stream ? body(all, lock, *stream) : CUDA_ERROR_INVALID_HANDLE;
}
template <class Body> CUresult with(CUevent handle, Body body) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  Event *event = all.event(handle);
  return event ? body(all, lock, *event) : CUDA_ERROR_INVALID_HANDLE;
}
using Lock = std::unique_lock<std::mutex>;
} // namespace

//--- Streams -----------------------------------------------------------------

CUresult cuStreamCreate(CUstream *out, unsigned) {
  if (!currentDevice)
    return CUDA_ERROR_INVALID_CONTEXT;
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  *out = reinterpret_cast<CUstream>(all.makeStream(currentDevice->number));
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream handle) {
  if (!handle)
    return CUDA_ERROR_INVALID_HANDLE;
  return with(handle, [](Recorder &all, Lock &, Stream &stream) {
    all.destroyStream(&stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return with(handle, [](Recorder &all, Lock &lock, Stream &stream) {
    if (stream.capture) {
      stream.capture->isBroken = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return synchronize(all, lock, stream);
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return with(handle, [](Recorder &all, Lock &, Stream &stream) {
    if (stream.capture) {
      stream.capture->isBroken = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    all.advance();
    if (!stream.queue.empty())
      return CUDA_ERROR_NOT_READY;
    all.hostJoins(stream.clock);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  return with(handle, [&](Recorder &all, Lock &, Stream &stream) {
    Event *waited = all.event(event);
    return waited ? all.waitEvent(stream, *waited) : CUDA_ERROR_INVALID_HANDLE;
  });
}

//--- Events ------------------------------------------------------------------

CUresult cuEventCreate(CUevent *out, unsigned flags) {
  if (!currentDevice)
    return CUDA_ERROR_INVALID_CONTEXT;
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  auto *event = new Event;
  event->device = currentDevice->number;
  event->isTimed = !(flags & CU_EVENT_DISABLE_TIMING);
  all.events.insert(event);
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) {
  return with(handle, [](Recorder &all, Lock &, Event &event) {
    all.events.erase(&event);
    delete &event;
    return CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
  return with(handle, [&](Recorder &all, Lock &, Event &event) {
    Stream *recorded = all.stream(stream);
    // An event is recorded on streams of its own context. Streams of any
    // context may wait for it.
    return recorded && recorded->device == event.device
               ? all.recordEvent(*recorded, event)
               : CUDA_ERROR_INVALID_HANDLE;
  });
}

namespace {
// In CUDA, an event that was never recorded counts as complete. Here, waiting
// for such an event is an error.
CUresult checkWaited(Recorder &all, const Event &event) {
  if (!event.signal) {
    all.report.error("the host waits for an event that was never recorded");
    return CUDA_SUCCESS;
  }
  if (event.signal->capture)
    return CUDA_ERROR_CAPTURED_EVENT;
  return all.checkUnsafe();
}
} // namespace

CUresult cuEventQuery(CUevent handle) {
  return with(handle, [](Recorder &all, Lock &, Event &event) {
    if (CUresult status = checkWaited(all, event);
        status != CUDA_SUCCESS || !event.signal)
      return status;
    all.advance();
    if (!event.signal->isDone)
      return CUDA_ERROR_NOT_READY;
    all.hostJoins(event.signal->clock);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  return with(handle, [](Recorder &all, Lock &lock, Event &event) {
    if (CUresult status = checkWaited(all, event);
        status != CUDA_SUCCESS || !event.signal)
      return status;
    auto signal = event.signal;
    if (!all.wait(lock, "waiting for an event", [&] { return signal->isDone; }))
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    all.hostJoins(signal->clock);
    return CUDA_SUCCESS;
  });
}

// Returns the time between two events as measured by the host, because there is
// no device.
CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  Event *first = all.event(from), *second = all.event(to);
  if (!first || !second || !first->isTimed || !second->isTimed ||
      !first->signal || !second->signal)
    return CUDA_ERROR_INVALID_HANDLE;
  all.advance();
  if (!first->signal->isDone || !second->signal->isDone)
    return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(
                      second->signal->when - first->signal->when)
                      .count();
  return CUDA_SUCCESS;
}

//--- Graphs ------------------------------------------------------------------

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return with(handle, [&](Recorder &all, Lock &, Stream &stream) {
    return all.beginCapture(stream, mode);
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *out) {
  *out = nullptr;
  return with(handle, [&](Recorder &all, Lock &, Stream &stream) {
    Graph *graph = nullptr;
    CUresult status = all.endCapture(stream, &graph);
    *out = reinterpret_cast<CUgraph>(graph);
    return status;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle,
                                     unsigned long long) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  auto *graph = reinterpret_cast<Graph *>(handle);
  if (!all.graphs.count(graph))
    return CUDA_ERROR_INVALID_VALUE;
  auto *exec = new GraphExec{*graph, {}};
  all.execs.insert(exec);
  *out = reinterpret_cast<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  return with(stream, [&](Recorder &all, Lock &, Stream &stream) {
    auto *exec = reinterpret_cast<GraphExec *>(handle);
    return all.execs.count(exec) ? all.launch(*exec, stream)
                                 : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  auto *exec = reinterpret_cast<GraphExec *>(handle);
  if (!all.execs.erase(exec))
    return CUDA_ERROR_INVALID_HANDLE;
  for (Stream *lane : exec->lanes)
    if (lane)
      all.destroyStream(lane);
  delete exec;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  Recorder &all = Recorder::get();
  auto lock = all.lock();
  auto *graph = reinterpret_cast<Graph *>(handle);
  if (!all.graphs.erase(graph))
    return CUDA_ERROR_INVALID_HANDLE;
  delete graph;
  return CUDA_SUCCESS;
}
