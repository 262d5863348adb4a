// The names that other trainers use for keys, with the names used here.

#include "Keys.h"

#include "cleave/Config/Load.h"

#include <cctype>
#include <cstring>

using namespace cleave;

namespace {

constexpr const char *globalBatch = "the global batch";
constexpr const char *steps =
    "--steps N; optimizer steps, not passes over the data";

const std::vector<Meaning> table = {
    // Sizes
    {"batch_size", "dims.batch", globalBatch},
    {"global_batch_size", "dims.batch"},
    {"train_batch_size", "dims.batch", globalBatch},
    {"per_device_train_batch_size", "dims.batch", globalBatch},
    {"micro_batch_size", "train.microbatches", "their number, not their size"},
    {"accumulation_steps", "train.microbatches"},
    {"grad_accum", "train.microbatches"},
    {"grad_accumulation_steps", "train.microbatches"},
    {"gradient_accumulation_steps", "train.microbatches"},
    {"accumulate_grad_batches", "train.microbatches"},
    {"seq_len", "dims.sequence"},
    {"seq_length", "dims.sequence"},
    {"sequence_length", "dims.sequence"},
    {"max_seq_len", "dims.sequence"},
    {"max_seq_length", "dims.sequence"},
    {"max_length", "dims.sequence"},
    {"block_size", "dims.sequence"},
    {"context_length", "dims.sequence"},
    // Steps
    {"epochs", "train.steps", steps},
    {"num_epochs", "train.steps", steps},
    {"num_train_epochs", "train.steps", steps},
    {"max_epochs", "train.steps", steps},
    {"max_steps", "train.steps"},
    {"num_steps", "train.steps"},
    {"train_steps", "train.steps"},
    {"iterations", "train.steps"},
    {"max_iters", "train.steps"},
    {"train_iters", "train.steps"},
    // The optimizer
    {"learning_rate", "train.lr"},
    {"base_lr", "train.lr"},
    {"max_lr", "train.lr"},
    {"min_learning_rate", "train.min_lr"},
    {"optim", "train.optimizer"},
    {"optimiser", "train.optimizer"},
    {"beta1", "train.betas", "both"},
    {"beta2", "train.betas", "both"},
    {"adam_beta1", "train.betas", "both"},
    {"adam_beta2", "train.betas", "both"},
    {"epsilon", "train.eps"},
    {"adam_epsilon", "train.eps"},
    {"wd", "train.weight_decay"},
    {"l2", "train.weight_decay"},
    {"clip", "train.clip_norm"},
    {"grad_clip", "train.clip_norm"},
    {"gradient_clipping", "train.clip_norm"},
    {"gradient_clip_val", "train.clip_norm"},
    {"max_grad_norm", "train.clip_norm"},
    {"scheduler", "train.schedule"},
    {"lr_scheduler", "train.schedule"},
    {"lr_scheduler_type", "train.schedule"},
    {"lr_schedule", "train.schedule"},
    {"lr_decay_style", "train.schedule"},
    {"warmup", "train.warmup_steps"},
    {"warmup_iters", "train.warmup_steps"},
    {"num_warmup_steps", "train.warmup_steps"},
    {"warmup_ratio", "train.warmup_steps", "steps, no share"},
    {"criterion", "train.loss"},
    {"loss_fn", "train.loss"},
    {"freeze", "train.frozen"},
    {"random_seed", "train.seed"},
    {"manual_seed", "train.seed"},
    // Precision and memory
    {"bf16", "train.precision"},
    {"amp", "train.precision"},
    {"mixed_precision", "train.precision"},
    {"gradient_checkpointing", "parallel.recompute"},
    {"activation_checkpointing", "parallel.recompute"},
    {"checkpoint_activations", "parallel.recompute"},
    // Data
    {"dataset", "data.path"},
    {"dataset_path", "data.path"},
    {"data_path", "data.path"},
    {"train_data", "data.path"},
    {"val_split", "data.validation"},
    {"validation_split", "data.validation"},
    {"eval_split", "data.validation"},
    {"ignore_idx", "data.ignore_index"},
    {"target", "data.labels"},
    {"targets", "data.labels"},
    // Parallelism
    {"fsdp", "parallel.data.zero", "3 is FSDP"},
    {"zero_stage", "parallel.data.zero"},
    {"zero_optimization", "parallel.data.zero"},
    {"dp", "mesh.data"},
    {"dp_size", "mesh.data"},
    {"data_parallel", "mesh.data"},
    {"data_parallel_size", "mesh.data"},
    {"tp", "mesh.tensor"},
    {"tp_size", "mesh.tensor"},
    {"tensor_parallel", "mesh.tensor"},
    {"tensor_parallel_size", "mesh.tensor"},
    {"tensor_model_parallel_size", "mesh.tensor"},
    {"pp", "mesh.pipeline"},
    {"pp_size", "mesh.pipeline"},
    {"pipeline_parallel", "mesh.pipeline"},
    {"pipeline_parallel_size", "mesh.pipeline"},
    {"pipeline_model_parallel_size", "mesh.pipeline"},
    {"cp", "mesh.sequence"},
    {"context_parallel_size", "mesh.sequence"},
    {"sequence_parallel_size", "mesh.sequence"},
    {"ep", "mesh.expert"},
    {"expert_parallel_size", "mesh.expert"},
    {"expert_model_parallel_size", "mesh.expert"},
    {"device", "target.kind"},
    {"backend", "target.transport"},
};

} // namespace

const std::vector<Meaning> &cleave::meanings() { return table; }

const Meaning *cleave::meaningOf(const std::string &name) {
  std::string plain;
  for (char c : name)
    plain += c == '-' ? '_' : char(std::tolower(static_cast<unsigned char>(c)));
  plain.erase(0, plain.find_first_not_of('_'));
  for (const Meaning &meaning : table)
    if (plain == meaning.name)
      return &meaning;
  // A key given without its section.
  static const std::vector<Meaning> ours = [] {
    std::vector<Meaning> list;
    for (const config::Key &key : config::keys())
      if (const char *dot = std::strrchr(key.path, '.'))
        list.push_back({dot + 1, key.path});
    return list;
  }();
  for (const Meaning &meaning : ours)
    if (plain == meaning.name)
      return &meaning;
  return nullptr;
}

std::string cleave::describe(const Meaning &meaning) {
  std::string text = std::string("'") + meaning.key + "'";
  return *meaning.note ? text + " (" + meaning.note + ")" : text;
}
