#include "orchestratord/http/tasks/engine_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "orchestratord/http/chat/parsing.h"
#include "wire/sampling_reset.h"

namespace llorch::orchestratord::http::tasks {
namespace {

constexpr std::int64_t kMaxTokensAtLeast = 256;
constexpr std::int64_t kMaxTokensUnknown = 2048;
constexpr std::string_view kNoThoughts = R"({"enable_thinking":false})";

base::Result<> refuse(std::string_view field, std::string_view why) {
  return chat::refused(std::string(field), "engine",
                       fmt::format("this model's engine is another system's: {}; leave out {}", why, field));
}

base::Result<> fit_parameters(wire::SamplingRequest& sampling, const wire::ModelFacts& facts,
                              std::span<const std::string_view> api_defaults) {
  if (!facts.parameters) return {};
  for (const std::string_view name : wire::names_of_changed_fields(sampling)) {
    if (std::ranges::find(*facts.parameters, name) != facts.parameters->end()) continue;
    if (std::ranges::find(api_defaults, name) == api_defaults.end()) {
      return refuse(name, name == "prompt_logprobs"
                              ? "it tells no log-probabilities of a prompt, which echo beside logprobs asks for as well"
                              : "it does not know this parameter");
    }
    wire::reset_field(sampling, name);
  }
  return {};
}

}  // namespace

base::Result<> fit_to_engine(wire::SubmitRequest& request, const std::vector<std::string>& images,
                             const wire::ModelFacts& facts, std::span<const std::string_view> api_defaults) {
  if (request.determinism == wire::Determinism::kStrict && !facts.replayable) {
    return chat::refused(
        "determinism", "not_replayable",
        "this model's engine does not promise the same bytes for the same request; ask for best_effort");
  }
  if (request.prompt && request.prompt->has_tokens()) {
    return chat::refused("prompt", "engine", "this model's engine is another system's and takes texts; send the text");
  }
  if (request.suffix) return refuse("suffix", "it makes its own prompts, and of one text");
  if (!images.empty()) return refuse("images", "no images are handed on to it");
  if (request.tools) return refuse("tools", "no tools are handed on to it");
  if (request.documents) return refuse("documents", "no documents are handed on to it");
  // What APIs without thoughts say of every request; its engine does as it was started.
  const bool is_usual = request.chat_template_kwargs && request.chat_template_kwargs->text == kNoThoughts;
  if (is_usual) request.chat_template_kwargs.reset();
  if (request.chat_template_kwargs) return refuse("chat_template_kwargs", "it has a template of its own");
  if (request.add_generation_prompt == false) return refuse("add_generation_prompt", "it has a template of its own");
  TRY(fit_parameters(request.sampling, facts, api_defaults));
  if (!facts.device) return {};
  wire::Placement placement = request.placement.value_or(wire::Placement{});
  if (placement.require_device_mask && *placement.require_device_mask != *facts.device) {
    return chat::refused("placement.require_device_mask", "engine",
                         fmt::format("this model runs on {} and nowhere else", *facts.device));
  }
  placement.require_device_mask = facts.device;
  request.placement = std::move(placement);
  return {};
}

std::int64_t engine_max_tokens(const wire::SubmitRequest& request, const wire::ModelFacts& facts, std::int64_t limit,
                               LongOutputs long_outputs) {
  const bool is_cut = long_outputs == LongOutputs::kCut && facts.context_length > 0 &&
                      request.max_tokens >= facts.context_length;  // no prompt leaves so much
  if (request.max_tokens && !is_cut) return std::min(*request.max_tokens, limit);
  if (facts.context_length <= 0) return std::min(limit, kMaxTokensUnknown);
  const auto bytes =
      static_cast<std::int64_t>(request.prompt ? request.prompt->bytes() : request.messages->text.size());
  const std::int64_t prompt_tokens = is_cut ? bytes / 2 : bytes;
  return std::clamp(facts.context_length - prompt_tokens, std::min(kMaxTokensAtLeast, limit), limit);
}

}  // namespace llorch::orchestratord::http::tasks
