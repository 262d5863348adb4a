//===- SessionExecutor.cpp - serves the loop through the runtime's C ABI --===//
#include "cleave/io/Error.h"
#include "cleave/runtime.h"
#include "cleave/trainer/Executor.h"

#include <iterator>

namespace cleave {

namespace {

constexpr const char *dtypeNames[] = {"f32", "f64", "bf16", "i64",
                                      "i32", "i8",  "u8"};

std::string nameOf(cleave_dtype dtype) { return dtypeNames[dtype]; }

/// Returns the number of an element type in the runtime's C ABI (cleave_dtype),
/// or -1 if the ABI does not have this type.
int abiType(std::string_view dtype) {
  for (int i = 0; i < static_cast<int>(std::size(dtypeNames)); ++i)
    if (dtype == dtypeNames[i])
      return i;
  return -1;
}

class SessionExecutor : public StepExecutor {
public:
  SessionExecutor(const std::string &folder, const ExecutorOptions &options) {
    if (cleave_status status = cleave_program_load(folder.c_str(), &program))
      fail(status, folder);
    for (int32_t i = 0, n = cleave_program_num_buffers(program); i < n; ++i) {
      cleave_buffer_info info;
      check(cleave_program_buffer(program, i, &info), folder);
      BufferInfo entry{info.name, info.tie,           info.role,
                       info.of,   nameOf(info.dtype), {}};
      for (int32_t d = 0; d < info.rank; ++d)
        entry.shape.push_back(info.global_shape[d]);
      table.push_back(std::move(entry));
    }
    cleave_session_options native{};
    native.version = CLEAVE_RUNTIME_VERSION;
    native.threads_per_rank = options.threadsPerRank;
    native.watchdog_seconds = options.watchdogSeconds;
    native.poison = options.poison;
    native.transport = options.transport.c_str();
    if (options.link.size() == 2) {
      native.link_latency = options.link[0] * 1e-6;
      native.link_bytes_per_second = options.link[1] * 1e9;
    }
    cleave_status status = cleave_session_create(program, &native, &session);
    if (status != CLEAVE_OK) {
      std::string message = cleave_last_error();
      cleave_program_free(program);
      // An error of a device is a failure of the run. Insufficient memory and
      // unsupported programs are detected before running, and are errors of
      // input.
      if (status == CLEAVE_INTERNAL || status == CLEAVE_RANK_FAILED ||
          status == CLEAVE_TIMEOUT)
        throw RunError(folder + ": " + message);
      // If the machine lacks something that the program needs, the message does
      // not name the program's folder, as the program is not at fault.
      bool isOfMachine =
          status == CLEAVE_UNSUPPORTED || status == CLEAVE_OUT_OF_MEMORY;
      throw InputError(isOfMachine ? message : folder + ": " + message);
    }
    if (options.failure.size() >= 3)
      check(cleave_session_inject_failure(
                session, options.failure[0], options.failure[1],
                options.failure[2],
                options.failure.size() > 3 && options.failure[3]),
            "failure to inject");
  }

  ~SessionExecutor() override {
    cleave_session_free(session);
    cleave_program_free(program);
  }

  int64_t ranks() const override { return cleave_program_num_ranks(program); }

  bool hasAction(const std::string &action) const override {
    return cleave_program_has_action(program, action.c_str());
  }

  const std::vector<BufferInfo> &buffers() const override { return table; }

  void scatter(const std::string &buffer, const ArrayView &array,
               const void *padding) override {
    Array converted;
    ArrayView view = array;
    if (abiType(view.dtype) < 0) { // e.g. u16 or f16 from a file
      const BufferInfo &info = need(buffer);
      converted = makeArray(info.dtype, array.shape);
      convertElements(array.dtype, array.data, info.dtype,
                      converted.bytes.data(), array.elements(), buffer);
      view = converted;
    }
    check(cleave_session_scatter_padded(session, buffer.c_str(),
                                        cleave_dtype(abiType(view.dtype)),
                                        view.data, view.elements(), padding),
          buffer);
  }

  Array gather(const std::string &buffer, const std::string &dtype) override {
    const BufferInfo &info = need(buffer);
    bool direct =
        abiType(dtype) >= 0 &&
        (dtype == info.dtype || (isFloat(dtype) && isFloat(info.dtype)));
    Array array = makeArray(direct ? dtype : info.dtype, info.shape);
    check(cleave_session_gather(session, buffer.c_str(),
                                cleave_dtype(abiType(array.dtype)),
                                array.bytes.data(), array.elements(), nullptr),
          buffer);
    if (direct)
      return array;
    Array converted = makeArray(dtype, info.shape);
    convertElements(array.dtype, array.bytes.data(), dtype,
                    converted.bytes.data(), array.elements(), buffer);
    return converted;
  }

