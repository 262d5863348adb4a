// The simulated NCCL: its collectives wait for all members, and it reports
// members whose calls disagree.

#include "Recorded.h"

#include <barrier>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

using namespace cleave;
using namespace cleave::cuda;
using namespace cleave::test;

namespace {
class RecorderNcclTest : public Recorded {
protected:
  struct Rank {
    int rank;
    ncclComm_t comm;
    CUstream stream;
  };
  // Runs `body` on threads whose ranks share a communicator.
  static void run(int ranks, const std::function<void(Rank)> &body) {
    ncclUniqueId id;
    check(nccl().ncclGetUniqueId(&id), "making an id");
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        Device::of(0).use();
        Stream stream = makeStream();
        ncclComm_t comm = nullptr;
        check(nccl().ncclCommInitRankConfig(&comm, ranks, id, rank, nullptr),
              "making a communicator");
        body({rank, comm, stream.get()});
        check(driver().cuStreamSynchronize(stream.get()), "waiting");
        check(nccl().ncclCommDestroy(comm), "ending a communicator");
      });
    for (std::thread &thread : threads)
      thread.join();
  }

  static DeviceMemory floats(std::vector<float> values, CUstream stream) {
    DeviceMemory memory(int64_t(values.size()) * 4, "floats");
    check(driver().cuMemcpyHtoDAsync(address(memory.data()), values.data(),
                                     memory.size(), stream),
          "writing");
    return memory;
  }
  static std::vector<float> read(const DeviceMemory &memory, CUstream stream) {
    std::vector<float> out(memory.size() / 4);
    check(driver().cuMemcpyDtoHAsync(out.data(), address(memory.data()),
                                     memory.size(), stream),
          "reading");
    return out;
  }
};

TEST_F(RecorderNcclTest, CollectivesAndMessages) {
  run(3, [](Rank self) {
    float own = float(self.rank);
    DeviceMemory a = floats({own, 1}, self.stream),
                 b = floats({-1, -1}, self.stream),
                 all = floats({9, 9, 9, 9, 9, 9}, self.stream);
    nccl().ncclAllReduce(a.data(), b.data(), 2, ncclFloat, ncclSum, self.comm,
                         self.stream);
    EXPECT_EQ(read(b, self.stream), (std::vector<float>{3, 3}));
    nccl().ncclAllGather(a.data(), all.data(), 2, ncclFloat, self.comm,
                         self.stream);
    EXPECT_EQ(read(all, self.stream), (std::vector<float>{0, 1, 1, 1, 2, 1}));
    nccl().ncclReduceScatter(all.data(), b.data(), 2, ncclFloat, ncclMax,
                             self.comm, self.stream);
    EXPECT_EQ(read(b, self.stream), (std::vector<float>{own, 1}));
    // A ring: every rank sends to the next rank.
    nccl().ncclGroupStart();
    nccl().ncclSend(a.data(), 2, ncclFloat, (self.rank + 1) % 3, self.comm,
                    self.stream);
    nccl().ncclRecv(b.data(), 2, ncclFloat, (self.rank + 2) % 3, self.comm,
                    self.stream);
    nccl().ncclGroupEnd();
    EXPECT_EQ(read(b, self.stream),
              (std::vector<float>{float((self.rank + 2) % 3), 1}));
    nccl().ncclBroadcast(a.data(), a.data(), 2, ncclFloat, 2, self.comm,
                         self.stream);
    EXPECT_EQ(read(a, self.stream), (std::vector<float>{2, 1}));
  });
}

TEST_F(RecorderNcclTest, FindsCollectivesThatDiffer) {
  run(2, [](Rank self) {
    DeviceMemory a = floats({1, 2, 3, 4}, self.stream);
    nccl().ncclAllReduce(a.data(), a.data(), self.rank ? 3 : 4, ncclFloat,
                         ncclSum, self.comm, self.stream);
    check(driver().cuStreamSynchronize(self.stream), "waiting");
  });
  std::string errors = takeErrors();
  EXPECT_NE(errors.find("members of a communicator differ"), std::string::npos);
  EXPECT_NE(errors.find("all-reduce of 3 f32"), std::string::npos);
  EXPECT_NE(errors.find("all-reduce of 4 f32"), std::string::npos);
}

