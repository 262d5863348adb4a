// The table of keys; see Keys.h.

#include "Keys.h"

#include "KeyChecks.h"

using namespace cleave;
using namespace cleave::config;
using namespace cleave::config::checks;

namespace {

#define FIELD(member) [](Config &c) -> Field { return &c.member; }

constexpr Served now = Served::Yes;

// Lists of the commands in which a key has an effect. `compile` writes the
// settings of `train` into the program, for cleave-run.
constexpr Users models = {"import, compile, train, infer, check, explain"};
constexpr Users programs = {"compile, train, infer, check, explain"};
constexpr Users steps = {"compile, train, check, explain"};
constexpr Users runs = {"compile, train"};
constexpr Users seeds = {"compile, train, check"};
// Types of which only `explain` counts the bytes; other commands refuse them.
constexpr Users books = {"explain"};
constexpr Users artifacts = {"compile, train, infer, check"};
constexpr Users sessions = {"compile, train, infer, check"};
constexpr Users limits = {"compile, train, infer, explain"};

const std::vector<Key> table = {
    // [mesh]
    {"mesh.axes", FIELD(mesh.axes),
     "order of the axes, slowest link first; []: pipeline, data, expert, "
     "sequence, tensor",
     programs, "", "", now, &names},
    {"mesh.*", FIELD(mesh.sizes),
     "size of a mesh axis; -1: what is left of --ranks or WORLD_SIZE", programs,
     "", "", now, &meshSizes},
    {"mesh.ranks_per_node", FIELD(mesh.ranksPerNode),
     "gives every axis its link class; 0: all ranks on one node", programs, "",
     "", now, &atLeastZero},

    // [dims]
    {"dims.*", FIELD(dims),
     "binds a symbolic dimension; batch (global) and sequence also name "
     "dimensions 0 and 1 of the tokens",
     models, "", "", now, &dimSizes},

    // [data]
    {"data.path", FIELD(data.path),
     "training data (--data): .txt bytes, .bin or .npy tokens, .npz or a "
     "folder of .npy",
     runs},
    {"data.dtype", FIELD(data.dtype), "element type of a .bin file", runs,
     "uint8|uint16|int32|uint32|int64"},
    {"data.tokens", FIELD(data.tokens),
     "graph input that takes the tokens; \"\": the only integer one of shape "
     "[batch, sequence]",
     models},
    {"data.labels", FIELD(data.labels),
     "next: the tokens shifted by one; or the name of an array or a graph "
     "input",
     models, "", "", now, &notEmpty},
    {"data.ignore_index", FIELD(data.ignoreIndex),
     "labels of this value count nothing", steps},
    {"data.inputs.*", FIELD(data.inputs),
     "what feeds a graph input: ones, zeros, arange, or the name of an array",
     models, "", "", now, &inputSources},
    {"data.bind.*", FIELD(data.bind),
     "FILE.npy or a number that a graph input is for all samples and steps "
     "(--bind NAME=...)",
     models, "", "", now, &boundValues},
    {"data.seed", FIELD(data.seed), "seed of the sample order", runs, "", "",
     now, &atLeastZero},
    {"data.validation", FIELD(data.validation),
     "the share of the data that is kept for val_loss", runs, "", "", now,
     &share},
    {"data.shuffle_split", FIELD(data.shuffleSplit),
     "whether that share is drawn by data.seed, else it is the end; auto: "
     "samples are drawn, text is not",
     runs, "auto|true|false"},
    {"data.eval_path", FIELD(data.evalPath),
     "data for val_loss instead of a share of data.path", runs},

    // [train]
    {"train.loss", FIELD(train.loss),
     "cross_entropy (classes are the last dimension of the logits), mse, "
     "or output:NAME",
     steps, "", "", now, &loss},
    {"train.optimizer", FIELD(train.optimizer), "the optimizer", steps,
     "sgd|adamw"},
    {"train.lr", FIELD(train.lr), "peak learning rate", runs, "", "", now,
     &atLeastZero},
    {"train.betas", FIELD(train.betas), "AdamW's decay rates of the moments",
     steps, "", "", now, &twoShares},
    {"train.eps", FIELD(train.eps), "AdamW's denominator term", steps, "", "",
     now, &aboveZero},
    {"train.weight_decay", FIELD(train.weightDecay),
     "decay of parameters of two or more dimensions ([C, 1, ...] has one)",
     steps, "", "", now, &atLeastZero},
    {"train.no_decay", FIELD(train.noDecay),
     "patterns (of whole names) of further parameters without decay", steps, "",
     "", now, &patterns},
    {"train.momentum", FIELD(train.momentum), "SGD's momentum", steps, "", "",
     now, &share},
    {"train.clip_norm", FIELD(train.clipNorm),
     "limit of the global gradient norm; 0: off", steps, "", "", now,
     &atLeastZero},
    {"train.schedule", FIELD(train.schedule), "learning rate after the warm-up",
     runs, "constant|linear|cosine"},
    {"train.warmup_steps", FIELD(train.warmupSteps), "steps of linear warm-up",
     runs, "", "", now, &atLeastZero},
    {"train.min_lr", FIELD(train.minLr), "where the schedule ends", runs, "",
     "", now, &atLeastZero},
    {"train.steps", FIELD(train.steps), "optimizer steps (--steps)", runs, "",
     "", now, &atLeastZero},
    {"train.microbatches", FIELD(train.microbatches),
     "parts of the batch whose gradients are accumulated", steps, "", "", now,
     &atLeastOne},
    {"train.precision", FIELD(train.precision), "type of the computation",
     programs, "fp32|tf32|bf16", "", now, &noHalf},
    {"train.grad_dtype", FIELD(train.gradDtype),
     "type of the gradients; \"\": as precision", books, "|fp32|bf16", "", now,
     &noHalf},
    {"train.reduce_dtype", FIELD(train.reduceDtype),
     "type in which gradients are reduced", books, "fp32|bf16", "", now,
     &noHalf},
    {"train.master_dtype", FIELD(train.masterDtype),
     "type of the parameters that the optimizer keeps", books, "fp32|bf16", "",
     now, &noHalf},
    {"train.save_minutes", FIELD(train.saveMinutes),
     "minutes between checkpoints, at most; 0: only by --save-every and at "
     "the end",
     runs, "", "", now, &atLeastZero},
    {"train.keep", FIELD(train.keep),
     "checkpoints of a run that are kept, the newest; 0: all", runs, "", "",
     now, &atLeastZero},
    {"train.on_nan", FIELD(train.onNan),
     "what a non-finite loss does: stop the run or skip the step", runs,
     "stop|skip"},
    {"train.logits", FIELD(train.logits),
     "the output that the loss reads; \"\": the only candidate", steps},
    {"train.tie", FIELD(train.tie), "parameters that are one: [[\"a\", \"b\"]]",
     models, "", "", now, &pairs},
    {"train.untie", FIELD(train.untie),
     "patterns (of whole names) of tensors that an exporter merged: each use "
     "is "
     "a parameter of its own",
     models, "", "", now, &patterns},
    {"train.dropout", FIELD(train.dropout),
     "dropout of what joins the residual stream and of weights of attention, "
     "where an eval export removed it; 0: off",
     steps, "", "", now, &share},
    {"train.seed", FIELD(train.seed), "seed of dropout and of checks", seeds,
     "", "", now, &atLeastZero},
    {"train.trainable", FIELD(train.trainable),
     "patterns (of whole names) of parameters to train", models, "", "", now,
     &patterns},
    {"train.frozen", FIELD(train.frozen),
     "patterns (of whole names) of parameters to leave, of those", steps, "",
     "", now, &patterns},
    {"train.began", FIELD(train.began),
     "lists of parameters that began to train later than the rest, each "
     "counted apart by AdamW; --resume sets it",
     steps, "", "", now, &lists},

    // [parallel]
    {"parallel.data.enabled", FIELD(parallel.data.enabled),
     "data parallelism on its axis; `data = false` switches it off", programs},
    {"parallel.data.axis", FIELD(parallel.data.axis), "mesh axis of the batch",
     programs, "", "", now, &notEmpty},
    {"parallel.data.replicate", FIELD(parallel.data.replicate),
     "outer mesh axis of hybrid sharding", programs},
    {"parallel.data.zero", FIELD(parallel.data.zero),
     "sharded over data ranks: 0 nothing, 1 optimizer state, 2 and gradients, "
     "3 and parameters",
     programs, "0|1|2|3"},
    {"parallel.data.zero2_reduce", FIELD(parallel.data.zero2Reduce),
     "when ZeRO-2 reduces gradients", steps, "per_step|per_microbatch"},
    {"parallel.data.reshard_after_forward",
     FIELD(parallel.data.reshardAfterForward),
     "ZeRO-3 drops gathered parameters until the backward pass", steps},
    {"parallel.tensor.enabled", FIELD(parallel.tensor.enabled),
     "tensor parallelism on its axis; `tensor = false` switches it off",
     programs},
    {"parallel.tensor.axis", FIELD(parallel.tensor.axis),
     "mesh axis of the weights", programs, "", "", now, &notEmpty},
    {"parallel.tensor.layout", FIELD(parallel.tensor.layout),
     "how weights are sharded over the axes", programs, "1d|2d|2.5d|3d"},
    {"parallel.tensor.axes", FIELD(parallel.tensor.axes),
     "axes of the layouts above 1d: 2d [row, col], 2.5d [depth, row, col], "
     "3d [i, j, k]",
     programs, "", "", now, &names},
    {"parallel.sequence", FIELD(parallel.sequence),
     "list of { kind = megatron | ulysses | ring, axis, saved_input, plan, "
     "order }, inner first",
     programs, "", "", now, &sequenceKinds},
    {"parallel.expert.enabled", FIELD(parallel.expert.enabled),
     "expert parallelism on its axis", programs},
    {"parallel.expert.axis", FIELD(parallel.expert.axis),
     "mesh axis of the experts", programs, "", "", now, &notEmpty},
    {"parallel.expert.tensor_axis", FIELD(parallel.expert.tensorAxis),
     "mesh axis of the experts' inner width; \"\": that of tensor parallelism",
     programs},
    {"parallel.expert.exchange", FIELD(parallel.expert.exchange),
     "how rows go where the axis spans nodes: to each rank, or by way of its "
     "node; auto: the faster by the cluster's links",
     programs, "auto|direct|hierarchical"},
    {"parallel.expert.max_load", FIELD(parallel.expert.maxLoad),
     "room for rows that a rank sends another, in balanced shares; rows beyond "
     "go in further rounds",
     programs, "", "", now, &atLeastOne},
    {"parallel.expert.capacity", FIELD(parallel.expert.capacity),
     "capacity factor, beyond which slots are dropped; 0: dropless", programs,
     "", "", now, &atLeastZero},
    {"parallel.expert.capacity_scope", FIELD(parallel.expert.capacityScope),
     "whose slots an expert has room for: those of each sequence, or of the "
     "microbatch of all ranks",
     programs, "sequence|microbatch"},
    {"parallel.expert.aux_loss", FIELD(parallel.expert.auxLoss),
     "weight of the balance loss", steps, "", "", now, &atLeastZero},
    {"parallel.expert.z_loss", FIELD(parallel.expert.zLoss),
     "weight of the router's z-loss", steps, "", "", now, &atLeastZero},
    {"parallel.expert.aux_scope", FIELD(parallel.expert.auxScope),
     "over what the balance loss and the z-loss are computed: each sequence, "
     "or the microbatch of all ranks",
     steps, "sequence|microbatch"},
    {"parallel.expert.bias_update", FIELD(parallel.expert.biasUpdate),
     "how far a step moves the bias by which a router chooses, towards even "
     "loads; 0: off",
     steps, "", "", now, &atLeastZero},
    {"parallel.pipeline.enabled", FIELD(parallel.pipeline.enabled),
     "pipeline parallelism on its axis", programs},
    {"parallel.pipeline.axis", FIELD(parallel.pipeline.axis),
     "mesh axis of the stages", programs, "", "", now, &notEmpty},
    {"parallel.pipeline.schedule", FIELD(parallel.pipeline.schedule),
     "order of forward and backward parts", programs,
     "gpipe|1f1b|interleaved|looped-bfs|chimera|zb-h1|zb-h2|zb-v|v-half|"
     "dualpipe-v|pipedream-async|custom"},
    {"parallel.pipeline.chunks", FIELD(parallel.pipeline.chunks),
     "stages per rank; 0: what the schedule needs", programs, "", "", now,
     &atLeastZero},
    {"parallel.pipeline.stages", FIELD(parallel.pipeline.stages),
     "patterns of what each stage holds; []: balanced by cost", programs, "",
     "", now, &patterns},
    {"parallel.pipeline.table", FIELD(parallel.pipeline.table),
     "CSV file of a custom schedule", programs},
    {"parallel.recompute", FIELD(parallel.recompute),
     "activations that the backward pass computes again", steps,
     "none|selective|full|auto", "none"},
    {"parallel.offload.optimizer", FIELD(parallel.offloadOptimizer),
     "where the optimizer state lives", steps, "device|host|disk", "device"},

    // [[shard]]
    {"shard", FIELD(shard),
     "shardings by hand: { match, dims, view }, wins over strategies", programs,
     "", "", now, &shards},

    // [target]
    {"target.kind", FIELD(target.kind), "device to compile for", programs,
     "cpu|cuda"},
    {"target.architectures", FIELD(target.architectures),
     "processors of cuda to compile for: sm_80, sm_90, sm_100", artifacts, "",
     "", now, &architectures},
    {"target.transport", FIELD(target.transport),
     "how ranks talk; auto: mpi (cuda: nccl) under mpirun, srun or torchrun, "
     "else local",
     sessions, "auto|local|mpi|nccl"},
    {"target.threads_per_rank", FIELD(target.threadsPerRank),
     "threads of a rank; 0: cores / local ranks, with cuda 1", programs, "", "",
     now, &threads},
    {"target.cluster", FIELD(target.cluster),
     "cluster.toml with measured links and rates, or h100-fp32, h100-tf32, "
     "h100-bf16; "
     "\"\": defaults of CPUs, with cuda of an H100",
     programs},
    {"target.overlap", FIELD(target.overlap),
     "start collectives early and end them late, so that computing hides them",
     programs},
    {"target.memory", FIELD(target.memory),
     "GiB that a rank may have: train, infer, compile and explain refuse a "
     "program that needs more (check does not: it runs other programs, in "
     "f64); "
     "0: what the machine has, where it compiles for itself",
     limits, "", "", now, &atLeastZero},

    // [import]
    {"import.evaluated_elements", FIELD(importing.evaluatedElements),
     "elements of constants that may be evaluated while a model is imported",
     models, "", "", now, &atLeastOne},
    {"import.inlined_nodes", FIELD(importing.inlinedNodes),
     "nodes that calls of the model's functions may expand to", models, "", "",
     now, &atLeastOne},
};

#undef FIELD

std::vector<std::string> split(const std::string &text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t bar; (bar = text.find('|', begin)) != std::string::npos;
       begin = bar + 1)
    parts.push_back(text.substr(begin, bar - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

// Returns the list as text, `a, b, c`, with "" for the empty string.
std::string list(const std::vector<std::string> &values) {
  std::string text;
  for (const std::string &value : values)
    text += (text.empty() ? "" : ", ") + (value.empty() ? "\"\"" : value);
  return text;
}

bool has(const std::vector<std::string> &values, const std::string &value) {
  for (const std::string &candidate : values)
    if (candidate == value)
      return true;
  return false;
}

// Returns the value as the text that is compared with the lists of allowed
// values (`values`) and supported values (`served`): strings have no quotes.
std::string bareValue(Field field) {
  if (auto *text = std::get_if<std::string *>(&field))
    return **text;
  return formatValue(field);
}

} // namespace

const std::vector<Key> &config::keys() { return table; }

std::optional<ConfigError> config::checkKey(const Key &key, Config &config,
                                            const std::string &origin) {
  Field field = key.field(config);
  std::string where = std::string(key.path) + " (" + origin + ")";
  bool map = where.find('*') != std::string::npos;

  if (key.check)
    if (std::string wrong = key.check->wrong(field); !wrong.empty())
      return ConfigError{
          map ? wrong : where + ": found " + formatValue(field) + "; " + wrong};

  std::string value = bareValue(field);
  if (*key.values) {
    std::vector<std::string> values = split(key.values);
    if (!has(values, value)) {
      // The error message names only the values that are supported, not those
      // that are planned.
      std::vector<std::string> served =
          *key.served ? split(key.served) : values;
      std::string message = where + ": found " + formatValue(field) +
                            "; expected one of " + list(served);
      std::vector<std::string> later;
      for (const std::string &each : values)
        if (!has(served, each))
          later.push_back(each);
      if (!later.empty())
        message += " (not yet supported: " + list(later) + ")";
      // "gpu" has fewer letters in common with "cuda" than with "cpu".
      auto meant = value == "gpu" && has(served, "cuda")
                       ? std::optional<std::string>("cuda")
                       : nearest(value, served);
      if (meant && !meant->empty())
        message += "; did you mean " + *meant + "?";
      return ConfigError{message};
    }
  }
  if (*key.served) {
    std::vector<std::string> served = split(key.served);
    if (!has(served, value))
      return ConfigError{where + ": " + formatValue(field) +
                         " is not yet supported; served now: " + list(served)};
  }
  if (key.servedNow == Served::OnlyDefault) {
    Config defaults;
    std::string standard = formatValue(key.field(defaults));
    if (formatValue(field) != standard)
      return ConfigError{where + ": " + formatValue(field) +
                         " is not yet supported; leave the key out or set it "
                         "to " +
                         standard};
  }
  return std::nullopt;
}
