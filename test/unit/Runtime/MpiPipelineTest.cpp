// Runs the hand-written pipeline in four processes, through the C ABI. Values
// that the host reads and writes, and traces, cross processes. Run it with
// mpirun -n 4.

#include "PipelineProgram.h"

#include <cstdio>
#include <map>

using namespace cleave::program;
using namespace cleave::test;

namespace {
cleave_session *makeSession(cleave_program *program, bool poison) {
  cleave_session_options options{};
  options.version = CLEAVE_RUNTIME_VERSION;
  options.threads_per_rank = 1;
  options.watchdog_seconds = 30;
  options.poison = poison;
  options.transport = "mpi";
  cleave_session *session = nullptr;
  EXPECT_EQ(cleave_session_create(program, &options, &session), CLEAVE_OK)
      << cleave_last_error();
  return session;
}

TEST(MpiPipeline, OneForwardOneBackward) {
  for (PipelineShape shape :
       {PipelineShape{4, 1, 6}, PipelineShape{2, 2, 5}, PipelineShape{1, 4, 2}})
    for (bool poison : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << shape.stages << " stages, poison " << poison);
      PipelineReference reference(shape);
      ProgramHandle program(PipelineProgram(shape).p);
      ASSERT_EQ(program.status, CLEAVE_OK) << program.error;
      cleave_session *session = makeSession(program.get, poison);
      ASSERT_NE(session, nullptr);
      for (int step = 0; step < 4; ++step)
        checkPipelineStep(session, shape, reference, step == 0);
      // Rank 2 is in another process, and runs other commands than any rank of
      // this process (it is of another rank class).
      if (shape.stages == 4) {
        cleave_memory memory;
        ASSERT_EQ(cleave_session_memory(session, 2, &memory), CLEAVE_OK);
        EXPECT_EQ(memory.arena_bytes, 128 + 64 * (2 + 6 + 2));
        cleave_traffic traffic;
        ASSERT_EQ(cleave_session_traffic(session, 2, 1, &traffic), CLEAVE_OK);
        EXPECT_STREQ(traffic.purpose, "pipeline");
        EXPECT_EQ(traffic.sent_bytes, 4 * 6 * 64 * 2);
        EXPECT_EQ(traffic.received_bytes, 4 * 6 * 64 * 2);
      }
      cleave_session_free(session);
    }
}

TEST(MpiPipeline, TiedGradientsThatWereNotSummedDiffer) {
  PipelineShape shape{4, 1, 2, /*reducesTied=*/false};
  PipelineReference reference(shape);
  ProgramHandle program(PipelineProgram(shape).p);
  cleave_session *session = makeSession(program.get, false);
  ASSERT_NE(session, nullptr);
  std::vector<float> values(16);
  cleave_gather_report report;
  for (bool same : {true, false}) {
    cleave_session_scatter(session, "g.tied", CLEAVE_F32, reference.tied.data(),
                           16);
    for (int stage = 0; !same && stage < 4; ++stage)
      cleave_session_scatter(session, ("w" + std::to_string(stage)).c_str(),
                             CLEAVE_F32, reference.weights[stage].data(), 16);
    for (int k = 0; !same && k < 2; ++k) {
      cleave_session_scatter(session, "x", CLEAVE_F32,
                             reference.inputs[k].data(), 16);
      cleave_session_run(session, ("load." + std::to_string(k)).c_str());
    }
    if (!same)
      ASSERT_EQ(cleave_session_run(session, "loss_grad"), CLEAVE_OK)
          << cleave_last_error();
    ASSERT_EQ(cleave_session_gather(session, "g.tied", CLEAVE_F32,
                                    values.data(), 16, &report),
              CLEAVE_OK);
    EXPECT_EQ(report.identical, same);
    EXPECT_EQ(report.rank_b, same ? -1 : 3);
  }
  cleave_session_free(session);
}

TEST(MpiPipeline, Traces) {
  PipelineShape shape{4, 1, 4};
  PipelineReference reference(shape);
  ProgramHandle program(PipelineProgram(shape).p);
  cleave_session *session = makeSession(program.get, false);
  ASSERT_NE(session, nullptr);
  checkPipelineStep(session, shape, reference, true);
  ASSERT_EQ(cleave_session_trace(session, 1), CLEAVE_OK);
  for (int step = 0; step < 2; ++step)
    ASSERT_EQ(cleave_session_run(session, "loss_grad"), CLEAVE_OK);
  ASSERT_EQ(cleave_session_trace(session, 0), CLEAVE_OK);
  ASSERT_EQ(cleave_session_run(session, "loss_grad"), CLEAVE_OK);
  std::map<std::string, cleave_trace_event> calls; // the last of each label
  std::vector<std::vector<cleave_trace_event>> byRank;
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<cleave_trace_event> &events = byRank.emplace_back(1000);
    int64_t count = 0, more = 0;
    ASSERT_EQ(
        cleave_session_trace_read(session, rank, events.data(), 1000, &count),
        CLEAVE_OK);
    cleave_session_trace_read(session, rank, events.data() + count,
                              1000 - count, &more);
    EXPECT_EQ(more, 0);
    int found = 0;
    for (int64_t i = 0; i < count; ++i)
      if (events[i].stream == CLEAVE_STREAM_COMPUTE) {
        ++found;
        calls[events[i].name] = events[i];
      }
    EXPECT_EQ(found, 2 * 2 * 4);
    events.resize(size_t(count));
  }
  checkMessages(byRank, 2 * 3 * 2 * 4);
  ASSERT_EQ(calls.size(), 32u);
  for (int k = 0; k < 4; ++k)
    for (int stage = 0; stage < 3; ++stage) {
      auto at = [&](int stage, const char *what) {
        return calls.at(std::to_string(stage) + what + std::to_string(k));
      };
      EXPECT_LE(at(stage, "F").end_ns, at(stage + 1, "F").begin_ns);
      EXPECT_LE(at(stage + 1, "B").end_ns, at(stage, "B").begin_ns);
    }
  cleave_session_free(session);
}

// This test runs last, because an MPI job ends when it has lost a rank. Each
// rank waits for another one, and the last of them waits for the rank that
// hangs.
TEST(MpiPipeline, TheWatchdogNamesWhoIsSilent) {
  ProgramHandle program(PipelineProgram({4, 1, 2}).p);
  cleave_session_options options{};
  options.version = CLEAVE_RUNTIME_VERSION;
  options.threads_per_rank = 1;
  options.watchdog_seconds = 0.5;
  options.transport = "mpi";
  cleave_session *session = nullptr;
  ASSERT_EQ(cleave_session_create(program.get, &options, &session), CLEAVE_OK);
  cleave_session_inject_failure(session, 2, 0, 2, /*hang=*/1);
  EXPECT_EQ(cleave_session_run(session, "loss_grad"), CLEAVE_TIMEOUT);
  cleave_failure failure;
  cleave_session_failure(session, &failure);
  EXPECT_EQ(failure.rank, 2);
  std::string message = failure.message;
  EXPECT_NE(message.find("send_recv \"pipeline\""), std::string::npos)
      << message;
  EXPECT_NE(message.find("missing"), std::string::npos) << message;
  cleave_session_free(session);
}
} // namespace

int main(int argc, char **argv) {
  if (cleave_is_worker())
    return cleave_serve();
  testing::InitGoogleTest(&argc, argv);
  return cleave_finish(RUN_ALL_TESTS());
}
