#include "wire/anthropic.h"

#include <utility>

#include "wire/field.h"
#include "wire/gateway_fields.h"
#include "wire/json_text_fields.h"
#include "wire/request_limits.h"
#include "wire/sampling_fields.h"

namespace llorch::wire {

template <>
struct EnumNames<AnthropicToolMode> {
  static constexpr auto names = std::array{std::pair{AnthropicToolMode::kAuto, std::string_view("auto")},
                                           std::pair{AnthropicToolMode::kAny, std::string_view("any")},
                                           std::pair{AnthropicToolMode::kTool, std::string_view("tool")},
                                           std::pair{AnthropicToolMode::kNone, std::string_view("none")}};
};
template <>
struct EnumNames<AnthropicThinkingType> {
  static constexpr auto names = std::array{std::pair{AnthropicThinkingType::kEnabled, std::string_view("enabled")},
                                           std::pair{AnthropicThinkingType::kDisabled, std::string_view("disabled")},
                                           std::pair{AnthropicThinkingType::kAdaptive, std::string_view("adaptive")}};
};
template <>
struct EnumNames<AnthropicEffort> {
  static constexpr auto names = std::array{std::pair{AnthropicEffort::kLow, std::string_view("low")},
                                           std::pair{AnthropicEffort::kMedium, std::string_view("medium")},
                                           std::pair{AnthropicEffort::kHigh, std::string_view("high")},
                                           std::pair{AnthropicEffort::kXhigh, std::string_view("xhigh")},
                                           std::pair{AnthropicEffort::kMax, std::string_view("max")}};
};
template <>
struct EnumNames<AnthropicFormatType> {
  static constexpr auto names =
      std::array{std::pair{AnthropicFormatType::kJsonSchema, std::string_view("json_schema")}};
};

template <>
struct Table<AnthropicToolChoice> {
  using S = AnthropicToolChoice;
  static Fields fields() {
    return {required("type", &S::type, "Whether the model may, must or must not call, and whether which is said."),
            optional("name", &S::name, "Exactly with type tool: the one to call.", {1, 128}),
            optional("disable_parallel_tool_use", &S::disable_parallel_tool_use,
                     "Whether a call that is required is one alone.")};
  }

