// Writing: for every key, the written configuration reads back the same.

#include "../../../lib/Config/Keys.h"

#include "cleave/Config/Load.h"
#include "cleave/trainer/KeyEffect.h"

#include "gtest/gtest.h"

#include <nlohmann/json.hpp>

#include <set>
#include <sstream>

using namespace cleave;

namespace {

LoadedConfig load(const std::string &text) {
  auto loaded = loadConfigText(text, "c.toml");
  EXPECT_TRUE(loaded) << loaded.error() << "\n" << text;
  return loaded ? *loaded : LoadedConfig();
}

const char *example = R"(
[mesh]
axes = ["data", "tensor", "odd name"]
data = 2
tensor = -1
[dims]
batch = 8
"past.length" = 3
[data]
path = "a \"quoted\"\tpath\\ü\u0001"
inputs = { "input.1" = "zeros" }
[train]
lr = 0.1
eps = 1e-20
betas = [0.0, 0.3333333333333333]
tie = [["a", "b"], ["c", "d"]]
trainable = []
[parallel]
data = { zero = 1 }
tensor = false
)";

TEST(ConfigWrite, ReadsBackToTheSame) {
  for (const char *text : {"", example}) {
    std::string written = writeConfig(load(text).config);
    EXPECT_EQ(writeConfig(load(written).config), written);
  }
  Config config = load(writeConfig(load(example).config)).config;
  EXPECT_EQ(config.dims.at("past.length"), 3);
  EXPECT_EQ(config.data.path, "a \"quoted\"\tpath\\ü\x01");
  EXPECT_EQ(config.data.inputs.at("input.1"), "zeros");
  EXPECT_EQ(config.train.betas[1], 0.3333333333333333);
  EXPECT_EQ(config.train.eps, 1e-20);
  EXPECT_FALSE(config.parallel.tensor.enabled);
  EXPECT_EQ(config.parallel.data.zero, 1);
  EXPECT_EQ(config.mesh.sizes.at("tensor"), -1);
}

TEST(ConfigWrite, DescriptionIsTomlToo) {
  LoadedConfig loaded = load(example);
  std::string described = describeConfig(loaded);
  EXPECT_EQ(writeConfig(load(described).config), writeConfig(loaded.config));
  EXPECT_NE(described.find("c.toml:15"), std::string::npos) << described;
  EXPECT_NE(described.find("# default"), std::string::npos);
}

// Every key appears exactly once with its help text, which names the commands
// that use the key. Every default is legal and supported.
TEST(ConfigWrite, TheTableIsComplete) {
  const std::set<std::string> commands = {"import", "compile", "train",
                                          "infer",  "check",   "explain"};
  std::set<std::string> seen;
  std::string described = describeConfig(LoadedConfig());
  for (const config::Key &key : config::keys()) {
    std::string path = key.path;
    EXPECT_TRUE(seen.insert(path).second) << path << " is listed twice";
    EXPECT_GT(std::string(key.help).size(), 0u) << path;
    EXPECT_EQ(std::string(key.help).find('\n'), std::string::npos) << path;
    std::istringstream users(key.users.commands);
    int64_t count = 0;
    for (std::string user; std::getline(users >> std::ws, user, ','); ++count)
      EXPECT_TRUE(commands.count(user)) << path << " is used by " << user;
    EXPECT_GT(count, 0) << path;
    if (path.ends_with("*"))
      path.resize(path.size() - 2);
    EXPECT_NE(described.find(path), std::string::npos) << path;
    Config defaults;
    auto error = config::checkKey(key, defaults, "default");
    EXPECT_FALSE(error) << error->message;
  }
}

// Every configuration key has exactly one entry that says what a change of the
// key affects.
TEST(ConfigWrite, EveryKeySaysWhatItChanges) {
  std::set<std::string> keys, listed;
  for (const config::Key &key : config::keys())
    keys.insert(key.path);
  for (const KeyEffectEntry &entry : keyEffects())
    EXPECT_TRUE(listed.insert(entry.path).second) << entry.path;
  EXPECT_EQ(keys, listed) << "add the key to runtime/trainer/KeyEffect.cpp";
  EXPECT_EQ(effectOfKey("data.eval_path"), KeyEffect::Mathematics);
  EXPECT_EQ(effectOfKey("dims.batch"), KeyEffect::Mathematics);
  EXPECT_EQ(effectOfKey("parallel.data.zero"), KeyEffect::Layout);
  EXPECT_EQ(effectOfKey("train.keep"), KeyEffect::Reporting);
}

TEST(ConfigWrite, TablesInLists) {
  std::vector<SequenceParallelConfig> sequence = {{"ring", "r", "shard"}};
  EXPECT_EQ(config::formatValue(&sequence),
            "[{ kind = \"ring\", axis = \"r\", plan = \"auto\", order = "
            "\"zigzag\" }]");
  std::vector<ShardConfig> shard = {{".*w", {{"x", "y"}, {}}, {3, 4}}};
  EXPECT_EQ(
      config::formatValue(&shard),
      "[{ match = \".*w\", dims = [[\"x\", \"y\"], []], view = [3, 4] }]");
}

TEST(ConfigWrite, Numbers) {
  auto text = [](double value) { return config::formatValue(&value); };
  EXPECT_EQ(text(3e-4), "3e-4");
  EXPECT_EQ(text(1), "1.0");
  EXPECT_EQ(text(0.1), "0.1");
  EXPECT_EQ(text(1e22), "1e+22");
  EXPECT_EQ(text(-0.0), "-0.0");
}

TEST(ConfigWrite, JsonIsNestedLikeTheFile) {
  auto json = nlohmann::json::parse(writeConfigJson(load(example).config));
  EXPECT_EQ(json["mesh"]["data"], 2);
  EXPECT_EQ(json["mesh"]["axes"].size(), 3u);
  EXPECT_EQ(json["dims"]["past.length"], 3);
  EXPECT_EQ(json["data"]["inputs"]["input.1"], "zeros");
  EXPECT_EQ(json["train"]["lr"], 0.1);
  EXPECT_EQ(json["train"]["tie"][1][0], "c");
  EXPECT_EQ(json["parallel"]["data"]["zero"], 1);
  EXPECT_EQ(json["parallel"]["tensor"]["enabled"], false);
  EXPECT_EQ(json["shard"], nlohmann::json::array());
  EXPECT_TRUE(
      nlohmann::json::parse(writeConfigJson(Config()))["dims"].is_object());
}

TEST(ConfigNearest, Distance) {
  EXPECT_EQ(nearest("lrr", {"lr", "loss"}), "lr");
  EXPECT_EQ(nearest("daat", {"data", "tensor"}), "data") << "a swap is one";
  EXPECT_EQ(nearest("train.drop", {"train.lr", "train.dropout"}),
            "train.dropout")
      << "a beginning";
  EXPECT_EQ(nearest("zzz", {"lr", "loss"}), std::nullopt);
  EXPECT_TRUE(nearest("zzz", {"lr", "loss"}, true).has_value());
  EXPECT_EQ(nearest("x", {}, true), std::nullopt);
}

} // namespace
