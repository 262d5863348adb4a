// The names that other programs have for our commands and flags.

#include "Commands.h"

#include "cleave/Config/Load.h"
#include "cleave/io/Suggest.h"

#include <algorithm>

std::string
cleave::driver::describeUnknown(const std::string &name,
                                const std::vector<std::string> &names) {
  std::string unknown = "unknown command '" + name + "'; did you mean '";
  std::string all = "'? `cleave --help` lists all";
  for (const char *later :
       {"calibrate", "checkpoint", "evaluate", "export-onnx", "export-weights",
        "generate", "new", "plan", "simulate", "view"})
    if (later == name)
      return "cleave " + name + " is not yet supported" +
             (name == "evaluate" || name == "generate"
                  ? "; `cleave infer` computes a model's outputs"
                  : "");
  // What others call them.
  for (auto [theirs, ours] : {std::pair("analyze", "explain"),
                              {"apply", "infer"},
                              {"build", "compile"},
                              {"convert", "import"},
                              {"eval", "infer"},
                              {"finetune", "train"},
                              {"fit", "train"},
                              {"forward", "infer"},
                              {"inference", "infer"},
                              {"inspect", "import"},
                              {"predict", "infer"},
                              {"profile", "explain"},
                              {"sample", "infer"},
                              {"score", "infer"},
                              {"summary", "import"},
                              {"test", "check"},
                              {"validate", "check"},
                              {"verify", "check"}})
    if (theirs == name)
      return unknown + ours + all;
  return unknown + *cleave::nearest(name, names, true) + all;
}

std::string cleave::driver::meantByFlag(const std::string &flag) {
  const cleave::Meaning *meaning = cleave::meaningOf(flag);
  std::string name = flag.substr(std::min(flag.size(), size_t(2)));
  for (auto [theirs, ours] : {std::pair("output", "out"),
                              {"output-dir", "out"},
                              {"outdir", "out"},
                              {"logdir", "out"},
                              {"save-steps", "save-every"},
                              {"save-interval", "save-every"},
                              {"eval-steps", "eval-every"},
                              {"eval-interval", "eval-every"},
                              {"gpus", "ranks"},
                              {"devices", "ranks"},
                              {"num-gpus", "ranks"},
                              {"nproc", "ranks"},
                              {"nproc-per-node", "ranks"},
                              {"world-size", "ranks"},
                              {"checkpoint", "resume"},
                              {"load", "resume"},
                              {"resume-from-checkpoint", "resume"}})
    if (theirs == name)
      return std::string("'--") + ours + "'";
  if (!meaning)
    return "";
  std::string key = meaning->key;
  if (key == "train.steps" || key == "data.path")
    return key == "data.path"
               ? "'--data'"
               : std::string("'--steps'") +
                     (*meaning->note ? " (optimizer steps, not passes over "
                                       "the data)"
                                     : "");
  return "--set " + key + "=..." +
         (*meaning->note ? std::string(" (") + meaning->note + ")" : "");
}