  static base::Result<> validate(const S& c) {
    if (c.name.has_value() == (c.type == AnthropicToolMode::kTool)) return {};
    return field_error("tool_choice.name", "combination", "tool_choice.type tool and tool_choice.name go together");
  }
};
template <>
struct Table<AnthropicThinking> {
  using S = AnthropicThinking;
  static Fields fields() {
    return {required("type", &S::type, "Sets the chat template's variable enable_thinking."),
            optional("budget_tokens", &S::budget_tokens, "Accepted; thoughts have no limit of their own."),
            optional("display", &S::display, "Accepted; thoughts are always shown.")};
  }
};
template <>
struct Table<AnthropicOutputFormat> {
  using S = AnthropicOutputFormat;
  static Fields fields() {
    return {required("type", &S::type), required("schema", &S::schema, "What the output follows.", {0, 1 << 20})};
  }
};
template <>
struct Table<AnthropicOutputConfig> {
  using S = AnthropicOutputConfig;
  static Fields fields() {
    return {optional("effort", &S::effort, "The chat template's variable reasoning_effort."),
            optional("format", &S::format, "What the output must look like."),
            optional("task_budget", &S::task_budget, "Accepted; changes nothing.")};
  }
};

template <>
struct Table<AnthropicPrompt> {
  using S = AnthropicPrompt;
  static constexpr std::string_view kChangesNothing = "Accepted; changes nothing.";
  static Fields fields() {
    return {
        required("model", &S::model, "As in /v2/tasks: an alias, file:/absolute/path or hf:org/repo.", {1, 512}),
        required("messages", &S::messages, "Conversation to continue, for the model's chat template.",
                 {0, kRequestBytesMax}),
        optional("system", &S::system, "A text, or blocks of text, before all messages.", {0, 4 << 20}),
        optional("tools", &S::tools, "Functions the model may call.", {0, 4 << 20}),
        optional("tool_choice", &S::tool_choice, "Whether the model may, must or must not call one, and which."),
        optional("thinking", &S::thinking, "Whether the model is to think. Omitted: disabled."),
        optional("output_config", &S::output_config, "How hard the model thinks, and what the output must look like."),
        optional("output_format", &S::output_format, "Older spelling of output_config.format."),
        optional("billing_policy", &S::billing_policy, kChangesNothing),
        optional("cache_control", &S::cache_control, kChangesNothing),
        optional("speed", &S::speed, kChangesNothing),
        optional("user_profile_id", &S::user_profile_id, kChangesNothing),
        optional("workspace_id", &S::workspace_id, kChangesNothing),
        optional("context_management", &S::context_management, kChangesNothing),
        optional("mcp_servers", &S::mcp_servers, "Refused.")};
  }
};

bool is_messages_sampling_field(std::string_view name) {
  return name == "top_p" || name == "top_k" || name == "logprobs" || name == "top_logprobs" ||
         name == "prompt_logprobs";
}

template <>
struct Table<MessagesRequest> {
  using S = MessagesRequest;
  static constexpr std::string_view kChangesNothing = "Accepted; changes nothing.";
  static Fields own() {
    return {required("max_tokens", &S::max_tokens, "Tokens to generate at most.", {1, kOutputTokensAskedMax}),
            optional("stream", &S::stream, "Send the output as it comes. Omitted: false."),
            optional("temperature", &S::temperature, "0 is greedy. Omitted: 1.", {0, 1}),
            optional("top_p", &S::top_p,
                     "Smallest set of tokens with this probability mass; 1 is off. Below 0: left out.", {-1, 1}),
            optional("top_k", &S::top_k, "Most likely tokens kept; 0 is off. Below 0: left out.", {-1, 10'000'000}),
            optional("stop_sequences", &S::stop_sequences, "Texts that end the output; they are not part of it.",
                     {0, kStopTextsMax}),
            optional("seed", &S::seed, "Omitted: one is chosen; the receipt has it.", {.min = 0}),
            optional("diagnostics", &S::diagnostics, kChangesNothing),
            optional("fallback_credit_token", &S::fallback_credit_token, kChangesNothing),
            optional("fallbacks", &S::fallbacks, kChangesNothing),
            optional("inference_geo", &S::inference_geo, kChangesNothing),
            optional("metadata", &S::metadata, kChangesNothing),
            optional("service_tier", &S::service_tier, kChangesNothing),
            optional("compaction", &S::compaction, "Refused."),
            optional("container", &S::container, "Refused."),
            optional("thread", &S::thread, "Refused.")};
  }
  static Fields fields() {
    return joined(
        {fields_of(&S::prompt, Table<AnthropicPrompt>::fields()), own(),
         fields_of(&S::extensions, fields_without(Table<SamplingRequest>::fields(), is_messages_sampling_field))});
  }
};
template <>
struct Codec<MessagesRequest> : NullableCodec<MessagesRequest> {};

template <>
struct Table<CountTokensRequest> {
  using S = CountTokensRequest;
  static Fields fields() {
    return joined({fields_of(&S::prompt, Table<AnthropicPrompt>::fields()),
                   {optional("compaction", &S::compaction, "Accepted; changes nothing.")}});
  }
};

template <>
struct Table<BatchedMessage> {
  using S = BatchedMessage;
  static Fields fields() {
    return {required("custom_id", &S::custom_id, "Names the request among its answers: letters, digits, _ and -.",
                     {1, kBatchCustomIdBytesMax}),
            required("params", &S::params, "As the body of POST /v1/messages.")};
  }
};
template <>
struct Table<CreateMessageBatchRequest> {
  using S = CreateMessageBatchRequest;
  static Fields fields() {
    return {required("requests", &S::requests, "Each has a custom_id of its own.", {1, 50'000})};
  }
};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(MessagesRequest)
LLORCH_INSTANTIATE_WIRE(CountTokensRequest)
LLORCH_INSTANTIATE_WIRE(CreateMessageBatchRequest)
LLORCH_INSTANTIATE_ENUM(AnthropicEffort)
