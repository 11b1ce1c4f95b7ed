#pragma once
// Requests of the OpenAI API that orchestratord takes as well (/v1). Names and ranges are that API's, but for a few fields of other servers
// of it that their clients always send (ADR 0088); where a field is not used, docs/guide/openai.md says so. null means that a field is left
// out. Field tables: openai.cpp.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wire/gateway.h"
#include "wire/sampling.h"
#include "wire/task.h"

namespace llorch::wire {

enum class ResponseFormatType : std::uint8_t { kText, kJsonObject, kJsonSchema };
enum class ReasoningEffort : std::uint8_t { kNone, kMinimal, kLow, kMedium, kHigh, kXhigh, kMax };
enum class ServiceTier : std::uint8_t { kAuto, kDefault, kFlex, kPriority, kScale, kFast };
enum class ToolChoiceMode : std::uint8_t { kNone, kAuto, kRequired };
enum class ThinkingMode : std::uint8_t { kEnabled, kDisabled, kAuto, kAdaptive };

inline constexpr std::int64_t kChoicesMax = 16;  // jobs of one prompt; a queue holds 100
inline constexpr std::int64_t kPromptsMax = 64;  // jobs of one request, with several prompts

// On the wire a text, a list of token ids, or a list of either.
struct Prompts {
  std::vector<TextOrTokens> prompts;  // one at least
};

struct NamedJsonSchema {
  std::optional<std::string> name;
  std::optional<std::string> description;
  std::optional<JsonSchema> schema;  // omitted: any object
  std::optional<bool> strict;        // the output follows the schema either way
};
struct ResponseFormat {
  ResponseFormatType type = ResponseFormatType::kText;
  // With kJsonSchema exactly one of the two, with kJsonObject no json_schema, with kText none.
  std::optional<NamedJsonSchema> json_schema;
  std::optional<JsonSchema> schema;  // as other servers have it; omitted with kJsonObject: any object
};
struct StreamOptions {
  std::optional<bool> include_usage;
  std::optional<bool> continuous_usage_stats;  // with include_usage: each chunk counts, as vLLM has it
  std::optional<bool> include_obfuscation;     // changes nothing: no padding is ever sent
  Ignored reasoning_summary_delivery;
};
// On the wire a mode, or {"type":"function","function":{"name"}}.
struct ToolChoice {
  ToolChoiceMode mode = ToolChoiceMode::kAuto;
  std::optional<std::string> function;  // with kRequired: this one
};

// The same under /v1/responses. On the wire a mode, or {"type":"function","name"}, or that with type custom.
struct ResponseToolChoice {
  ToolChoice choice;
  bool is_custom = false;  // the function that is named is a custom tool
};

// On the wire any integer of 64 bits, with or without a sign: below 0 it is the one of the same bits.
struct OpenAiSeed {
  std::uint64_t bits = 0;
};

// On the wire an integer; below 0 there is no limit. 0 is refused, but for a completion that says the prompt again.
struct TokensMax {
  std::optional<std::int64_t> tokens;  // absent: no limit
};

// What Ollama's clients send to this API; the members that are not here change nothing.
struct OllamaOptionsOfChat {
  std::optional<std::int64_t> num_predict;  // max_tokens, where that is left out; 0 and below: no limit
};
// As hosted servers have it; the members that are not here change nothing.
struct ThinkingOfChat {
  ThinkingMode type = ThinkingMode::kAuto;  // kAuto and kAdaptive: as the chat template has it
};
// As OpenRouter has it; the members that are not here change nothing.
struct ReasoningOfChat {
  std::optional<ReasoningEffort> effort;  // reasoning_effort, where that is omitted
  std::optional<bool> enabled;            // enable_thinking, where neither that nor thinking says
};
// On the wire a list of names, or a text with a letter for each.
struct SamplerNames {
  std::vector<std::string> names;
};
// What clients of llama.cpp's server send to its own /v1.
struct LlamaCppFields {
  std::optional<double> repeat_penalty;            // repetition_penalty
  std::optional<std::int64_t> repeat_last_n;       // penalty_last_n; 0: no penalties, below: of all tokens
  std::optional<double> typ_p;                     // typical_p
  std::optional<std::int64_t> dry_penalty_last_n;  // dry_last_n; 0: no DRY, below: of all tokens
  std::optional<SamplerNames> samplers;            // those that are not listed are off; their order is ours
  Ignored backend_sampling, cache_prompt, id_slot, reasoning_format, return_progress, timings_per_token;
};

// What clients of vLLM send with every request: what this server does as it is.
struct VllmFields {
  std::optional<std::int64_t> top_k;  // below 0 it is off
  Only<1> length_penalty;
  Only<0> min_tokens, priority;
  Only<false> early_stopping, ignore_eos, include_stop_str_in_output, use_beam_search;
  Only<true> skip_special_tokens, spaces_between_special_tokens;
  Unsupported truncate_prompt_tokens;
};

// What both kinds of request share.
struct OpenAiRequest {
  std::optional<std::string> model;  // of chats and completions omitted or empty: the only one that has a name
  std::optional<bool> stream;
  std::optional<StreamOptions> stream_options;
  std::optional<double> temperature;  // omitted: 1
  std::optional<double> top_p;
  std::optional<double> frequency_penalty;
  std::optional<double> presence_penalty;
  std::optional<std::vector<LogitBias>> logit_bias;
  std::optional<StopTexts> stop;
  std::optional<OpenAiSeed> seed;
  std::optional<std::int64_t> n;
};

// POST /v1/chat/completions
struct ChatCompletionRequest {
  OpenAiRequest common;
  SamplingRequest extensions;  // the fields that the API does not have
  LlamaCppFields llamacpp;
  VllmFields vllm;
  JsonArray messages;
  std::optional<TokensMax> max_completion_tokens;  // omitted, like max_tokens: what the context has room for
  std::optional<TokensMax> max_tokens;             // older spelling
  std::optional<bool> logprobs;
  std::optional<std::int64_t> top_logprobs;
  std::optional<ResponseFormat> response_format;
  std::optional<JsonArray> tools;
  std::optional<ToolChoice> tool_choice;
  std::optional<bool> parallel_tool_calls;
  std::optional<ReasoningEffort> reasoning_effort;
  std::optional<ServiceTier> service_tier;
  std::optional<std::vector<std::string>> modalities;
  std::optional<JsonArray> documents;
  std::optional<JsonObject> chat_template_kwargs;
  // Of other servers.
  std::optional<std::int64_t> prompt_logprobs;  // how many of the likeliest tokens are listed with each of the prompt's
  std::optional<bool> enable_thinking;          // the template's variable, where chat_template_kwargs has none
  std::optional<ThinkingOfChat> thinking;       // the same, where enable_thinking is omitted
  std::optional<ReasoningOfChat> reasoning;
  std::optional<OllamaOptionsOfChat> options;
  Ignored drop_params, extra_body, keep_alive, thinking_budget;
  Only<1> best_of;
  Ignored metadata, prediction, prompt_cache_key, prompt_cache_options, prompt_cache_retention, safety_identifier,
      store, user, verbosity;
  Unsupported audio, function_call, functions, moderation, web_search_options;
};

struct ResponseTextFormat {
  ResponseFormatType type = ResponseFormatType::kText;
  // These belong to kJsonSchema.
  std::optional<std::string> name;
  std::optional<std::string> description;
  std::optional<JsonSchema> schema;
  std::optional<bool> strict;
};
struct ResponseText {
  std::optional<ResponseTextFormat> format;
  Ignored verbosity;
};
struct ResponseReasoning {
  std::optional<ReasoningEffort> effort;
  Ignored context, generate_summary, mode, summary;
};

// On the wire the id, or {"id"}.
struct ConversationRef {
  std::string id;
};

// POST /v1/responses
struct ResponsesRequest {
  OpenAiRequest common;
  SamplingRequest extensions;  // the fields that the API does not have
  TextOrList input;
  std::optional<std::string> instructions;  // a system message before `input`
  std::optional<TokensMax> max_output_tokens;
  std::optional<std::int64_t> top_logprobs;
  std::optional<std::vector<std::string>> include;  // known: message.output_text.logprobs
  std::optional<ResponseText> text;
  std::optional<JsonArray> tools;
  std::optional<ResponseToolChoice> tool_choice;
  std::optional<bool> parallel_tool_calls;
  std::optional<ResponseReasoning> reasoning;
  std::optional<ServiceTier> service_tier;
  std::optional<std::string> truncation;            // disabled
  std::optional<bool> background;                   // false
  std::optional<bool> store;                        // false: nothing is kept, unless `background`
  std::optional<std::string> previous_response_id;  // a kept one, whose conversation goes on
  std::optional<ConversationRef> conversation;      // whose items come before `input`, and who gets the new ones
  std::optional<JsonObject> chat_template_kwargs;
  Ignored background_options, client_metadata, max_tool_calls, metadata, personality, prompt_cache_key,
      prompt_cache_options, prompt_cache_retention, safety_identifier, user;
  Unsupported access_programs, context_management, image, moderation, prompt;
};

enum class EmbeddingEncoding : std::uint8_t { kFloat, kBase64 };

// POST /v1/embeddings
struct EmbeddingsRequest {
  std::string model;
  EmbeddingInputs input;
  std::optional<EmbeddingEncoding> encoding_format;  // omitted: float
  std::optional<std::int64_t> dimensions;            // omitted: the model's
  Ignored drop_params, user;
};

// POST /v1/batches
struct CreateBatchRequest {
  std::string input_file_id;
  std::string endpoint;
  std::string completion_window;
  std::optional<JsonObject> metadata;
  Ignored output_expires_after;
};

// What a client notes of a thing of its own. Up to 16 texts of 512 characters, under names of 64.
struct Metadata {
  std::map<std::string, std::string> texts;
};

// POST /v1/conversations
struct CreateConversationRequest {
  std::optional<JsonArray> items;
  std::optional<Metadata> metadata;
};
// POST /v1/conversations/{id}
struct UpdateConversationRequest {
  Metadata metadata;  // instead of all that was there
};
// POST /v1/conversations/{id}/items
struct CreateItemsRequest {
  JsonArray items;
};

// POST /v1/completions
struct TextCompletionRequest {
  OpenAiRequest common;
  SamplingRequest extensions;  // the fields that the API does not have
  LlamaCppFields llamacpp;
  VllmFields vllm;
  Prompts prompt;
  std::optional<TokensMax> max_tokens;   // omitted: 16
  std::optional<std::int64_t> logprobs;  // how many of the likeliest tokens are listed
  std::optional<bool> echo;
  std::optional<std::int64_t> best_of;
  std::optional<std::string> suffix;            // empty: none
  std::optional<std::int64_t> prompt_logprobs;  // of other servers: as of a chat
  Ignored user;
};

}  // namespace llorch::wire
