// cluster.toml: valid files and rejected ones.

#include "cleave/Config/Cluster.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace cleave;

namespace {

std::string errorOf(const std::string &text) {
  auto cluster = loadClusterText(text, "c.toml");
  return cluster ? "" : cluster.error();
}

TEST(Cluster, ReadsTheExample) {
  auto cluster = loadCluster(CLEAVE_TEST_INPUTS "/cluster.toml");
  ASSERT_TRUE(bool(cluster)) << cluster.error();
  EXPECT_EQ(cluster->ranksPerNode, 4);
  EXPECT_DOUBLE_EQ(cluster->link("intra").latency, 2.5e-6);
  EXPECT_DOUBLE_EQ(cluster->link("intra").message, 0.25e-6);
  EXPECT_DOUBLE_EQ(cluster->link("intra").bytesPerSecond, 25e9);
  EXPECT_DOUBLE_EQ(cluster->link("inter").latency, 20e-6);
  EXPECT_DOUBLE_EQ(cluster->link("inter").message, 1e-6); // the default
  EXPECT_DOUBLE_EQ(cluster->memoryBytesPerSecond, 12e9);
  // Sizes at points of the measured curve, between two points, and outside of
  // the curve's range.
  EXPECT_DOUBLE_EQ(cluster->matmulSeconds(1e6), 1e6 / 5e9);
  EXPECT_NEAR(cluster->matmulSeconds(1e7), 1e7 / (5e9 * std::sqrt(10.0)),
              1e-12);
  EXPECT_DOUBLE_EQ(cluster->matmulSeconds(1e12), 1e12 / 100e9);
  EXPECT_DOUBLE_EQ(cluster->matmulSeconds(1e3), 1e3 / 5e9);
}

TEST(Cluster, Contention) {
  auto cluster = loadClusterText("[overlap]\ncontention = 0.2\n", "c.toml");
  ASSERT_TRUE(bool(cluster)) << cluster.error();
  EXPECT_DOUBLE_EQ(cluster->contention, 0.2);
  cluster = loadClusterText("[overlap]\ncontention = -1\n", "c.toml");
  ASSERT_FALSE(bool(cluster));
  EXPECT_EQ(cluster.error(), "c.toml:2: overlap.contention: found -1; expected "
                             "a number of at least 0");
  cluster = loadClusterText("[overlap]\nslowdown = 1\n", "c.toml");
  ASSERT_FALSE(bool(cluster));
  EXPECT_EQ(cluster.error(), "c.toml:2: unknown key overlap.slowdown; did you "
                             "mean overlap.contention?");
}

TEST(Cluster, NothingIsTheDefaults) {
  auto cluster = loadClusterText("", "c.toml");
  ASSERT_TRUE(bool(cluster));
  EXPECT_EQ(cluster->links, Cluster().links);
  EXPECT_EQ(cluster->matmul, Cluster().matmul);
  // A link class without an entry equals "intra".
  EXPECT_EQ(cluster->link("other"), cluster->link("intra"));
}

TEST(Cluster, SomeAreBuiltIn) {
  double before = 0;
  for (const char *name : {"h100-bf16", "h100-tf32", "h100-fp32"}) {
    auto cluster = loadCluster(name);
    ASSERT_TRUE(bool(cluster)) << cluster.error();
    EXPECT_EQ(cluster->name, name);
    EXPECT_GT(cluster->matmulSeconds(1e12), before);
    before = cluster->matmulSeconds(1e12);
    EXPECT_GT(cluster->link("intra").bytesPerSecond,
              cluster->link("inter").bytesPerSecond);
  }
  EXPECT_FALSE(builtInCluster("h100"));
}

TEST(Cluster, RefusesWithTheLine) {
  EXPECT_EQ(errorOf("\nlink = 1"),
            "c.toml:2: unknown key link; did you mean links?");
  EXPECT_EQ(errorOf("[links.intra]\nlatency = 1"),
            "c.toml:2: unknown key links.intra.latency; did you mean "
            "links.intra.latency_us?");
  EXPECT_EQ(errorOf("[links.intra]\nlatency_us = -1"),
            "c.toml:2: links.intra.latency_us: found -1; expected a number of "
            "at least 0");
  EXPECT_EQ(
      errorOf("[links.intra]\ngbytes_per_s = 0"),
      "c.toml:2: links.intra.gbytes_per_s: found 0; expected a number above 0");
  EXPECT_EQ(errorOf("[links.intra]\ngbytes_per_s = 'fast'"),
            "c.toml:2: links.intra.gbytes_per_s: expected a number above 0");
  EXPECT_EQ(errorOf("[links.intra]\ngbytes_per_s = inf"),
            "c.toml:2: links.intra.gbytes_per_s: found inf; expected a number "
            "above 0");
  EXPECT_EQ(errorOf("links = 3"), "c.toml:1: links must be a table");
  EXPECT_EQ(errorOf("ranks_per_node = 1.5"),
            "c.toml:1: ranks_per_node: expected an integer of at least 0");
  EXPECT_EQ(errorOf("[matmul]\nflops = [1, 2]\ngflops_per_s = [1]"),
            "c.toml:1: matmul: found 2 flops and 1 gflops_per_s; expected as "
            "many of both");
  EXPECT_EQ(errorOf("[matmul]\nflops = [2, 1]\ngflops_per_s = [1, 1]"),
            "c.toml:1: matmul.flops must ascend");
  EXPECT_EQ(errorOf("[matmul]\nflops = 1"),
            "c.toml:2: matmul.flops must be a list of numbers");
  EXPECT_NE(errorOf("[links").find("c.toml:1: "), std::string::npos);
  auto missing = loadCluster("/nowhere/cluster.toml");
  ASSERT_FALSE(bool(missing));
  EXPECT_EQ(
      missing.error(),
      "cannot read the cluster file /nowhere/cluster.toml: No such file or "
      "directory; target.cluster "
      "names a file in TOML, or one of h100-fp32, h100-tf32 and h100-bf16 "
      "(docs/cluster.md)");
}

} // namespace