// Another stream that reads the result of a collective must wait for the
// collective.
TEST_F(RecorderNcclTest, FindsAMissingEvent) {
  // The recorder treats all threads as one host, so if one thread waits, the
  // other one has waited, too. The barrier keeps a thread from waiting too
  // early.
  std::barrier meeting(2);
  run(2, [&](Rank self) {
    DeviceMemory a = floats({1, 2}, self.stream), b = floats({0, 0}, nullptr);
    Stream other = makeStream();
    nccl().ncclAllReduce(a.data(), a.data(), 2, ncclFloat, ncclSum, self.comm,
                         self.stream);
    if (self.rank == 1)
      check(driver().cuMemcpyDtoDAsync(address(b.data()), address(a.data()), 8,
                                       other.get()),
            "copying");
    meeting.arrive_and_wait();
    check(driver().cuStreamSynchronize(self.stream), "waiting");
    check(driver().cuStreamSynchronize(other.get()), "waiting");
    check(driver().cuStreamSynchronize(nullptr), "waiting");
  });
  EXPECT_NE(takeErrors().find("no event orders"), std::string::npos);
}

//--- In processes of their own -----------------------------------------------

// A member of a communicator, in a process that MembersInProcesses starts.
TEST_F(RecorderNcclTest, MemberElsewhere) {
  const char *given = std::getenv("CLEAVE_TEST_ID");
  if (!given)
    GTEST_SKIP() << "started by MembersInProcesses";
  ncclUniqueId id{};
  std::string(given).copy(id.internal, sizeof(id.internal) - 1);
  int rank = std::atoi(std::getenv("CLEAVE_TEST_RANK"));
  bool differ = std::getenv("CLEAVE_TEST_DIFFER");
  Stream stream = makeStream();
  ncclComm_t comm = nullptr;
  check(nccl().ncclCommInitRankConfig(&comm, 2, id, rank, nullptr), "making");
  DeviceMemory own = floats({float(rank), 5, 7}, stream.get()),
               other = floats({0, 0, 0}, stream.get());
  nccl().ncclGroupStart();
  nccl().ncclSend(own.data(), 3, ncclFloat, 1 - rank, comm, stream.get());
  nccl().ncclRecv(other.data(), 3, ncclFloat, 1 - rank, comm, stream.get());
  nccl().ncclGroupEnd();
  EXPECT_EQ(read(other, stream.get()),
            (std::vector<float>{float(1 - rank), 5, 7}));
  nccl().ncclAllReduce(own.data(), own.data(), differ ? 2 + rank : 3, ncclFloat,
                       ncclSum, comm, stream.get());
  std::vector<float> sum = read(own, stream.get());
  std::string errors = takeErrors();
  if (differ) {
    EXPECT_NE(errors.find("members of a communicator differ"),
              std::string::npos)
        << errors;
  } else {
    EXPECT_EQ(errors, "");
    EXPECT_EQ(sum, (std::vector<float>{1, 10, 14}));
  }
  check(nccl().ncclCommDestroy(comm), "ending a communicator");
}

TEST_F(RecorderNcclTest, MembersInProcesses) {
  for (const char *how : {"", "CLEAVE_TEST_DIFFER=1 "}) {
    ncclUniqueId id;
    check(nccl().ncclGetUniqueId(&id), "making an id");
    std::vector<FILE *> members;
    for (int rank = 0; rank < 2; ++rank) {
      std::string command =
          std::string(how) + "CLEAVE_TEST_ID='" + id.internal +
          "' CLEAVE_TEST_RANK=" + std::to_string(rank) + " " +
          std::filesystem::read_symlink("/proc/self/exe").string() +
          " --gtest_filter=*MemberElsewhere 2>&1";
      members.push_back(popen(command.c_str(), "r"));
    }
    for (FILE *member : members) {
      std::string said;
      for (int c; (c = std::fgetc(member)) != EOF;)
        said += static_cast<char>(c);
      EXPECT_EQ(pclose(member), 0) << said;
      EXPECT_NE(said.find("[  PASSED  ] 1 test"), std::string::npos) << said;
    }
  }
}
} // namespace
