// The mesh: axis order, -1, the rank count, and unused axes.

#include "cleave/Config/Load.h"

#include "gtest/gtest.h"

#include <cstdlib>

using namespace cleave;

namespace {

using Axes = std::vector<std::pair<std::string, int64_t>>;

Config withMesh(std::map<std::string, int64_t> sizes,
                std::vector<std::string> axes = {}) {
  Config config;
  config.mesh.sizes = std::move(sizes);
  config.mesh.axes = std::move(axes);
  return config;
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

#define EXPECT_CONTAINS(text, part)                                            \
  EXPECT_TRUE(contains(text, part)) << "found: " << text

TEST(ConfigMesh, DefaultOrderIsSlowestFirst) {
  auto mesh = resolveMesh(
      withMesh({{"tensor", 2}, {"data", 3}, {"pipeline", 4}}), std::nullopt);
  ASSERT_TRUE(mesh) << mesh.error();
  EXPECT_EQ(mesh->axes, (Axes{{"pipeline", 4}, {"data", 3}, {"tensor", 2}}));
  EXPECT_EQ(mesh->ranks(), 24);
  EXPECT_EQ(mesh->size("data"), 3);
  EXPECT_EQ(mesh->size("expert"), 1);
}

TEST(ConfigMesh, OwnOrderAndNames) {
  auto mesh = resolveMesh(withMesh({{"y", 2}, {"x", 3}}, {"x", "z", "y"}), 6);
  ASSERT_TRUE(mesh) << mesh.error();
  EXPECT_EQ(mesh->axes, (Axes{{"x", 3}, {"z", 1}, {"y", 2}}));
}

TEST(ConfigMesh, RestOfTheRanks) {
  Config config = withMesh({{"data", -1}, {"tensor", 2}});
  EXPECT_EQ(resolveMesh(config, 6)->axes, (Axes{{"data", 3}, {"tensor", 2}}));
  EXPECT_CONTAINS(resolveMesh(config, 5).error(), "5 ranks do not divide by");
  EXPECT_CONTAINS(resolveMesh(config, std::nullopt).error(), "--ranks");
  EXPECT_CONTAINS(
      resolveMesh(withMesh({{"data", -1}, {"tensor", -1}}), 4).error(),
      "both -1");
}

TEST(ConfigMesh, RankCountMustAgreeAndBothAreNamed) {
  auto mesh = resolveMesh(withMesh({{"data", 2}, {"tensor", 2}}), 8);
  ASSERT_FALSE(mesh);
  EXPECT_CONTAINS(mesh.error(), "data=2, tensor=2");
  EXPECT_CONTAINS(mesh.error(), "has 4 ranks, but there are 8");
  EXPECT_CONTAINS(resolveMesh(Config(), 4).error(), "mesh.data=4");
  EXPECT_FALSE(resolveMesh(Config(), 0));
}

TEST(ConfigMesh, BadAxes) {
  EXPECT_CONTAINS(resolveMesh(withMesh({{"rows", 2}}), 2).error(), "mesh.axes");
  EXPECT_CONTAINS(resolveMesh(withMesh({{"tensr", 2}}), 2).error(),
                  "'mesh.tensor'");
  EXPECT_CONTAINS(resolveMesh(withMesh({{"y", 2}}, {"x"}), 2).error(),
                  "not listed");
  EXPECT_CONTAINS(resolveMesh(withMesh({}, {"x", "x"}), 1).error(), "twice");
  EXPECT_CONTAINS(
      resolveMesh(withMesh({{"data", int64_t(1) << 40}}), std::nullopt).error(),
      "more than");
  // The product of these sizes overflows 64 bits.
  EXPECT_FALSE(resolveMesh(
      withMesh({{"data", int64_t(1) << 62}, {"tensor", 4}}), std::nullopt));
}

std::string useError(const Config &config) {
  auto mesh = resolveMesh(config, std::nullopt);
  EXPECT_TRUE(mesh);
  auto error = checkMeshUse(config, *mesh);
  return error ? error->message : "";
}

TEST(ConfigMesh, EveryAxisIsUsed) {
  EXPECT_EQ(useError(withMesh({{"data", 2}, {"tensor", 2}})), "");
  EXPECT_EQ(useError(Config()), "");
  EXPECT_EQ(useError(withMesh({{"pipeline", 1}})), "");

  Config off = withMesh({{"data", 2}});
  off.parallel.data.enabled = false;
  EXPECT_CONTAINS(useError(off), "mesh.data = 2 is used by no strategy");

  Config renamed = withMesh({{"x", 2}}, {"x"});
  EXPECT_CONTAINS(useError(renamed), "used by no strategy");
  renamed.parallel.data.axis = "x";
  EXPECT_EQ(useError(renamed), "");

  Config missing = withMesh({{"data", 2}});
  missing.parallel.tensor.axis = "dat";
  EXPECT_CONTAINS(useError(missing), "did you mean 'data'");

  Config byHand = withMesh({{"x", 2}}, {"x"});
  byHand.shard.push_back({".*", {{"x"}, {}}, {}});
  EXPECT_EQ(useError(byHand), "");
}

TEST(ConfigMesh, LaterAxesAreRefused) {
  EXPECT_EQ(useError(withMesh({{"expert", 2}})), "");
  EXPECT_EQ(useError(withMesh({{"pipeline", 2}})), "");
}

// Ulysses and ring attention have their own mesh axes; a list of sequence
// strategies is ordered from the inner axis to the outer one.
TEST(ConfigMesh, SequenceKinds) {
  EXPECT_CONTAINS(useError(withMesh({{"sequence", 2}})),
                  "mesh.sequence = 2 is used by no strategy; say how");
  auto with = [](std::vector<SequenceParallelConfig> list) {
    Config config = withMesh({{"data", 2}, {"r", 2}, {"u", 2}, {"tensor", 2}},
                             {"data", "r", "u", "tensor"});
    config.parallel.sequence = std::move(list);
    return config;
  };
  Config all = with({{"ulysses", "u"}, {"ring", "r"}, {"megatron", "tensor"}});
  EXPECT_EQ(useError(all), "");
  BoundaryAxes axes = boundaryAxes(all, *resolveMesh(all, std::nullopt));
  EXPECT_EQ(axes.samples, std::vector<std::string>{"data"});
  EXPECT_EQ(axes.positions, (std::vector<std::string>{"r", "u"}));
  EXPECT_EQ(axes.sharded(), (std::vector<std::string>{"data", "r", "u"}));

  EXPECT_CONTAINS(useError(with({{"ring", "r"}, {"ulysses", "u"}})),
                  "list it before kind ring");
  EXPECT_CONTAINS(useError(with({{"ring", "r"}, {"ring", "u"}})),
                  "entry 2, kind ring on axis 'u', is the second of its kind");
  EXPECT_CONTAINS(useError(with({{"ulysses", "u"}, {"ring", "u"}})),
                  "both name the mesh axis 'u'");
  EXPECT_CONTAINS(useError(with({{"ulysses", "data"}, {"ring", "r"}})),
                  "both name the mesh axis 'data'");
  EXPECT_CONTAINS(useError(with({{"ulysses", "tensor"}, {"ring", "r"}})),
                  "both name the mesh axis 'tensor'");
  EXPECT_CONTAINS(useError(with({{"ulysses", "w"}, {"ring", "r"}})),
                  "names the axis 'w', but the mesh has");
  EXPECT_CONTAINS(useError(with({{"ulysses", "u", "full"}, {"ring", "r"}})),
                  "saved_input is a policy of kind megatron");
}

// ZeRO shards over sequence-parallel ranks as well, with or without
// data-parallel ranks.
TEST(ConfigMesh, ZeroOverPositions) {
  Config config = withMesh({{"sequence", 2}});
  config.parallel.sequence = {{"ulysses", "sequence"}};
  config.parallel.data.zero = 3;
  EXPECT_EQ(useError(config), "");
  config.parallel.sequence = {{"megatron", "tensor"}};
  config.mesh.sizes = {{"tensor", 2}};
  EXPECT_CONTAINS(useError(config),
                  "zero = 3 splits over the mesh axis 'data'");
}

TEST(ConfigMesh, AppliedMeshResolvesToItself) {
  Config config = withMesh({{"tensor", 2}, {"data", -1}});
  Mesh mesh = *resolveMesh(config, 8);
  applyMesh(config, mesh);
  EXPECT_EQ(resolveMesh(config, std::nullopt)->axes, mesh.axes);
}

TEST(ConfigMesh, LauncherWorldSize) {
  unsetenv("WORLD_SIZE");
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("PMI_SIZE");
  unsetenv("SLURM_PROCID");
  EXPECT_EQ(launcherWorldSize(), std::nullopt);
  setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  EXPECT_EQ(launcherWorldSize(), 3);
  setenv("WORLD_SIZE", "5", 1);
  EXPECT_EQ(launcherWorldSize(), 5);
  setenv("WORLD_SIZE", "many", 1);
  EXPECT_EQ(launcherWorldSize(), 3);
  unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(launcherWorldSize(), std::nullopt);
  unsetenv("WORLD_SIZE");
}

} // namespace
