// The training loop: logs, meshes, signals, failures. The tests use a small
// model without the compiler, so that a failure can only come from the loop.
#include "cleave/trainer/Train.h"
#include "TrainingFixture.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/Npy.h"
#include "cleave/io/Safetensors.h"
#include "cleave/trainer/Checkpoint.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <csignal>
#include <limits>
#include <sstream>

using namespace cleave;
using namespace cleave::test;

namespace {

TEST_F(Training, WritesLogConfigurationAndCheckpoint) {
  run("a");
  auto lines = log("a");
  ASSERT_EQ(lines.size(), 8u);
  for (const char *key :
       {"step", "loss", "val_loss", "val_samples", "lr", "grad_norm", "tokens",
        "tokens_per_s", "step_ms", "sent_bytes", "peak_bytes", "time"})
    EXPECT_TRUE(lines[0].contains(key)) << key;
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_EQ(lines[0]["tokens"], 24);
  EXPECT_EQ(lines[0]["sent_bytes"], 1000);
  EXPECT_EQ(lines[0]["peak_bytes"], 4096);
  EXPECT_DOUBLE_EQ(lines[1]["lr"].get<double>(), 0.5 * 7 / 8);
  EXPECT_NEAR(lines[0]["loss"].get<double>(), std::log(11), 0.2);
  EXPECT_LT(lines[7]["loss"], lines[0]["loss"]);
  EXPECT_TRUE(lines[7]["val_loss"].is_number());
  EXPECT_LT(lines[7]["val_loss"], lines[0]["loss"]);
  EXPECT_NE(folder.read("a/config.toml").find("steps = 8"), std::string::npos);
  EXPECT_NE(folder.read("a/counters.json").find("\"gradient\""),
            std::string::npos);
  SafetensorsReader file(folder.path("a/checkpoint-000008/model.safetensors"));
  ASSERT_TRUE(file.find("table"));
  EXPECT_EQ(file.find("table")->dtype, "f64");
  SafetensorsReader state(
      folder.path("a/checkpoint-000008/optimizer.safetensors"));
  EXPECT_TRUE(state.find("table.momentum"));
  EXPECT_NE(printed.find("step 8/8  loss "), std::string::npos);
}

TEST_F(Training, SameTwice) {
  run("a");
  run("b");
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_EQ(checkpoint("a", "model.safetensors"),
            checkpoint("b", "model.safetensors"));
}

TEST_F(Training, MeshAndMicrobatchesChangeNothing) {
  run("a");
  std::vector<double> want = losses("a");
  std::vector<int64_t> order = samples;
  EXPECT_EQ(order.size(), 48u);
  for (int64_t i = 0; i < 48; ++i)
    EXPECT_EQ(order[i], i);
  for (int64_t ranks : {1, 2, 4}) // four do not divide the batch
    for (int64_t microbatches : {1, 2, 3}) {
      model.ranks = ranks;
      model.microbatches = microbatches;
      std::string name =
          "m" + std::to_string(ranks) + "-" + std::to_string(microbatches);
      run(name);
      std::vector<double> found = losses(name);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(found[i], want[i], 1e-12) << name << " step " << i + 1;
      EXPECT_EQ(samples, order) << name;
      EXPECT_NEAR(log(name)[7]["val_loss"].get<double>(),
                  log("a")[7]["val_loss"].get<double>(), 1e-12);
    }
}

// A program that loads all microbatches first, and then runs them in one
// action.
TEST_F(Training, PipelinedStepsAreTheSame) {
  for (int64_t microbatches : {1, 3}) {
    model.microbatches = microbatches;
    std::string name = "plain" + std::to_string(microbatches);
    model.pipelined = false;
    run(name);
    std::vector<int64_t> order = samples;
    model.pipelined = true;
    run(name + "p");
    EXPECT_EQ(losses(name + "p"), losses(name));
    EXPECT_EQ(samples, order);
    EXPECT_EQ(log(name + "p")[7]["val_loss"], log(name)[7]["val_loss"]);
  }
}

// The trace has a process per rank, a thread per stream, and all events of all
// steps.
TEST_F(Training, WritesATrace) {
  model.ranks = 2;
  options.trace = folder.path("trace.json");
  options.evalEvery = 0;
  run("a");
  auto trace = nlohmann::json::parse(folder.read("trace.json"));
  std::map<std::pair<int, int>, std::string> threads;
  std::map<int, std::string> processes;
  std::map<std::string, int> counts;
  std::set<int> steps;
  double last = -1;
  for (auto &event : trace["traceEvents"]) {
    int pid = event["pid"], tid = event["tid"];
    if (event["ph"] == "M") {
      if (event["name"] == "process_name")
        processes[pid] = event["args"]["name"];
      else
        threads[{pid, tid}] = event["args"]["name"];
      continue;
    }
    EXPECT_EQ(event["ph"], "X");
    ASSERT_TRUE(threads.count({pid, tid}));
    bool waits = event["cat"] == "wait";
    EXPECT_EQ((threads[{pid, tid}]), waits ? "send/recv" : "compute");
    EXPECT_EQ(event["dur"], waits ? 0.5 : 1.5);
    ++counts[event["name"]];
    steps.insert(event["args"]["step"].get<int>());
    if (pid == 0) {
      EXPECT_GT(event["ts"].get<double>(), last);
      last = event["ts"];
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "rank 0 (data 0)"},
                                                   {1, "rank 1 (data 1)"}}));
  EXPECT_EQ(threads.size(), 4u);
  EXPECT_EQ(counts["loss_grad"], 2 * 8);
  EXPECT_EQ(counts["update"], 2 * 8);
  EXPECT_EQ(counts["WAIT \"x\""], 2 * 16);
  EXPECT_EQ(steps.size(), 8u);
  options.trace = folder.path("missing/trace.json");
  EXPECT_THROW(run("b"), InputError);
  EXPECT_FALSE(std::filesystem::exists(folder.path("b")));
}