  void zero(const std::string &buffer) override {
    check(cleave_session_zero(session, buffer.c_str()), buffer);
  }

  void setScalar(const std::string &buffer, double value) override {
    check(cleave_session_set_scalar(session, buffer.c_str(), value), buffer);
  }
  void setInteger(const std::string &buffer, int64_t value) override {
    check(cleave_session_set_integer(session, buffer.c_str(), value), buffer);
  }

  void run(const std::string &action) override {
    cleave_status status = cleave_session_run(session, action.c_str());
    if (status == CLEAVE_OK)
      return;
    std::string message = cleave_last_error();
    cleave_failure failure{};
    cleave_session_failure(session, &failure);
    if (failure.status == CLEAVE_OK)
      throw RunError("action '" + action + "': " + message);
    std::string text = failure.rank >= 0
                           ? "rank " + std::to_string(failure.rank) + " failed"
                           : std::string("the run failed");
    text += " in action '" + action + "'";
    if (failure.command >= 0)
      text += ", command " + std::to_string(failure.command);
    if (failure.source && *failure.source)
      text += " (" + std::string(failure.source) + ")";
    if (failure.message && *failure.message)
      message = failure.message;
    throw RunError(text + ": " + message);
  }

  std::vector<RankTraffic> traffic(int64_t rank) override {
    std::vector<RankTraffic> result;
    for (int32_t i = 0, n = cleave_session_num_purposes(session); i < n; ++i) {
      cleave_traffic entry;
      check(cleave_session_traffic(session, static_cast<int32_t>(rank), i,
                                   &entry),
            "traffic");
      result.push_back(
          {entry.purpose, entry.sent_bytes, entry.received_bytes, entry.calls});
    }
    return result;
  }

  int64_t attentionFlops(int64_t rank) override {
    int64_t count;
    check(cleave_session_attention_flops(session, static_cast<int32_t>(rank),
                                         &count),
          "attention");
    return count;
  }

  RankMemory memory(int64_t rank) override {
    cleave_memory entry;
    check(cleave_session_memory(session, static_cast<int32_t>(rank), &entry),
          "memory");
    return {entry.arena_bytes, entry.touched_bytes, entry.scratch_bytes,
            entry.unplanned_bytes, entry.pool_bytes};
  }

  void resetCounters() override { cleave_session_reset_counters(session); }

  void startTrace() override {
    check(cleave_session_trace(session, 1), "trace");
  }
  void stopTrace() override {
    check(cleave_session_trace(session, 0), "trace");
  }

  std::vector<RankEvent> takeTrace(int64_t rank) override {
    std::vector<RankEvent> result;
    std::vector<cleave_trace_event> chunk(4096);
    for (int64_t count = 1; count > 0;) {
      check(cleave_session_trace_read(
                session, static_cast<int32_t>(rank), chunk.data(),
                static_cast<int64_t>(chunk.size()), &count),
            "trace");
      for (int64_t i = 0; i < count; ++i)
        result.push_back({chunk[i].name, chunk[i].kind, chunk[i].begin_ns,
                          chunk[i].end_ns,
                          chunk[i].stream == CLEAVE_STREAM_TRANSFERS,
                          chunk[i].from, chunk[i].to, chunk[i].message,
                          chunk[i].kernel, chunk[i].bytes, chunk[i].flops});
    }
    return result;
  }

private:
  [[noreturn]] static void fail(cleave_status status, const std::string &what) {
    // If a rank has died, this request is not the cause, so the message does
    // not describe the request.
    if (status == CLEAVE_RANK_FAILED || status == CLEAVE_TIMEOUT)
      throw RunError(cleave_last_error());
    std::string message = what + ": " + cleave_last_error();
    if (status == CLEAVE_INTERNAL)
      throw RunError(message);
    throw InputError(message);
  }
  static void check(cleave_status status, const std::string &what) {
    if (status != CLEAVE_OK)
      fail(status, what);
  }

  cleave_program *program = nullptr;
  cleave_session *session = nullptr;
  std::vector<BufferInfo> table;
};

} // namespace

std::unique_ptr<StepExecutor>
makeSessionExecutor(const std::string &folder, const ExecutorOptions &options) {
  return std::make_unique<SessionExecutor>(folder, options);
}

} // namespace cleave
