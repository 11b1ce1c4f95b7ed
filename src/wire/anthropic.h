#pragma once
// Requests of the Anthropic API that orchestratord takes as well (/v1/messages). Names and ranges are that API's; where a
// field of it is not used, docs/guide/anthropic.md says so. null means that a field is left out. Field tables: anthropic.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/gateway.h"
#include "wire/sampling.h"
#include "wire/task.h"

namespace llorch::wire {

enum class AnthropicToolMode : std::uint8_t { kAuto, kAny, kTool, kNone };
enum class AnthropicThinkingType : std::uint8_t { kEnabled, kDisabled, kAdaptive };
enum class AnthropicEffort : std::uint8_t { kLow, kMedium, kHigh, kXhigh, kMax };
enum class AnthropicFormatType : std::uint8_t { kJsonSchema };

struct AnthropicToolChoice {
  AnthropicToolMode type = AnthropicToolMode::kAuto;
  std::optional<std::string> name;  // exactly with kTool
  std::optional<bool> disable_parallel_tool_use;
};
struct AnthropicThinking {
  AnthropicThinkingType type = AnthropicThinkingType::kDisabled;
  Ignored budget_tokens, display;
};
struct AnthropicOutputFormat {
  AnthropicFormatType type = AnthropicFormatType::kJsonSchema;
  JsonSchema schema;
};
struct AnthropicOutputConfig {
  std::optional<AnthropicEffort> effort;
  std::optional<AnthropicOutputFormat> format;
  Ignored task_budget;
};

// What both kinds of request share: all that decides the prompt.
struct AnthropicPrompt {
  std::string model;
  JsonArray messages;
  std::optional<TextOrList> system;
  std::optional<JsonArray> tools;
  std::optional<AnthropicToolChoice> tool_choice;
  std::optional<AnthropicThinking> thinking;  // omitted: disabled
  std::optional<AnthropicOutputConfig> output_config;
  std::optional<AnthropicOutputFormat> output_format;  // older spelling of output_config.format
  Ignored billing_policy, cache_control, context_management, speed, user_profile_id, workspace_id;
  Unsupported mcp_servers;
};

// POST /v1/messages
struct MessagesRequest {
  AnthropicPrompt prompt;
  SamplingRequest extensions;  // the fields that the API does not have
  std::int64_t max_tokens = 0;
  std::optional<bool> stream;
  std::optional<double> temperature;  // omitted: 1
  std::optional<double> top_p;        // these two below 0: left out
  std::optional<std::int64_t> top_k;
  std::vector<std::string> stop_sequences;
  std::optional<std::uint64_t> seed;  // as in /v2
  Ignored diagnostics, fallback_credit_token, fallbacks, inference_geo, metadata, service_tier;
  Unsupported compaction, container, thread;
};

// POST /v1/messages/count_tokens
struct CountTokensRequest {
  AnthropicPrompt prompt;
  Ignored compaction;
};

// POST /v1/messages/batches
inline constexpr std::size_t kBatchCustomIdBytesMax = 64;
struct BatchedMessage {
  std::string custom_id;
  JsonObject params;  // a MessagesRequest; read when its turn comes
};
struct CreateMessageBatchRequest {
  std::vector<BatchedMessage> requests;
};

}  // namespace llorch::wire