TEST_F(Training, APipelineWithoutItsLoadsIsRefused) {
  model.pipelined = true;
  model.microbatches = 3;
  Manifest manifest = bigramManifest(model);
  model.microbatches = 2; // in the program
  try {
    runManifest(manifest, "a");
    ADD_FAILURE() << "trained";
  } catch (const InputError &error) {
    EXPECT_NE(std::string(error.what()).find("no action 'load.2'"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Training, AnExistingFolderIsNotTouched) {
  folder.write("a/mine", "x");
  EXPECT_EQ(messageOf<InputError>([&] { run("a"); }),
            folder.path("a") + ": the output folder exists; it is never "
                               "overwritten: give another --out");
  EXPECT_EQ(folder.list("a").size(), 1u);
}

TEST_F(Training, DefaultFoldersAreNumbered) {
  std::filesystem::path old = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  run("");
  run("");
  options.resume = "latest";
  options.horizon = 10;
  run("");
  std::filesystem::current_path(old);
  EXPECT_EQ(log("runs/bigram-1").size(), 8u);
  EXPECT_EQ(log("runs/bigram-2").size(), 8u);
  EXPECT_EQ(log("runs/bigram-3").size(), 2u);
}

TEST_F(Training, DryRunWritesNothing) {
  options.dryRun = true;
  run("a");
  EXPECT_FALSE(std::filesystem::exists(folder.path("a")));
  EXPECT_NE(printed.find("nothing was written"), std::string::npos);
}

TEST_F(Training, BadDataWritesNothing) {
  folder.write("x.txt", "abc");
  messageOf<InputError>([&] { run("a"); });
  EXPECT_FALSE(std::filesystem::exists(folder.path("a")));
}

TEST_F(Training, ASignalFinishesTheStepAndSaves) {
  for (int number : {SIGTERM, SIGINT}) {
    std::string out = "s" + std::to_string(number);
    before = [=](BigramExecutor &, const std::string &action, int64_t step) {
      if (step == 3 && action == "loss_grad")
        std::raise(number);
    };
    run(out);
    EXPECT_EQ(log(out).size(), 3u);
    EXPECT_TRUE(
        std::filesystem::exists(folder.path(out + "/checkpoint-000003")));
    EXPECT_NE(printed.find("stopped by a signal after step 3"),
              std::string::npos);
  }
}

TEST_F(Training, ANonFiniteLossStopsAndNamesTheTensor) {
  before = [](BigramExecutor &executor, const std::string &action,
              int64_t step) {
    if (step == 4 && action == "loss_grad")
      executor.values("p.table")[12] = std::numeric_limits<double>::quiet_NaN();
  };
  std::string message = messageOf<RunError>([&] { run("a"); });
  EXPECT_NE(message.find("step 4: the loss is not finite; the first "
                         "non-finite tensor is parameter 'table', element 12 "
                         "of [11, 11]"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("nothing was saved, as parameters or state are not "
                         "finite; no checkpoint was saved"),
            std::string::npos)
      << message;
  EXPECT_EQ(log("a").size(), 3u);
  EXPECT_EQ(checkpoints("a"), std::vector<std::string>{});
}

TEST_F(Training, ANonFiniteLossCanBeLeftOut) {
  Manifest manifest = bigramManifest(model);
  manifest.configJson.replace(manifest.configJson.find("\"lr\""), 0,
                              "\"on_nan\":\"skip\",");
  double kept = 0;
  before = [&](BigramExecutor &executor, const std::string &action,
               int64_t step) {
    if (action != "loss_grad" || (step != 4 && step != 5))
      return;
    double &value = executor.values("p.table")[0];
    if (step == 4)
      kept = value;
    value = step == 4 ? INFINITY : kept;
  };
  runManifest(manifest, "a");
  std::vector<double> found = losses("a");
  ASSERT_EQ(found.size(), 8u);
  EXPECT_TRUE(std::isnan(found[3]));
  EXPECT_TRUE(std::isfinite(found[4]));
  EXPECT_LT(found[7], found[0]);
}

TEST_F(Training, StepsWithoutLabelsAreLeftOut) {
  Array tokens = makeArray("i64", {40, 4}), labels = makeArray("i64", {40, 4});
  model.steps = 20;
  for (int64_t i = 0; i < 160; ++i)
    labels.as<int64_t>()[i] = -100;
  writeNpz(folder.path("x.npz"), {{"input_ids", tokens}, {"y", labels}});
  options.data = folder.path("x.npz");
  Manifest manifest = bigramManifest(model);
  manifest.inputs[1].source = "y";
  EXPECT_EQ(messageOf<RunError>([&] { runManifest(manifest, "a"); }),
            "steps 1 to 10: ten steps in a row were left out, no label is "
            "counted (all are data.ignore_index = -100); look at the labels of "
            "the data; --resume " +
                folder.path("a/checkpoint-000010") + " goes on");
  auto lines = log("a");
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(lines[9]["left_out"], "no labels");
  EXPECT_TRUE(lines[9]["loss"].is_null());
  // Every ninth sample has a label.
  for (int64_t i = 0; i < 40; i += 9)
    labels.as<int64_t>()[4 * i] = 1;
  writeNpz(folder.path("x.npz"), {{"input_ids", tokens}, {"y", labels}});
  runManifest(manifest, "b");
  lines = log("b");
  ASSERT_EQ(lines.size(), 20u);
  int64_t leftOut = 0;
  for (auto &line : lines)
    leftOut += line.contains("left_out");
  EXPECT_GT(leftOut, 0);
  EXPECT_LT(leftOut, 20);
  EXPECT_NE(
      printed.find(std::to_string(leftOut) + " of 20 steps were left out"),
      std::string::npos)
      << printed;
}

TEST_F(Training, AFullDiskLeavesOlderCheckpointsAlone) {
  options.saveEvery = 2;
  before = [](BigramExecutor &, const std::string &action, int64_t step) {
    if (step == 4 && action == "update")
      setWriteLimitForTests(1500); // the log still fits, a checkpoint does not
  };
  std::string message = messageOf<RunError>([&] { run("a"); });
  setWriteLimitForTests(-1);
  EXPECT_NE(message.find("no space left on the device; nothing of " +
                         folder.path("a/checkpoint-000004") + " was kept"),
            std::string::npos)
      << message;
  std::vector<std::string> left = folder.list("a");
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"checkpoint-000002", "config.toml",
                                            "latest", "log.jsonl"}));
  before = nullptr;
  options.resume = "latest";
  run("a");
  EXPECT_EQ(log("a").size(), 8u);
}

TEST(Ranks, MustBeTheMeshs) {
  BigramOptions model;
  model.ranks = 4;
  Manifest manifest = bigramManifest(model);
  for (const char *name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    ::unsetenv(name);
  EXPECT_EQ(checkRanks(manifest, std::nullopt), "local");
  EXPECT_EQ(checkRanks(manifest, 4), "local");
  EXPECT_EQ(messageOf<InputError>([&] { checkRanks(manifest, 2); }),
            "--ranks is 2, but the program was compiled for a mesh of 4 "
            "ranks; compile it for 2");
  ::setenv("WORLD_SIZE", "3", 1);
  EXPECT_NE(messageOf<InputError>([&] {
              checkRanks(manifest, 4);
            }).find("WORLD_SIZE is 3"),
            std::string::npos);
  ::setenv("WORLD_SIZE", "4", 1);
  EXPECT_NE(messageOf<InputError>([&] {
              checkRanks(manifest, 4);
            }).find("brings no MPI; start with mpirun -n 4"),
            std::string::npos);
  ::unsetenv("WORLD_SIZE");
}

TEST(Ranks, TheLauncherSaysWhichTransport) {
  for (const char *name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    ::unsetenv(name);
  auto refusal = [](const char *key, int64_t ranks) {
    return messageOf<InputError>([&] { chooseTransport(key, ranks); });
  };
  EXPECT_EQ(chooseTransport("auto", 4), "local");
  EXPECT_EQ(chooseTransport("local", 4), "local");
  EXPECT_EQ(refusal("mpi", 4), "target.transport = \"mpi\" needs a launcher: "
                               "start with mpirun -n 4");
  EXPECT_NE(refusal("nccl", 4).find("target.kind = \"cpu\"; expected auto, "
                                    "local or mpi"),
            std::string::npos);
  auto refusalOfCuda = [](const char *key, int64_t ranks) {
    return messageOf<InputError>([&] { chooseTransport(key, ranks, "cuda"); });
  };
  EXPECT_EQ(chooseTransport("auto", 4, "cuda"), "auto");
  EXPECT_EQ(chooseTransport("nccl", 4, "cuda"), "nccl");
  EXPECT_NE(refusalOfCuda("mpi", 4).find("target.kind = \"cuda\"; expected "
                                         "auto, local or nccl"),
            std::string::npos);
  ::setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  EXPECT_EQ(chooseTransport("auto", 4), "mpi");
  EXPECT_EQ(chooseTransport("mpi", 4), "mpi");
  EXPECT_EQ(chooseTransport("auto", 4, "cuda"), "nccl");
  EXPECT_NE(refusalOfCuda("local", 4).find("the launcher started 4"),
            std::string::npos);
  EXPECT_NE(refusal("local", 4).find("the launcher started 4"),
            std::string::npos);
  EXPECT_EQ(refusal("auto", 2),
            "OMPI_COMM_WORLD_SIZE is 4, but the program was compiled for a "
            "mesh of 2 ranks; compile it for 4");
  ::setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  EXPECT_EQ(chooseTransport("auto", 1), "local");
  EXPECT_EQ(chooseTransport("mpi", 1), "mpi");
  EXPECT_EQ(chooseTransport("auto", 1, "cuda"), "auto");
  EXPECT_EQ(chooseTransport("nccl", 1, "cuda"), "nccl");
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  // Sets the environment variables that torchrun sets.
  ::setenv("WORLD_SIZE", "4", 1);
  EXPECT_NE(refusalOfCuda("auto", 4).find("MASTER_ADDR and MASTER_PORT"),
            std::string::npos);
  ::setenv("MASTER_ADDR", "localhost", 1);
  ::setenv("MASTER_PORT", "29500", 1);
  EXPECT_EQ(chooseTransport("auto", 4, "cuda"), "nccl");
  EXPECT_NE(refusal("auto", 4).find("brings no MPI"), std::string::npos);
  for (const char *name : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    ::unsetenv(name);
}

TEST(Infer, GathersOutputsOfAnyNumberOfSamples) {
  TestFolder folder;
  BigramOptions model;
  model.batch = 4;
  model.ranks = 3;
  Manifest manifest = bigramManifest(model);
  Array tokens = makeArray("i64", {5, 4});
  for (int64_t i = 0; i < 20; ++i)
    tokens.as<int64_t>()[i] = i % 11;
  writeNpz(folder.path("in.npz"), {{"input_ids", tokens}});
  InferOptions options;
  options.inputs = folder.path("in.npz");
  options.outputs = folder.path("out.npz");
  auto start = [&] { return std::make_unique<BigramExecutor>(model); };
  ::testing::internal::CaptureStdout();
  infer(manifest, options, start);
  ::testing::internal::GetCapturedStdout();
  Array logits = readNpz(folder.path("out.npz"))[0].second;
  ASSERT_EQ(logits.shape, (std::vector<int64_t>{5, 4, 11}));
  // Equal tokens have equal logits. Token 0 is at (0, 0) and at (2, 3).
  for (int64_t i = 0; i < 11; ++i) {
    EXPECT_EQ(logits.as<double>()[i], logits.as<double>()[11 * 11 + i]);
    EXPECT_NE(logits.as<double>()[i], logits.as<double>()[11 + i]);
  }

  auto refusal = [&](const NamedViews &arrays) {
    writeNpz(folder.path("in.npz"), arrays);
    return messageOf<InputError>([&] { infer(manifest, options, start); });
  };
  EXPECT_NE(refusal({}).find("has no array 'input_ids'"), std::string::npos);
  EXPECT_NE(refusal({{"input_ids", tokens}, {"inputs", tokens}})
                .find("the model has no input 'inputs'"),
            std::string::npos);
  EXPECT_NE(refusal({{"input_ids", makeArray("i64", {5, 3})}})
                .find("has shape [5, 3], expected [4, 4]"),
            std::string::npos);
  EXPECT_NE(refusal({{"input_ids", makeArray("f32", {5, 4})}})
                .find("has element type f32, expected i64"),
            std::string::npos);
  tokens.as<int64_t>()[7] = 99;
  EXPECT_NE(refusal({{"input_ids", tokens}}).find("position 7 has id 99"),
            std::string::npos);
}

} // namespace
