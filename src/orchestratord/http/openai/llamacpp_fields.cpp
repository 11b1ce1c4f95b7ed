#include "orchestratord/http/openai/llamacpp_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestratord/http/chat/parsing.h"

namespace llorch::orchestratord::http::openai {
namespace {

// `field` is `own_name` in /v2, and `name` in llama.cpp's server; `off` is its value where neither is given.
template <class T>
base::Result<> set_field(std::string_view name, const T& given, std::string_view own_name, const T& off, T& field) {
  if (field != off && field != given) {
    return chat::refused(name, "combination", fmt::format("{} contradicts {}; leave it out", name, own_name));
  }
  field = given;
  return {};
}

bool has_penalties(const wire::SamplingRequest& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
}

void switch_off_penalties(wire::SamplingRequest& sampling) {
  const wire::SamplingRequest off;
  sampling.repetition_penalty = off.repetition_penalty;
  sampling.presence_penalty = off.presence_penalty;
  sampling.frequency_penalty = off.frequency_penalty;
}

// A sampler that the list leaves out is off.
void switch_off_unlisted(const std::vector<std::string>& listed, wire::SubmitRequest& submission) {
  const wire::SamplingRequest off;
  wire::SamplingRequest& sampling = submission.sampling;
  const auto has = [&](std::string_view name) { return std::ranges::find(listed, name) != listed.end(); };
  if (!has("temperature")) {
    submission.temperature = 1;
    sampling.dynatemp_range = off.dynatemp_range;
  }
  if (!has("top_k")) sampling.top_k = off.top_k;
  if (!has("top_p")) sampling.top_p = off.top_p;
  if (!has("min_p")) sampling.min_p = off.min_p;
  if (!has("typ_p") && !has("typical_p")) sampling.typical_p = off.typical_p;
  if (!has("top_n_sigma")) sampling.top_n_sigma = off.top_n_sigma;
  if (!has("xtc")) sampling.xtc_probability = off.xtc_probability;
  if (!has("dry")) sampling.dry_multiplier = off.dry_multiplier;
  if (!has("penalties")) switch_off_penalties(sampling);
}

// How many of the newest tokens are looked at; below 0 all of them, which is 0 in /v2.
std::int64_t last_tokens(std::int64_t given) { return std::max<std::int64_t>(given, 0); }

}  // namespace

base::Result<> set_llamacpp_fields(const wire::LlamaCppFields& given, wire::SubmitRequest& submission) {
  const wire::SamplingRequest off;
  wire::SamplingRequest& sampling = submission.sampling;
  if (given.repeat_penalty) {
    TRY(set_field("repeat_penalty", *given.repeat_penalty, "repetition_penalty", off.repetition_penalty,
                  sampling.repetition_penalty));
  }
  if (given.typ_p) TRY(set_field("typ_p", *given.typ_p, "typical_p", off.typical_p, sampling.typical_p));
  if (given.samplers) switch_off_unlisted(given.samplers->names, submission);
  if (given.repeat_last_n == 0) switch_off_penalties(sampling);
  if (given.dry_penalty_last_n == 0) sampling.dry_multiplier = off.dry_multiplier;
  // Where what it bounds is off, a count is left out: an engine that does not know it takes the request.
  if (given.repeat_last_n && has_penalties(sampling)) {
    TRY(set_field("repeat_last_n", last_tokens(*given.repeat_last_n), "penalty_last_n", off.penalty_last_n,
                  sampling.penalty_last_n));
  }
  if (given.dry_penalty_last_n && sampling.dry_multiplier != off.dry_multiplier) {
    TRY(set_field("dry_penalty_last_n", last_tokens(*given.dry_penalty_last_n), "dry_last_n", off.dry_last_n,
                  sampling.dry_last_n));
  }
  return {};
}

}  // namespace llorch::orchestratord::http::openai
