#include "wire/sampling.h"

#include "wire/changed_fields.h"
#include "wire/sampling_fields.h"
#include "wire/sampling_reset.h"

namespace llorch::wire {
namespace {

tl::unexpected<base::Error> contradiction(std::string_view field, std::string_view why) {
  return field_error(field, "combination", fmt::format("{}: {}", field, why));
}

base::Result<> validate_mirostat(const SamplingRequest& r, double temperature) {
  if (temperature == 0)
    return contradiction("mirostat", "temperature 0 always takes the likeliest token; mirostat needs draws");
  if (r.sampler_order == SamplerOrder::kTemperatureLast) {
    return contradiction("sampler_order", "mirostat always works on the distribution after temperature");
  }
  const std::pair<std::string_view, bool> cuts[] = {{"top_n_sigma", r.top_n_sigma != 0},
                                                    {"top_k", r.top_k != 0},
                                                    {"typical_p", r.typical_p != 1},
                                                    {"top_p", r.top_p != 1},
                                                    {"min_p", r.min_p != 0},
                                                    {"xtc_probability", r.xtc_probability != 0},
                                                    {"min_keep", r.min_keep != 1}};
  for (const auto& [field, is_set] : cuts) {
    if (is_set) return contradiction(field, "mirostat replaces this cut; leave one of the two out");
  }
  return {};
}

}  // namespace

base::Result<> validate_sampling(const SamplingRequest& r, double temperature) {
  if (r.mirostat != 0) TRY(validate_mirostat(r, temperature));
  if (r.dynatemp_range != 0 && temperature == 0) {
    return contradiction("dynatemp_range",
                         "temperature 0 always takes the likeliest token; give a temperature above 0");
  }
  if (r.top_k != 0 && r.top_k < r.min_keep) {
    return contradiction("top_k", "it keeps fewer tokens than min_keep wants kept");
  }
  if (r.top_logprobs != 0 && !r.logprobs) {
    return contradiction("top_logprobs", "it lists tokens only with \"logprobs\": true");
  }
  if (r.prompt_logprobs.value_or(false) && !r.logprobs) {
    return contradiction("prompt_logprobs", "it goes with \"logprobs\": true, for the tokens behind the prompt");
  }
  if (r.json_schema.has_value() + r.regex.has_value() + r.grammar.has_value() > 1) {
    return contradiction(r.grammar ? "grammar" : "regex",
                         "an output follows one of json_schema, regex and grammar; leave the others out");
  }
  for (const std::string& s : r.dry_sequence_breakers) {
    if (s.empty() || s.size() > 64) {
      return field_error("dry_sequence_breakers", "length", "a sequence breaker has 1 to 64 bytes");
    }
  }
  return {};
}

base::Result<> validate_for_vocabulary(const SamplingRequest& r, std::size_t vocab_size) {
  if (r.top_k > static_cast<std::int64_t>(vocab_size)) {
    return field_error("top_k", "range", fmt::format("top_k is {}; this model has {} tokens", r.top_k, vocab_size));
  }
  if (!r.logit_bias.empty() && r.logit_bias.back().token >= static_cast<std::int64_t>(vocab_size)) {
    return field_error("logit_bias", "range",
                       fmt::format("logit_bias names a token that this model's {} tokens do not include", vocab_size));
  }
  return {};
}

base::Result<> validate_prompt_logprobs(const SamplingRequest& r, std::size_t prompt_tokens) {
  if (!r.prompt_logprobs.value_or(false)) return {};
  const std::int64_t entries = static_cast<std::int64_t>(prompt_tokens) * (1 + r.top_logprobs);
  if (entries <= kPromptLogprobsMax) return {};
  auto error =
      field_error("prompt", "logprobs",
                  fmt::format("the prompt has {} tokens; with {} of the likeliest ones each, log-probabilities of "
                              "at most {} are told: list fewer, or send the prompt in parts",
                              prompt_tokens, r.top_logprobs, kPromptLogprobsMax / (1 + r.top_logprobs)));
  return base::fail(std::move(error.value()).with("prompt_tokens", static_cast<std::int64_t>(prompt_tokens)));
}

std::string changed_sampling_fields(const SamplingRequest& request) {
  SamplingRequest shown = request;
  const SamplingRequest defaults;
  shown.dry_sequence_breakers = defaults.dry_sequence_breakers;
  shown.logit_bias.clear();
  shown.json_schema.reset();
  shown.regex.reset();
  shown.grammar.reset();
  std::string text;
  {
    MembersWriter members(text);
    for_each_changed(shown, [&](const Field& field, const std::string& json) { members.begin(field.name) += json; });
  }
  return text.substr(1, text.size() - 2);
}

std::vector<std::string_view> names_of_changed_fields(const SamplingRequest& request) {
  std::vector<std::string_view> names;
  for_each_changed(request, [&](const Field& field, const std::string&) { names.push_back(field.name); });
  return names;
}

void reset_field(SamplingRequest& request, std::string_view name) {
  const SamplingRequest defaults;
  const Fields fields = Table<SamplingRequest>::fields();
  const auto field = std::ranges::find(fields, name, &Field::name);
  ASSERT(field != fields.end(), "name={}", name);
  std::string json;
  field->codec->write(json, reinterpret_cast<const std::byte*>(&defaults) + field->offset);
  const auto read = field->codec->read(bj::parse(json), Path{}, field->bounds, UnknownKeys::kRefuse,
                                       reinterpret_cast<std::byte*>(&request) + field->offset);
  ASSERT(read, "a default of {} is none", name);
}

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(SamplingRequest)
LLORCH_INSTANTIATE_WIRE(TokenLogprobs)
LLORCH_INSTANTIATE_WIRE(PromptTokenLogprobs)
LLORCH_INSTANTIATE_ENUM(SamplerOrder)
LLORCH_INSTANTIATE_ENUM(PenaltyScope)
