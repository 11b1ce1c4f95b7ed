#include "engine/models/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/models/config/other_keys.h"
#include "engine/models/config/outputs.h"
#include "engine/models/plan_compiler/compiler.h"
#include "engine/models/plan_compiler/params.h"
#include "engine/models/registry.h"
#include "engine/plan/slots.h"

namespace llorch::engine::models {
namespace {

using plan::CompiledPlan;

// Adds the uses a plan makes of each tensor.
void collect_uses(const CompiledPlan& plan, std::vector<BoundTensor>& tensors) {
  for (const plan::Instruction& insn : plan.plan.instructions) {
    const std::span<const plan::SlotSpec> slots = *plan::weight_slots(insn.opcode);
    for (std::size_t s = 0; s < slots.size(); ++s) {
      if (!insn.weights[s].present()) continue;
      tensors[plan.weight_bindings[insn.weights[s].index].tensor].stored.uses |=
          static_cast<std::uint8_t>(slots[s].use);
    }
  }
}

void describe_weights(CompiledModel& model) {
  collect_uses(model.plans.decoder_prefill, model.tensors);
  collect_uses(model.plans.decoder_decode, model.tensors);
  if (model.plans.vision_encode) collect_uses(*model.plans.vision_encode, model.tensors);
  if (model.plans.predict) collect_uses(*model.plans.predict, model.tensors);
  std::map<plan::DType, std::uint64_t> elements_of;
  for (const BoundTensor& tensor : model.tensors) {
    const std::uint64_t whole =
        tensor.elements_whole_count != 0 ? tensor.elements_whole_count : tensor.elements_count();
    model.parameters_count += whole;
    if ((tensor.stored.uses & static_cast<std::uint8_t>(plan::WeightUse::kVector)) == 0)
      elements_of[tensor.stored.dtype] += whole;
  }
  const auto most = std::ranges::max_element(elements_of, {}, [](const auto& entry) { return entry.second; });
  if (most != elements_of.end()) model.weight_dtype = most->first;
}

base::Result<ModelConfig> read_gguf(const io::ModelFiles& files, const Family& family, const WeightNames& names) {
  const GgufKeys keys = TRY(GgufKeys::of(files));
  ModelConfig config = TRY(family.read_gguf(keys));
  TRY(read_outputs(keys, names, config));
  TRY(refuse_other_keys(keys, family.name, family.gguf_others));
  return config;
}

base::Result<ModelConfig> read_hf(const io::ModelFiles& files, const Family& family, const WeightNames& names) {
  const HfKeys keys = TRY(HfKeys::of(files));
  ModelConfig config = TRY(family.read_hf(keys));
  TRY(read_outputs(keys, names, config));
  TRY(refuse_other_keys(keys, family.name, family.hf_others));
  return config;
}

base::Result<ModelConfig> read_config(const io::ModelFiles& files, const Family& family, const WeightNames& names) {
  const io::FileTensor* embedding = TRY(names.embedding());
  ModelConfig config = TRY(files.gguf() != nullptr ? read_gguf(files, family, names) : read_hf(files, family, names));
  if (embedding->rank == 0 || embedding->dims[0] > kDimensionMax) {
    return base::fail(base::ErrorCode::kWeightShapeMismatch,
                      fmt::format("{} is {}; at most {} rows are supported", embedding->name, io::describe(*embedding),
                                  kDimensionMax));
  }
  if (config.vocab != 0 && config.vocab != embedding->dims[0]) {
    return impossible("vocab_size", fmt::to_string(config.vocab),
                      fmt::format("must be {}, the rows of {}", embedding->dims[0], embedding->name));
  }
  config.vocab = static_cast<std::uint32_t>(embedding->dims[0]);
  return config;
}

base::Result<> choose(const VisionOptions& options, ModelConfig& config) {
  VisionConfig& vision = config.vision;
  if (vision.depth == 0) return {};
  if (options.image_rows_max == 0) {
    vision = {};
    return {};
  }
  if (options.image_token) vision.image_row_ids = {*options.image_token, plan::kNoRowId};
  if (vision.image_row_ids[0] == plan::kNoRowId) {
    return base::fail(base::ErrorCode::kConfigKeyMissing,
                      "the vocabulary has no <|image_pad|>, and no other token is said to stand for a row of an image");
  }
  vision.image_rows_max = std::min(options.image_rows_max, config.context_tokens);
  return {};
}

// The layer's cache becomes a part of the pages that the decoder's plans have already.
base::Result<> add_predictor(CompileInput input, TensorTable& tensors, CompiledModel& model) {
  CompiledPlan& prefill = model.plans.decoder_prefill;
  const auto is_pages = [](const plan::StateDescriptor& desc) { return desc.id == plan::kKvStateId; };
  std::vector<plan::StateDescriptor> states(prefill.plan.state_descs.begin(), prefill.plan.state_descs.end());
  const auto pages = std::ranges::find_if(states, is_pages);
  if (pages == states.end()) {
    return base::fail(
        base::ErrorCode::kModelIncompatible,
        "no layer of the model keeps all positions, so there are no pages for the layer that predicts further "
        "tokens; choose another way to propose tokens");
  }
  const auto layers =
      std::ranges::count(prefill.plan.instructions, plan::kKvStateId, &plan::Instruction::state_block_id);
  input.shared_pages = {.layers_count = static_cast<std::uint32_t>(layers),
                        .page_bytes = pages->size_bytes,
                        .bytes_per_token = pages->bytes_per_token};
  CompiledPlan predict = TRY(compile_plan(input, tensors, *model.arena));
  *pages = *std::ranges::find_if(predict.plan.state_descs, is_pages);
  const std::span<const plan::StateDescriptor> shared =
      model.arena->copy(std::span<const plan::StateDescriptor>(states));
  for (CompiledPlan* plan : {&prefill, &model.plans.decoder_decode, &predict}) plan->plan.state_descs = shared;
  model.plans.predict = predict;
  model.predictor_hands_on_unnormed = input.names.family().predictor->hands_on_unnormed;
  return {};
}

// Several devices with the whole model each would be as slow as one.
base::Result<> check_shared(const CompiledModel& model, const Shard& shard) {
  const auto instructions = model.plans.decoder_prefill.plan.instructions;
  if (shard.ranks == 1 || std::ranges::any_of(instructions, &plan::Instruction::partial_sum)) return {};
  return base::fail(base::ErrorCode::kModelIncompatible,
                    fmt::format("{} has neither attention nor a feed-forward to share out over {} devices; use one",
                                model.config.architecture, shard.ranks));
}

}  // namespace

base::Result<CompiledModel> compile_model(const io::ModelFiles& files, plan::DType kv_dtype,
                                          const VisionOptions& vision, const Shard& shard,
                                          const WeightOptions& weights) {
  const Family* family = TRY(find_family(files));
  return compile_model(files, *family, kv_dtype, vision, shard, weights);
}

base::Result<CompiledModel> compile_model(const io::ModelFiles& files, const Family& family, plan::DType kv_dtype,
                                          const VisionOptions& vision, const Shard& shard,
                                          const WeightOptions& weights) {
  ASSERT(shard.rank < shard.ranks && shard.ranks <= kRanksMax, "rank {} of {}", shard.rank, shard.ranks);
  const WeightNames names(files, family);
  CompiledModel model;
  model.config = TRY(read_config(files, family, names));
  std::optional<WeightNames> predictor;
  if (weights.predicts && model.config.pooling == plan::Pooling::kNone)
    predictor.emplace(TRY(names.of_predictor(model.config)));
  model.notes = TRY(names.check(model.config, predictor ? &*predictor : nullptr));
  TRY(choose(vision, model.config));
  model.rope_tables = TRY(make_rope_tables(model.config.ropes));
  model.long_rope_context = long_rope_context(model.config.ropes);
  model.arena = std::make_unique<PlanArena>();
  TensorTable tensors(weights.keeps_f8);
  const auto compile = [&](const ModelConfig& config, plan::ExecutionMode mode, const Shard& own) {
    return compile_plan({names, config, mode, kv_dtype, own}, tensors, *model.arena);
  };
  model.plans.decoder_prefill = TRY(compile(model.config, plan::ExecutionMode::kPrefill, shard));
  model.plans.decoder_decode = TRY(compile(model.config, plan::ExecutionMode::kDecode, shard));
  TRY(check_shared(model, shard));
  if (model.config.vision.depth != 0)
    model.plans.vision_encode = TRY(compile(tower_config(model.config), plan::ExecutionMode::kVisionEncode, {}));
  if (predictor) {
    const ModelConfig layer = predictor_config(model.config);
    TRY(add_predictor({*predictor, layer, plan::ExecutionMode::kPredict, kv_dtype, shard}, tensors, model));
  }
  model.tensors = tensors.take();
  describe_weights(model);
  return model;
}

}  // namespace llorch::engine::models
