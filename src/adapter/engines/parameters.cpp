#include "adapter/engines/parameters.h"

#include <array>

#include "base/assert.h"

namespace llorch::adapter::engines {
namespace {

constexpr std::array<std::string_view, 20> kLlamaCpp{
    "top_p",          "top_k",          "min_p",        "typical_p",          "top_n_sigma",       "xtc_probability",
    "xtc_threshold",  "dynatemp_range", "min_keep",     "repetition_penalty", "frequency_penalty", "presence_penalty",
    "penalty_last_n", "mirostat",       "mirostat_tau", "mirostat_eta",       "json_schema",       "grammar",
    "logprobs",       "top_logprobs"};
constexpr std::array<std::string_view, 4> kOpenAi{"top_p", "frequency_penalty", "presence_penalty", "json_schema"};
constexpr std::array<std::string_view, 8> kVllm{"top_p", "frequency_penalty",  "presence_penalty", "top_k",
                                                "min_p", "repetition_penalty", "json_schema",      "regex"};
constexpr std::array<std::string_view, 7> kTgi{
    "top_p", "top_k", "typical_p", "repetition_penalty", "frequency_penalty", "json_schema", "regex"};
// The inputs that TensorRT-LLM's models name.
constexpr std::array<std::string_view, 5> kTriton{"top_p", "top_k", "repetition_penalty", "frequency_penalty",
                                                  "presence_penalty"};

}  // namespace

std::span<const std::string_view> parameters_of(std::string_view kind) {
  if (kind == "llamacpp") return kLlamaCpp;
  if (kind == "openai") return kOpenAi;
  if (kind == "vllm") return kVllm;
  if (kind == "tgi") return kTgi;
  ASSERT(kind == "triton", "kind={}", kind);
  return kTriton;
}

}  // namespace llorch::adapter::engines
