// The C ABI. It only checks arguments and converts exceptions to statuses.

#include "backends.h"
#include "cleave/device.h"
#include "error.h"
#include "positions.h"
#include "session.h"
#include "step_pool.h"
#include "tiles.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <unistd.h>

using namespace cleave;
using namespace cleave::program;

namespace {
thread_local std::string lastError;

void need(const void *pointer, const char *what) {
  if (!pointer)
    fail(CLEAVE_BAD_ARGUMENT, std::string(what) + " is NULL");
}

void needType(int type) {
  if (type < 0 || type > static_cast<int>(lastDType))
    fail(CLEAVE_BAD_ARGUMENT, "unknown element type " + std::to_string(type));
}

void needCount(const Boundary &entry, int64_t count) {
  int64_t expected = elementCount(entry.globalShape);
  if (count != expected)
    fail(CLEAVE_BAD_ARGUMENT, "buffer \"" + entry.name + "\" has " +
                                  std::to_string(expected) + " elements, got " +
                                  std::to_string(count));
}

template <class T>
void setScalar(cleave_session *session, const char *name, T value) {
  need(session, "session");
  need(name, "name");
  const Boundary &entry = session->boundary(name);
  needCount(entry, 1);
  // Integer types are converted from and to i64, floating types from and to
  // f64.
  union {
    float f32;
    double f64;
    int64_t i64;
    int32_t i32;
    int8_t i8;
  } cell{};
  cleave_dtype type = static_cast<cleave_dtype>(entry.dtype);
  switch (entry.dtype) {
  case DType::F32:
  case DType::F64:
  case DType::BF16:
    cell.f64 = static_cast<double>(value);
    type = CLEAVE_F64;
    break;
  case DType::I64:
    cell.i64 = static_cast<int64_t>(value);
    break;
  case DType::I32:
    cell.i32 = static_cast<int32_t>(value);
    break;
  case DType::I8:
  case DType::U8:
    cell.i8 = static_cast<int8_t>(value);
    break;
  }
  session->scatter(name, type, &cell, nullptr);
}
} // namespace

cleave_status cleave::report(cleave_status status,
                             const char *message) noexcept {
  try {
    lastError = message;
  } catch (...) {
  }
  return status;
}

const char *cleave_status_name(cleave_status status) {
  constexpr const char *names[] = {
      "ok",          "bad argument",  "bad program",
      "unsupported", "out of memory", "rank failed",
      "timeout",     "internal error"};
  return status >= 0 && status <= CLEAVE_INTERNAL ? names[status] : "unknown";
}

const char *cleave_last_error(void) { return lastError.c_str(); }

cleave_status cleave_program_load(const char *dir, cleave_program **out) {
  return guarded([&] {
    need(out, "out");
    *out = nullptr;
    need(dir, "dir");
    *out = loadProgram(dir).release();
  });
}

cleave_status cleave_program_from_memory(const void *bytes, size_t size,
                                         const char *kernels_path,
                                         cleave_program **out) {
  return guarded([&] {
    need(out, "out");
    *out = nullptr;
    need(bytes, "bytes");
    auto program =
        parseProgram(std::string_view(static_cast<const char *>(bytes), size));
    if (kernels_path)
      program->libraryPath = kernels_path;
    *out = program.release();
  });
}

cleave_status cleave_program_add_kernel(cleave_program *program,
                                        const char *symbol,
                                        cleave_kernel kernel) {
  return guarded([&] {
    need(program, "program");
    need(symbol, "symbol");
    need(reinterpret_cast<const void *>(kernel), "kernel");
    if (!program->kernels.empty())
      fail(CLEAVE_BAD_ARGUMENT, "the program is in use");
    program->added[symbol] = kernel;
  });
}

void cleave_program_free(cleave_program *program) {
  if (program && program->isLost)
    return; // an abandoned thread still runs its kernels
  delete program;
}

int32_t cleave_program_num_ranks(const cleave_program *program) {
  return static_cast<int32_t>(program->data.numRanks());
}

int32_t cleave_program_num_axes(const cleave_program *program) {
  return static_cast<int32_t>(program->data.mesh.size());
}

const char *cleave_program_axis_name(const cleave_program *program,
                                     int32_t axis) {
  if (axis < 0 || axis >= cleave_program_num_axes(program))
    return nullptr;
  return program->data.mesh[axis].name.c_str();
}

int64_t cleave_program_axis_size(const cleave_program *program, int32_t axis) {
  if (axis < 0 || axis >= cleave_program_num_axes(program))
    return 0;
  return program->data.mesh[axis].size;
}

