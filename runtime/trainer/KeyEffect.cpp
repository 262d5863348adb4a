// The table of configuration keys, and what a change of each key affects in a
// resumed run.

#include "cleave/trainer/KeyEffect.h"

namespace cleave {

static constexpr KeyEffectEntry table[] = {
    {"mesh.axes", KeyEffect::Layout},
    {"mesh.*", KeyEffect::LayoutUnlessAsync},
    {"mesh.ranks_per_node", KeyEffect::Layout},
    {"dims.*", KeyEffect::Mathematics},
    // data.path may change, as the same data may have moved; the contents of
    // the data are compared instead.
    {"data.path", KeyEffect::Reporting},
    {"data.dtype", KeyEffect::Mathematics},
    {"data.tokens", KeyEffect::Mathematics},
    {"data.labels", KeyEffect::Mathematics},
    {"data.ignore_index", KeyEffect::Mathematics},
    {"data.inputs.*", KeyEffect::Mathematics},
    {"data.bind.*", KeyEffect::Mathematics},
    {"data.seed", KeyEffect::Mathematics},
    {"data.validation", KeyEffect::Mathematics},
    {"data.shuffle_split", KeyEffect::Mathematics},
    {"data.eval_path", KeyEffect::Mathematics},
    {"train.loss", KeyEffect::Mathematics},
    {"train.optimizer", KeyEffect::Mathematics},
    {"train.lr", KeyEffect::Mathematics},
    {"train.betas", KeyEffect::Mathematics},
    {"train.eps", KeyEffect::Mathematics},
    {"train.weight_decay", KeyEffect::Mathematics},
    {"train.no_decay", KeyEffect::Mathematics},
    {"train.momentum", KeyEffect::Mathematics},
    {"train.clip_norm", KeyEffect::Mathematics},
    {"train.schedule", KeyEffect::Mathematics},
    {"train.warmup_steps", KeyEffect::Mathematics},
    {"train.min_lr", KeyEffect::Mathematics},
    // train.steps may change the end of the learning-rate schedule; this is
    // compared separately.
    {"train.steps", KeyEffect::Reporting},
    {"train.microbatches", KeyEffect::LayoutUnlessPerMicrobatch},
    {"train.precision", KeyEffect::Mathematics},
    {"train.grad_dtype", KeyEffect::Mathematics},
    {"train.reduce_dtype", KeyEffect::Mathematics},
    {"train.master_dtype", KeyEffect::Mathematics},
    {"train.save_minutes", KeyEffect::Reporting},
    {"train.keep", KeyEffect::Reporting},
    {"train.on_nan", KeyEffect::Reporting},
    {"train.logits", KeyEffect::Mathematics},
    {"train.tie", KeyEffect::Mathematics},
    {"train.untie", KeyEffect::Mathematics},
    {"train.dropout", KeyEffect::Mathematics},
    {"train.seed", KeyEffect::Mathematics},
    {"train.trainable", KeyEffect::Mathematics},
    {"train.frozen", KeyEffect::Mathematics},
    // The checkpoint decides it.
    {"train.began", KeyEffect::Layout},
    {"parallel.data.enabled", KeyEffect::Layout},
    {"parallel.data.axis", KeyEffect::Layout},
    {"parallel.data.replicate", KeyEffect::Layout},
    {"parallel.data.zero", KeyEffect::Layout},
    {"parallel.data.zero2_reduce", KeyEffect::Layout},
    {"parallel.data.reshard_after_forward", KeyEffect::Layout},
    {"parallel.tensor.enabled", KeyEffect::Layout},
    {"parallel.tensor.axis", KeyEffect::Layout},
    {"parallel.tensor.layout", KeyEffect::Layout},
    {"parallel.tensor.axes", KeyEffect::Layout},
    {"parallel.sequence", KeyEffect::Layout},
    {"parallel.expert.enabled", KeyEffect::Layout},
    {"parallel.expert.axis", KeyEffect::Layout},
    {"parallel.expert.tensor_axis", KeyEffect::Layout},
    {"parallel.expert.exchange", KeyEffect::Layout},
    {"parallel.expert.max_load", KeyEffect::Layout},
    {"parallel.expert.capacity", KeyEffect::Mathematics},
    {"parallel.expert.capacity_scope", KeyEffect::Mathematics},
    {"parallel.expert.aux_loss", KeyEffect::Mathematics},
    {"parallel.expert.z_loss", KeyEffect::Mathematics},
    {"parallel.expert.aux_scope", KeyEffect::Mathematics},
    {"parallel.expert.bias_update", KeyEffect::Mathematics},
    {"parallel.pipeline.enabled", KeyEffect::LayoutUnlessAsync},
    {"parallel.pipeline.axis", KeyEffect::LayoutUnlessAsync},
    {"parallel.pipeline.schedule", KeyEffect::LayoutUnlessAsync},
    {"parallel.pipeline.chunks", KeyEffect::LayoutUnlessAsync},
    {"parallel.pipeline.stages", KeyEffect::LayoutUnlessAsync},
    {"parallel.pipeline.table", KeyEffect::LayoutUnlessAsync},
    {"parallel.recompute", KeyEffect::Layout},
    {"parallel.offload.optimizer", KeyEffect::Layout},
    {"shard", KeyEffect::Layout},
    {"target.kind", KeyEffect::Layout},
    {"target.architectures", KeyEffect::Layout},
    {"target.transport", KeyEffect::Layout},
    {"target.threads_per_rank", KeyEffect::Layout},
    {"target.cluster", KeyEffect::Layout},
    {"target.overlap", KeyEffect::Layout},
    {"target.memory", KeyEffect::Layout},
    {"import.evaluated_elements", KeyEffect::Reporting},
    {"import.inlined_nodes", KeyEffect::Reporting},
};

std::span<const KeyEffectEntry> keyEffects() { return table; }

KeyEffect effectOfKey(const std::string &key) {
  for (const KeyEffectEntry &entry : table) {
    std::string path = entry.path;
    if (path == key)
      return entry.effect;
  }
  // Plain keys were compared above, before entries with `*`: "mesh.axes" is a
  // key of its own, not the size of a mesh axis of that name.
  for (const KeyEffectEntry &entry : table) {
    std::string path = entry.path;
    if (path.ends_with("*") && key.starts_with(path.substr(0, path.size() - 1)))
      return entry.effect;
  }
  return KeyEffect::Mathematics;
}

} // namespace cleave
