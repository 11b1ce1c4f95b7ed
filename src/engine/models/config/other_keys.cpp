#include "engine/models/config/other_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"

namespace llorch::engine::models {
namespace {

using base::Result;

// What every class of transformers takes, and what says how a model was trained, saved or is to be sampled.
constexpr OtherKeys kHfShared =
    // Who wrote the file, and with what.
    "_flash_attn_2_enabled _name_or_path _commit_hash architectures auto_map dtype model_type name_or_path "
    "tokenizer_class torch_dtype transformers.js_config transformers_version unsloth_fixed unsloth_version "
    // How the library runs it.
    "_attn_implementation _attn_implementation_autoset _experts_implementation attn_implementation "
    "cache_implementation chunk_size_feed_forward=0 gradient_checkpointing output_attentions output_hidden_states "
    "pretraining_tp return_dict tf_legacy_loss torchscript use_bfloat16 use_cache is_decoder is_encoder_decoder=false "
    "add_cross_attention=false pruned_heads={} tie_encoder_decoder=false "
    // Tokens, which the tokenizer's files name; the table's rows count the vocabulary.
    "begin_suppress_tokens bos_token_id decoder_start_token_id eos_token_id forced_bos_token_id forced_eos_token_id "
    "mask_token_id pad_token_id sep_token_id suppress_tokens "
    // Sampling.
    "bad_words_ids diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
    "exponential_decay_length_penalty length_penalty max_length max_new_tokens min_length no_repeat_ngram_size "
    "num_beam_groups num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty "
    "return_dict_in_generate temperature top_k top_p typical_p "
    // Towers for images, video and sound that the family does not run: they put in rows for tokens of their own.
    "audio_config audio_token_id audio_token_index boa_token_id boi_token_id boi_token_index eoa_token_id "
    "eoi_token_id eoi_token_index image_token_id image_token_index mm_tokens_per_image multimodal_projector_bias "
    "projector_hidden_act spatial_merge_size video_token_id video_token_index vision_config vision_end_token_id "
    "vision_feature_layer vision_start_token_id "
    // Training.
    "attention_dropout attention_probs_dropout_prob attn_dropout attn_pdrop aux_loss_alpha classifier_dropout "
    "embd_pdrop embedding_dropout ffn_dropout hidden_dropout hidden_dropout_prob initializer_factor initializer_range "
    "output_router_logits resid_pdrop residual_dropout rescale_prenorm_residual router_aux_loss_coef "
    "router_jitter_noise router_z_loss_coef seq_aux use_mup "
    // Heads of other tasks.
    "cross_attention_hidden_size finetuning_task id2label label2id num_labels prefix problem_type "
    "task_specific_params "
    // Other readers take them: the types of the weights, which are refused there.
    "quantization_config compression_config "
    // The word of transformers 4 beside that of 5, which is read.
    "rope_scaling.type rope_parameters.type";

// The table's rows count the vocabulary; the original context is of a rotation that is not scaled by it.
constexpr OtherKeys kGgufShared =
    "vocab_size tensor_data_layout rope.scaling.finetuned rope.scaling.original_context_length "
    // Absence, as old writers spell it.
    "expert_count=0 expert_used_count=0 expert_group_count=0 nextn_predict_layers=0 attention.clamp_kqv=0 "
    "attention.max_alibi_bias=0 attention.sliding_window=0";

// Calls `visit(name, value)` for each word of a list, with an empty value where any will do; ends when it gives true.
template <class Visit>
bool any_of(OtherKeys list, Visit&& visit) {
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(' '));
    list.remove_prefix(std::min(word.size() + 1, list.size()));
    const std::size_t equals = std::min(word.find('='), word.size());
    if (visit(word.substr(0, equals), word.substr(std::min(equals + 1, word.size())))) return true;
  }
  return false;
}

bool is_listed(OtherKeys list, std::string_view name, std::string_view value) {
  return any_of(list, [&](std::string_view other, std::string_view only) {
    return other == name && (only.empty() || only == value);
  });
}

std::string_view without(std::string_view key, std::string_view prefix) {
  return key.substr(key.starts_with(prefix) ? prefix.size() : 0);
}

struct Unknown {
  std::string key, value;
};

Result<> refuse(std::string_view family, const std::string& source, const std::vector<Unknown>& unknown,
                OtherKeys others, std::string_view prefix) {
  if (unknown.empty()) return {};
  std::string list;
  for (const Unknown& u : unknown) {
    list += fmt::format("{}UNSUPPORTED key '{}' = {}", list.empty() ? "" : "; ", u.key, u.value.substr(0, 64));
    any_of(others, [&](std::string_view other, std::string_view only) {
      if (other == without(u.key, prefix)) list += fmt::format(" (only {} is supported)", only);
      return false;
    });
  }
  return base::fail(base::ErrorCode::kConfigKeyInvalid,
                    fmt::format("{}: {}: the family {} does not read it, and it may change what the model answers",
                                source, list, family));
}

}  // namespace

Result<> refuse_other_keys(const HfKeys& keys, std::string_view family, OtherKeys others) {
  constexpr std::string_view kText = "text_config.", kVision = "vision_config.";
  std::vector<Unknown> unknown;
  for (io::HfUnread& u : keys.root().unread()) {
    const std::string_view name = without(u.key, kText);
    if (!is_listed(kHfShared, without(name, kVision), u.value) && !is_listed(others, name, u.value))
      unknown.push_back({std::move(u.key), std::move(u.value)});
  }
  return refuse(family, keys.root().source(), unknown, others, kText);
}

Result<> refuse_other_keys(const GgufKeys& keys, std::string_view family, OtherKeys others) {
  std::vector<Unknown> unknown;
  for (const io::GgufEntry* entry : keys.unread()) {
    const std::string_view name = without(entry->key, keys.prefix());
    std::string value = io::to_text(entry->value);
    if (!is_listed(kGgufShared, name, value) && !is_listed(others, name, value))
      unknown.push_back({std::string(entry->key), std::move(value)});
  }
  return refuse(family, keys.file().source(), unknown, others, keys.prefix());
}

}  // namespace llorch::engine::models