int32_t cleave_program_has_action(const cleave_program *program,
                                  const char *name) {
  for (const Action &action : program->data.actions)
    if (name && action.name == name && !action.isOnlyCalled())
      return 1;
  return 0;
}

const char *cleave_program_meta(const cleave_program *program,
                                const char *key) {
  for (const auto &[name, value] : program->data.meta)
    if (key && name == key)
      return value.c_str();
  return nullptr;
}

size_t cleave_dtype_size(cleave_dtype dtype) {
  if (dtype < 0 || dtype > static_cast<int>(lastDType))
    return 0;
  return static_cast<size_t>(sizeOf(static_cast<DType>(dtype)));
}

int32_t cleave_program_num_buffers(const cleave_program *program) {
  return static_cast<int32_t>(program->names.size());
}

cleave_status cleave_program_buffer(const cleave_program *program,
                                    int32_t index, cleave_buffer_info *out) {
  return guarded([&] {
    need(program, "program");
    need(out, "out");
    if (index < 0 || index >= cleave_program_num_buffers(program))
      fail(CLEAVE_BAD_ARGUMENT, "buffer " + std::to_string(index) + " of " +
                                    std::to_string(program->names.size()));
    const Boundary &entry = program->data.boundary[program->names[index]];
    int64_t owners = 0, elements = 0;
    for (int32_t each : program->entries.find(entry.name)->second) {
      const Boundary &part = program->data.boundary[each];
      owners += ownersOf(program->data, part);
      elements = std::max(elements, elementCount(part.localShape));
    }
    int64_t size = sizeOf(entry.dtype);
    *out = {entry.name.c_str(),
            entry.onnxName.c_str(),
            entry.tie.c_str(),
            entry.role.c_str(),
            entry.of.c_str(),
            static_cast<cleave_dtype>(entry.dtype),
            static_cast<int32_t>(entry.globalShape.size()),
            entry.globalShape.empty() ? nullptr : entry.globalShape.data(),
            elementCount(entry.globalShape) * size,
            elements * size,
            owners};
  });
}

int32_t cleave_program_find_buffer(const cleave_program *program,
                                   const char *name) {
  for (size_t i = 0; name && i < program->names.size(); ++i)
    if (program->data.boundary[program->names[i]].name == name)
      return static_cast<int32_t>(i);
  return -1;
}

cleave_status cleave_session_create(cleave_program *program,
                                    const cleave_session_options *options,
                                    cleave_session **out) {
  return guarded([&] {
    need(out, "out");
    *out = nullptr;
    need(program, "program");
    need(options, "options");
    if (options->version != CLEAVE_RUNTIME_VERSION)
      fail(CLEAVE_BAD_ARGUMENT,
           "options of version " + std::to_string(options->version) +
               ", expected " + std::to_string(CLEAVE_RUNTIME_VERSION));
    static constexpr std::array known = {"auto", "local", "mpi", "nccl"};
    if (options->transport &&
        std::find(known.begin(), known.end(),
                  std::string_view(options->transport)) == known.end())
      fail(CLEAVE_UNSUPPORTED,
           std::string("transport \"") + options->transport +
               "\" is not known; use \"local\", \"mpi\" or \"nccl\"");
    *out = new cleave_session(*program, *options);
  });
}

void cleave_session_free(cleave_session *session) {
  if (session && session->lost())
    return; // an abandoned thread still uses it
  delete session;
}

cleave_status cleave_session_buffer(cleave_session *session, int32_t rank,
                                    const char *name, void **out) {
  return guarded([&] {
    need(session, "session");
    need(name, "name");
    need(out, "out");
    session->checkRank(rank);
    *out = session->tile(rank, session->boundary(name, rank));
  });
}

cleave_status cleave_session_scatter(cleave_session *session, const char *name,
                                     cleave_dtype dtype, const void *data,
                                     int64_t count) {
  return cleave_session_scatter_padded(session, name, dtype, data, count,
                                       nullptr);
}

cleave_status cleave_session_scatter_padded(cleave_session *session,
                                            const char *name,
                                            cleave_dtype dtype,
                                            const void *data, int64_t count,
                                            const void *padding) {
  return guarded([&] {
    need(session, "session");
    need(name, "name");
    needType(dtype);
    needCount(session->boundary(name), count);
    if (count)
      need(data, "data");
    session->scatter(name, dtype, data, padding);
  });
}

cleave_status cleave_session_gather(cleave_session *session, const char *name,
                                    cleave_dtype dtype, void *data,
                                    int64_t count,
                                    cleave_gather_report *report) {
  return guarded([&] {
    need(session, "session");
    need(name, "name");
    needType(dtype);
    needCount(session->boundary(name), count);
    if (count)
      need(data, "data");
    session->gather(name, dtype, data, report);
  });
}

