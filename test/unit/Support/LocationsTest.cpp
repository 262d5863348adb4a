// Tests how messages describe operations by their locations.

#include "cleave/Support/Locations.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace cleave;

namespace {

TEST(Locations, ModuleAndLine) {
  MLIRContext context;
  auto describe = [&](const NodeSource &source) {
    return describeLocation(locationOf(&context, "node_3", source));
  };
  EXPECT_EQ(describe({"blocks.0.qkv", "/home/them/model.py", 13}),
            "blocks.0.qkv (model.py:13)");
  EXPECT_EQ(describe({"blocks.0.qkv", "", 0}), "blocks.0.qkv");
  EXPECT_EQ(describe({"", "model.py", 13}), "node_3 (model.py:13)");
  EXPECT_EQ(describe({}), "node_3");
  EXPECT_EQ(describeSource({"", "", 0}), "");
  EXPECT_EQ(describeSource({"", "a/model.py", 13}), "model.py:13");
}

TEST(Locations, OthersThanNodes) {
  MLIRContext context;
  auto file = FileLineColLoc::get(&context, "model.mlir", 3, 5);
  EXPECT_EQ(describeLocation(file), "model.mlir:3:5");
  EXPECT_EQ(describeLocation(UnknownLoc::get(&context)), "");
  // If the name of a location is already a full description, the location is
  // described by this name alone.
  Location node = locationOf(&context, "node_3", {"emb", "model.py", 2});
  auto text = StringAttr::get(&context, "emb (model.py:2), which reads 'x'");
  EXPECT_EQ(describeLocation(NameLoc::get(text, node)), text.getValue());
}

std::string folded(std::vector<std::string> names) {
  std::string text;
  for (const FoldedName &name : foldLayers(names))
    text += std::to_string(name.members.size()) + " " + name.text + "\n";
  return text;
}

TEST(Locations, EqualLayersAreOne) {
  EXPECT_EQ(folded({"h.0.fc", "head", "h.1.fc", "h.10.fc"}),
            "3 h.*.fc\n1 head\n");
  EXPECT_EQ(folded({"h.0.fc (m.py:3)", "h.1.fc (m.py:3)", "h.2.fc (m.py:4)"}),
            "2 h.*.fc (m.py:3)\n1 h.2.fc (m.py:4)\n");
  // A number that is the same in all names is not replaced by *. A name without
  // a counterpart in another layer is left unchanged.
  EXPECT_EQ(folded({"enc.0.h.0.w", "enc.0.h.1.w"}), "2 enc.0.h.*.w\n");
  EXPECT_EQ(folded({"h.3.fc"}), "1 h.3.fc\n");
  EXPECT_EQ(folded({"/h.0/fc/Gemm", "/h.1/fc/Gemm"}), "2 /h.*/fc/Gemm\n");
  EXPECT_EQ(folded({"val_2", "val_4"}), "1 val_2\n1 val_4\n");
  EXPECT_EQ(folded({"0", "1", "", "."}), "2 *\n1 \n1 .\n");
}

} // namespace