cleave_status cleave_session_zero(cleave_session *session, const char *name) {
  return guarded([&] {
    need(session, "session");
    need(name, "name");
    session->zero(name);
  });
}

cleave_status cleave_session_set_scalar(cleave_session *session,
                                        const char *name, double value) {
  return guarded([&] { setScalar(session, name, value); });
}

cleave_status cleave_session_set_integer(cleave_session *session,
                                         const char *name, int64_t value) {
  return guarded([&] { setScalar(session, name, value); });
}

cleave_status cleave_session_run(cleave_session *session, const char *action) {
  return guarded([&] {
    need(session, "session");
    need(action, "action");
    session->run(action);
  });
}

void cleave_session_failure(const cleave_session *session,
                            cleave_failure *out) {
  const auto &failure = session->failure;
  *out = {failure.status,  failure.rank,           failure.action.c_str(),
          failure.command, failure.source.c_str(), failure.message.c_str()};
}

int32_t cleave_session_num_purposes(const cleave_session *session) {
  return static_cast<int32_t>(session->counters.purposes.size());
}

cleave_status cleave_session_traffic(const cleave_session *session,
                                     int32_t rank, int32_t purpose,
                                     cleave_traffic *out) {
  return guarded([&] {
    need(session, "session");
    need(out, "out");
    session->checkRank(rank);
    if (purpose < 0 || purpose >= cleave_session_num_purposes(session))
      fail(CLEAVE_BAD_ARGUMENT,
           "purpose " + std::to_string(purpose) + " of " +
               std::to_string(session->counters.purposes.size()));
    auto &entry =
        const_cast<cleave_session *>(session)->counters.at(rank, purpose);
    *out = {session->counters.purposes[purpose].c_str(), entry.sent,
            entry.received, entry.calls};
  });
}

cleave_status cleave_session_attention_flops(const cleave_session *session,
                                             int32_t rank, int64_t *out) {
  return guarded([&] {
    need(session, "session");
    need(out, "out");
    session->checkRank(rank);
    *out = const_cast<cleave_session *>(session)->counters.attentionFlops(rank);
  });
}

void cleave_session_reset_counters(cleave_session *session) {
  session->resetCounters();
}

cleave_status cleave_session_memory(const cleave_session *session, int32_t rank,
                                    cleave_memory *out) {
  return guarded([&] {
    need(session, "session");
    need(out, "out");
    session->checkRank(rank);
    *out = session->memory(rank);
  });
}

cleave_status cleave_session_trace(cleave_session *session, int32_t enabled) {
  return guarded([&] {
    need(session, "session");
    session->trace(enabled != 0);
  });
}

cleave_status cleave_session_trace_read(cleave_session *session, int32_t rank,
                                        cleave_trace_event *out,
                                        int64_t capacity, int64_t *count) {
  return guarded([&] {
    need(session, "session");
    need(count, "count");
    *count = 0;
    if (capacity < 0)
      fail(CLEAVE_BAD_ARGUMENT, "negative capacity");
    if (capacity)
      need(out, "out");
    std::vector<TraceEvent> &events = session->traced(rank);
    auto taken = std::min(capacity, static_cast<int64_t>(events.size()));
    for (int64_t i = 0; i < taken; ++i)
      out[i] =
          session->traceReaders[rank].describe(events[i], session->traceNames);
    events.erase(events.begin(), events.begin() + taken);
    *count = taken;
  });
}

cleave_status cleave_session_inject_failure(cleave_session *session,
                                            int32_t rank, int64_t run,
                                            int32_t command, int32_t hang) {
  return guarded([&] {
    need(session, "session");
    session->injectFailure(rank, run, command, hang != 0);
  });
}

cleave_status cleave_find_cuda(void) {
  return guarded([] { needCuda(); });
}

int64_t cleave_allocation_count(void) { return allocations.load(); }

void cleave_prepare_process(int32_t ranks, int32_t threads_per_rank,
                            char **argv) {
  if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
    return;
  // The program restarts with a short spin time for OpenMP threads. Some tens
  // of microseconds cover the time between two commands. With the default of
  // several milliseconds, spinning threads may keep a core from the thread for
  // which they wait.
  int64_t threads = int64_t(ranks) * std::max(threads_per_rank, 1);
  bool enough =
      threads <= static_cast<int64_t>(std::thread::hardware_concurrency());
  setenv("GOMP_SPINCOUNT", enough ? "2000" : "0", 0);
  execv("/proc/self/exe", argv);
}
