#include "wire/openai.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "wire/embedding_fields.h"
#include "wire/field.h"
#include "wire/gateway_fields.h"
#include "wire/json_text_fields.h"
#include "wire/request_limits.h"
#include "wire/sampling_fields.h"

namespace llorch::wire {

template <>
struct EnumNames<ResponseFormatType> {
  static constexpr auto names = std::array{std::pair{ResponseFormatType::kText, std::string_view("text")},
                                           std::pair{ResponseFormatType::kJsonObject, std::string_view("json_object")},
                                           std::pair{ResponseFormatType::kJsonSchema, std::string_view("json_schema")}};
};
template <>
struct EnumNames<ReasoningEffort> {
  static constexpr auto names = std::array{std::pair{ReasoningEffort::kNone, std::string_view("none")},
                                           std::pair{ReasoningEffort::kMinimal, std::string_view("minimal")},
                                           std::pair{ReasoningEffort::kLow, std::string_view("low")},
                                           std::pair{ReasoningEffort::kMedium, std::string_view("medium")},
                                           std::pair{ReasoningEffort::kHigh, std::string_view("high")},
                                           std::pair{ReasoningEffort::kXhigh, std::string_view("xhigh")},
                                           std::pair{ReasoningEffort::kMax, std::string_view("max")}};
};
template <>
struct EnumNames<ServiceTier> {
  static constexpr auto names = std::array{std::pair{ServiceTier::kAuto, std::string_view("auto")},
                                           std::pair{ServiceTier::kDefault, std::string_view("default")},
                                           std::pair{ServiceTier::kFlex, std::string_view("flex")},
                                           std::pair{ServiceTier::kPriority, std::string_view("priority")},
                                           std::pair{ServiceTier::kScale, std::string_view("scale")},
                                           std::pair{ServiceTier::kFast, std::string_view("fast")}};
};
template <>
struct EnumNames<EmbeddingEncoding> {
  static constexpr auto names = std::array{std::pair{EmbeddingEncoding::kFloat, std::string_view("float")},
                                           std::pair{EmbeddingEncoding::kBase64, std::string_view("base64")}};
};
template <>
struct EnumNames<ToolChoiceMode> {
  static constexpr auto names = std::array{std::pair{ToolChoiceMode::kNone, std::string_view("none")},
                                           std::pair{ToolChoiceMode::kAuto, std::string_view("auto")},
                                           std::pair{ToolChoiceMode::kRequired, std::string_view("required")}};
};
template <>
struct EnumNames<ThinkingMode> {
  static constexpr auto names = std::array{std::pair{ThinkingMode::kEnabled, std::string_view("enabled")},
                                           std::pair{ThinkingMode::kDisabled, std::string_view("disabled")},
                                           std::pair{ThinkingMode::kAuto, std::string_view("auto")},
                                           std::pair{ThinkingMode::kAdaptive, std::string_view("adaptive")}};
};

// Bounds count the bytes of each text.
template <>
struct Codec<Prompts> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown, Prompts& out) {
    const auto refused = [&](std::size_t) {
      return field_error(
          path, "range",
          fmt::format("{} must be one text or list of token ids, or a list of 1 to {} of them", path, kPromptsMax));
    };
    return read_one_or_several(v, path, b, unknown, kPromptsMax, refused, out.prompts);
  }
  static void write(std::string& out, const Prompts& v) {
    if (v.prompts.size() == 1) return Codec<TextOrTokens>::write(out, v.prompts.front());
    Codec<std::vector<TextOrTokens>>::write(out, v.prompts);
  }
  static bj::object schema(const Bounds& b) { return one_or_several_schema(b, kPromptsMax); }
};

template <>
struct Table<NamedJsonSchema> {
  using S = NamedJsonSchema;
  static Fields fields() {
    return {optional("name", &S::name, "For the client's own use.", {1, 64}),
            optional("description", &S::description, "For the client's own use.", {0, 1 << 16}),
            optional("schema", &S::schema, "What the output follows. Omitted: any object.", {0, 1 << 20}),
            optional("strict", &S::strict, "The output follows the schema either way.")};
  }
};
template <>
struct Table<ResponseFormat> {
  using S = ResponseFormat;
  static Fields fields() {
    return {
        required("type", &S::type, "What the output is."),
        optional("json_schema", &S::json_schema, "With type json_schema, where schema is left out."),
        optional(
            "schema", &S::schema,
            "What the output follows, with type json_object, where it may be left out for any object, or json_schema.",
            {0, 1 << 20})};
  }

  static base::Result<> validate(const S& f) {
    if (f.schema && f.type == ResponseFormatType::kText) {
      return field_error("response_format.schema", "combination",
                         "schema stands beside type json_schema or json_object");
    }
    if (f.schema && f.json_schema) {
      return field_error("response_format.schema", "combination", "schema and json_schema say the same; leave one out");
    }
    const bool has_one = f.json_schema || (f.schema && f.type == ResponseFormatType::kJsonSchema);
    if (has_one == (f.type == ResponseFormatType::kJsonSchema)) return {};
    return field_error("response_format.json_schema", "combination", "type json_schema and json_schema go together");
  }
};
template <>
struct Table<StreamOptions> {
  using S = StreamOptions;
  static Fields fields() {
    return {optional("include_usage", &S::include_usage, "A last chunk counts the tokens."),
            optional("continuous_usage_stats", &S::continuous_usage_stats,
                     "Of vLLM. With include_usage: every chunk counts the tokens up to it."),
            optional("include_obfuscation", &S::include_obfuscation, "Changes nothing: no padding is sent."),
            optional("reasoning_summary_delivery", &S::reasoning_summary_delivery, "Accepted; changes nothing.")};
  }
};

// {"type":"function","function":{"name":...}}
struct NamedFunction {
  std::string name;
};
struct FunctionChoice {
  std::string type;
  NamedFunction function;
};
template <>
struct Table<NamedFunction> {
  static Fields fields() { return {required("name", &NamedFunction::name, "", {1, 64})}; }
};
template <>
struct Table<FunctionChoice> {
  using S = FunctionChoice;
  static Fields fields() { return {required("type", &S::type), required("function", &S::function)}; }

  static base::Result<> validate(const S& c) {
    if (c.type == "function") return {};
    return field_error("tool_choice.type", "unsupported", "tool_choice.type must be function");
  }
};
template <>
struct Codec<ToolChoice> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             ToolChoice& out) {
    out.function.reset();
    if (!v.is_object()) return Codec<ToolChoiceMode>::read(v, path, b, unknown, out.mode);
    FunctionChoice choice;
    TRY(Codec<FunctionChoice>::read(v, path, b, unknown, choice));
    out = {ToolChoiceMode::kRequired, std::move(choice.function.name)};
    return {};
  }
  static void write(std::string& out, const ToolChoice& v) {
    if (!v.function) return Codec<ToolChoiceMode>::write(out, v.mode);
    Codec<FunctionChoice>::write(out, {.type = "function", .function = {*v.function}});
  }
  static bj::object schema(const Bounds&) {
    return {{"anyOf", bj::array{Codec<ToolChoiceMode>::schema({}), Codec<FunctionChoice>::schema({})}}};
  }
};

// {"type":"function","name":...}, or of type custom.
struct FlatFunctionChoice {
  std::string type;
  std::string name;
};
template <>
struct Table<FlatFunctionChoice> {
  using S = FlatFunctionChoice;
  static Fields fields() { return {required("type", &S::type), required("name", &S::name, "", {1, 64})}; }

  static base::Result<> validate(const S& c) {
    if (c.type == "function" || c.type == "custom") return {};
    return field_error("tool_choice.type", "unsupported", "tool_choice.type must be function or custom");
  }
};
template <>
struct Codec<ResponseToolChoice> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             ResponseToolChoice& out) {
    out.is_custom = false;
    if (!v.is_object()) return Codec<ToolChoice>::read(v, path, b, unknown, out.choice);
    FlatFunctionChoice choice;
    TRY(Codec<FlatFunctionChoice>::read(v, path, b, unknown, choice));
    out.is_custom = choice.type == "custom";
    out.choice = {ToolChoiceMode::kRequired, std::move(choice.name)};
    return {};
  }
  static void write(std::string& out, const ResponseToolChoice& v) {
    if (!v.choice.function) return Codec<ToolChoiceMode>::write(out, v.choice.mode);
    Codec<FlatFunctionChoice>::write(out, {.type = v.is_custom ? "custom" : "function", .name = *v.choice.function});
  }
  static bj::object schema(const Bounds&) {
    return {{"anyOf", bj::array{Codec<ToolChoiceMode>::schema({}), Codec<FlatFunctionChoice>::schema({})}}};
  }
};

template <>
struct Codec<OpenAiSeed> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             OpenAiSeed& out) {
    if (const std::int64_t* number = v.if_int64(); number != nullptr && *number < 0) {
      out.bits = static_cast<std::uint64_t>(*number);
      return {};
    }
    return Codec<std::uint64_t>::read(v, path, b, unknown, out.bits);
  }
  static void write(std::string& out, const OpenAiSeed& v) { Codec<std::uint64_t>::write(out, v.bits); }
  static bj::object schema(const Bounds& b) { return integer_schema(b); }
};

// The lower bound is of those from 0 on.
template <>
struct Codec<TokensMax> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             TokensMax& out) {
    out.tokens.reset();
    if (const std::int64_t* number = v.if_int64(); number != nullptr && *number < 0) return {};
    return Codec<std::int64_t>::read(v, path, b, unknown, out.tokens.emplace());
  }
  static void write(std::string& out, const TokensMax& v) { Codec<std::int64_t>::write(out, v.tokens.value_or(-1)); }
  static bj::object schema(const Bounds& b) {
    bj::object out = integer_schema({-std::numeric_limits<double>::infinity(), b.max});
    if (b.min > 0) out["not"] = bj::object{{"const", 0}};
    return out;
  }
};

// An object of which only the fields of the table are looked at, also where unknown fields are refused.
template <class S>
struct LooseCodec {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys, S& out) {
    return read_object(fields(), v, path, UnknownKeys::kIgnore, &out);
  }
  static void write(std::string& out, const S& v) { write_object(fields(), out, &v); }
  static bj::object schema(const Bounds&) {
    const S defaults{};
    bj::object described = object_schema(fields(), &defaults);
    described.erase("additionalProperties");
    return described;
  }

 private:
  static const Fields& fields() {
    static const Fields list = Table<S>::fields();
    return list;
  }
};

template <>
struct Table<OllamaOptionsOfChat> {
  using S = OllamaOptionsOfChat;
  static Fields fields() {
    return {optional("num_predict", &S::num_predict, "max_tokens, where that is left out. 0 and below: no limit.",
                     {-kOutputTokensAskedMax, kOutputTokensAskedMax})};
  }
};
template <>
struct Codec<OllamaOptionsOfChat> : LooseCodec<OllamaOptionsOfChat> {};

template <>
struct Table<ThinkingOfChat> {
  using S = ThinkingOfChat;
  static Fields fields() {
    return {required("type", &S::type, "Sets the template's variable enable_thinking; auto and adaptive do not.")};
  }
};
template <>
struct Codec<ThinkingOfChat> : LooseCodec<ThinkingOfChat> {};

template <>
struct Table<ReasoningOfChat> {
  using S = ReasoningOfChat;
  static Fields fields() {
    return {optional("effort", &S::effort, "reasoning_effort, where that is left out."),
            optional("enabled", &S::enabled, "enable_thinking, where neither that nor thinking says it.")};
  }
};
template <>
struct Codec<ReasoningOfChat> : LooseCodec<ReasoningOfChat> {};

template <>
struct Codec<SamplerNames> {
  static constexpr double kLettersMax = 64;

  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             SamplerNames& out) {
    if (!v.is_string()) return Codec<std::vector<std::string>>::read(v, path, b, unknown, out.names);
    std::string letters;
    TRY(Codec<std::string>::read(v, path, {0, kLettersMax}, unknown, letters));
    out.names.clear();
    for (const char letter : letters) {
      const auto known = std::ranges::find(kLetters, letter, &std::pair<char, std::string_view>::first);
      if (known != kLetters.end()) out.names.emplace_back(known->second);
    }
    return {};
  }
  static void write(std::string& out, const SamplerNames& v) { Codec<std::vector<std::string>>::write(out, v.names); }
  static bj::object schema(const Bounds& b) {
    return {
        {"anyOf", bj::array{Codec<std::vector<std::string>>::schema(b), Codec<std::string>::schema({0, kLettersMax})}}};
  }

 private:
  static constexpr std::array<std::pair<char, std::string_view>, 9> kLetters{{{'d', "dry"},
                                                                              {'e', "penalties"},
                                                                              {'k', "top_k"},
                                                                              {'m', "min_p"},
                                                                              {'p', "top_p"},
                                                                              {'s', "top_n_sigma"},
                                                                              {'t', "temperature"},
                                                                              {'x', "xtc"},
                                                                              {'y', "typ_p"}}};
};

template <>
struct Table<LlamaCppFields> {
  using S = LlamaCppFields;
  static constexpr double kCountMax = 10'000'000;
  static constexpr std::string_view kChangesNothing = "Of llama.cpp's server. Accepted; changes nothing.";
  static Fields fields() {
    return {
        optional("repeat_penalty", &S::repeat_penalty, "Other spelling of repetition_penalty.", {0, 2}),
        optional("repeat_last_n", &S::repeat_last_n,
                 "penalty_last_n where a penalty is set; 0: no penalties, -1: of all tokens.", {-1, kCountMax}),
        optional("typ_p", &S::typ_p, "Other spelling of typical_p.", {0, 1}),
        optional("dry_penalty_last_n", &S::dry_penalty_last_n,
                 "dry_last_n where dry_multiplier is set; 0: DRY is off, -1: of all tokens.", {-1, kCountMax}),
        optional("samplers", &S::samplers,
                 "Those that are not listed are off; a text has a letter for each. The order is that of /v2.", {0, 32}),
        optional("backend_sampling", &S::backend_sampling, kChangesNothing),
        optional("cache_prompt", &S::cache_prompt, kChangesNothing),
        optional("id_slot", &S::id_slot, kChangesNothing),
        optional("reasoning_format", &S::reasoning_format, kChangesNothing),
        optional("return_progress", &S::return_progress, kChangesNothing),
        optional("timings_per_token", &S::timings_per_token, kChangesNothing)};
  }
};

template <>
struct Table<VllmFields> {
  using S = VllmFields;
  static constexpr std::string_view kNeutralAlone = "Of vLLM. Refused with any other value.";
  static Fields fields() {
    return {optional("top_k", &S::top_k, "Most likely tokens kept; 0 and -1 are off.", {-1, 10'000'000}),
            optional("early_stopping", &S::early_stopping, kNeutralAlone),
            optional("ignore_eos", &S::ignore_eos, kNeutralAlone),
            optional("include_stop_str_in_output", &S::include_stop_str_in_output, kNeutralAlone),
            optional("length_penalty", &S::length_penalty, kNeutralAlone),
            optional("min_tokens", &S::min_tokens, kNeutralAlone),
            optional("priority", &S::priority, kNeutralAlone),
            optional("skip_special_tokens", &S::skip_special_tokens, kNeutralAlone),
            optional("spaces_between_special_tokens", &S::spaces_between_special_tokens, kNeutralAlone),
            optional("truncate_prompt_tokens", &S::truncate_prompt_tokens, "Of vLLM. Refused."),
            optional("use_beam_search", &S::use_beam_search, kNeutralAlone)};
  }
};

template <>
struct Table<OpenAiRequest> {
  using S = OpenAiRequest;
  // Of a chat or a completion.
  static Fields model_or_only() {
    return {optional("model", &S::model,
                     "As in /v2/tasks: an alias, file:/absolute/path or hf:org/repo. Omitted or empty: the only model "
                     "that has a name and may write.",
                     {0, 512})};
  }
  static Fields model() {
    return {required("model", &S::model, "As in /v2/tasks: an alias, file:/absolute/path or hf:org/repo.", {1, 512})};
  }
  static Fields fields() {
    return {
        optional("stream", &S::stream, "Send the output as it comes. Omitted: false."),
        optional("stream_options", &S::stream_options, "With stream only."),
        optional("temperature", &S::temperature, "0 is greedy. Omitted: 1.", {0, 2}),
        optional("top_p", &S::top_p, "Smallest set of tokens with this probability mass; 1 is off.", {0, 1}),
        optional("frequency_penalty", &S::frequency_penalty, "Subtracted per occurrence of a token.", {-2, 2}),
        optional("presence_penalty", &S::presence_penalty, "Subtracted once from seen tokens.", {-2, 2}),
        optional("logit_bias", &S::logit_bias, "Token id to what is added to its logit.", {0, 1024}),
        optional("stop", &S::stop, "Texts that end the output; they are not part of it.", {0, kStopTextsMax}),
        optional("seed", &S::seed, "Below 0: the one of the same 64 bits. Omitted: one is chosen; the receipt has it."),
        optional("n", &S::n, "Choices, each a job with a seed of its own; of a response 1. Omitted: 1.",
                 {1, kChoicesMax})};
  }
};

constexpr std::string_view kPromptLogprobs =
    "Of vLLM: the answer lists the prompt's tokens, each with this many likeliest ones. Not with stream.";

// The sampling fields that the API does not have; what it spells itself stands elsewhere.
Fields extension_fields() {
  return fields_without(
      Table<SamplingRequest>::fields(), [own = Table<OpenAiRequest>::fields()](std::string_view name) {
        return has_field(own, name) || name == "logprobs" || name == "top_logprobs" || name == "prompt_logprobs";
      });
}

// The same beside fields of vLLM, whose top_k stands for ours.
Fields extension_fields_beside_vllm() {
  return fields_without(extension_fields(),
                        [own = Table<VllmFields>::fields()](std::string_view name) { return has_field(own, name); });
}

template <>
struct Table<ChatCompletionRequest> {
  using S = ChatCompletionRequest;
  static constexpr std::string_view kChangesNothing = "Accepted; changes nothing.";
  static constexpr std::string_view kUnsupported = "Refused.";
  static Fields own() {
    return {
        required("messages", &S::messages, "Conversation to continue, for the model's chat template.",
                 {0, kRequestBytesMax}),
        optional("max_completion_tokens", &S::max_completion_tokens,
                 "Tokens to generate at most. Omitted or below 0: what the context has room for.",
                 {1, kOutputTokensAskedMax}),
        optional("max_tokens", &S::max_tokens, "Older spelling of max_completion_tokens.", {1, kOutputTokensAskedMax}),
        optional("logprobs", &S::logprobs, "Every token comes with its log-probability."),
        optional("top_logprobs", &S::top_logprobs, "With logprobs: how many of the likeliest tokens are listed.",
                 {0, kTopLogprobsMax}),
        optional("response_format", &S::response_format, "What the output must look like."),
        optional("tools", &S::tools, "Functions the model may call.", {0, 4 << 20}),
        optional("tool_choice", &S::tool_choice, "Whether the model may, must or must not call one, and which."),
        optional("parallel_tool_calls", &S::parallel_tool_calls, "Whether the model may make several calls at once."),
        optional("reasoning_effort", &S::reasoning_effort,
                 "For the chat template; none also is enable_thinking false."),
        optional("service_tier", &S::service_tier, "flex is priority batch of /v2/tasks, everything else interactive."),
        optional("modalities", &S::modalities, "Only [\"text\"].", {0, 8}),
        optional("documents", &S::documents, "Texts the model may quote, for the chat template.", {0, 4 << 20}),
        optional("chat_template_kwargs", &S::chat_template_kwargs, "More variables for the chat template.",
                 {0, 1 << 16}),
        optional("prompt_logprobs", &S::prompt_logprobs, kPromptLogprobs, {0, kTopLogprobsMax}),
        optional("enable_thinking", &S::enable_thinking,
                 "The template's variable of this name, where chat_template_kwargs does not have it."),
        optional("thinking", &S::thinking, "The same, where enable_thinking is left out."),
        optional("reasoning", &S::reasoning,
                 "Other spellings of two fields. Members that are not listed change nothing."),
        optional("thinking_budget", &S::thinking_budget, kChangesNothing),
        optional("options", &S::options, "Of Ollama's clients. Members that are not listed change nothing."),
        optional("best_of", &S::best_of, Table<VllmFields>::kNeutralAlone),
        optional("drop_params", &S::drop_params, kChangesNothing),
        optional("extra_body", &S::extra_body,
                 "Of clients of llama.cpp's server. Accepted; what it holds is not read."),
        optional("keep_alive", &S::keep_alive, kChangesNothing),
        optional("metadata", &S::metadata, kChangesNothing),
        optional("prediction", &S::prediction, kChangesNothing),
        optional("prompt_cache_key", &S::prompt_cache_key, kChangesNothing),
        optional("prompt_cache_options", &S::prompt_cache_options, kChangesNothing),
        optional("prompt_cache_retention", &S::prompt_cache_retention, kChangesNothing),
        optional("safety_identifier", &S::safety_identifier, kChangesNothing),
        optional("store", &S::store, "Accepted; prompts and outputs are never kept."),
        optional("user", &S::user, kChangesNothing),
        optional("verbosity", &S::verbosity, kChangesNothing),
        optional("audio", &S::audio, kUnsupported),
        optional("function_call", &S::function_call, kUnsupported),
        optional("functions", &S::functions, kUnsupported),
        optional("moderation", &S::moderation, kUnsupported),
        optional("web_search_options", &S::web_search_options, kUnsupported)};
  }
  static Fields fields() {
    return joined({fields_of(&S::common, Table<OpenAiRequest>::model_or_only()),
                   fields_of(&S::common, Table<OpenAiRequest>::fields()), own(),
                   fields_of(&S::extensions, extension_fields_beside_vllm()),
                   fields_of(&S::llamacpp, Table<LlamaCppFields>::fields()),
                   fields_of(&S::vllm, Table<VllmFields>::fields())});
  }
};
template <>
struct Codec<ChatCompletionRequest> : NullableCodec<ChatCompletionRequest> {};

template <>
struct Table<ResponseTextFormat> {
  using S = ResponseTextFormat;
  static Fields fields() {
    return {required("type", &S::type, "What the output is."),
            optional("name", &S::name, "For the client's own use.", {1, 64}),
            optional("description", &S::description, "For the client's own use.", {0, 1 << 16}),
            optional("schema", &S::schema, "With type json_schema: what the output follows.", {0, 1 << 20}),
            optional("strict", &S::strict, "The output follows the schema either way.")};
  }

  static base::Result<> validate(const S& f) {
    if (f.schema.has_value() == (f.type == ResponseFormatType::kJsonSchema)) return {};
    return field_error("text.format.schema", "combination", "type json_schema and schema go together");
  }
};
template <>
struct Table<ResponseText> {
  using S = ResponseText;
  static Fields fields() {
    return {optional("format", &S::format, "What the output must look like."),
            optional("verbosity", &S::verbosity, "Accepted; changes nothing.")};
  }
};
template <>
struct Table<ResponseReasoning> {
  using S = ResponseReasoning;
  static constexpr std::string_view kChangesNothing = "Accepted; changes nothing.";
  static Fields fields() {
    return {optional("effort", &S::effort, "For the chat template; none also is enable_thinking false."),
            optional("context", &S::context, kChangesNothing),
            optional("generate_summary", &S::generate_summary, kChangesNothing),
            optional("mode", &S::mode, kChangesNothing), optional("summary", &S::summary, kChangesNothing)};
  }
};
// {"id":...}
struct ConversationObject {
  std::string id;
};
template <>
struct Table<ConversationObject> {
  static Fields fields() { return {required("id", &ConversationObject::id, "", {1, 256})}; }
};
template <>
struct Codec<ConversationRef> {
  static constexpr Bounds kId{1, 256};
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys unknown,
                             ConversationRef& out) {
    if (!v.is_object()) return Codec<std::string>::read(v, path, kId, unknown, out.id);
    ConversationObject object;
    TRY(Codec<ConversationObject>::read(v, path, {}, unknown, object));
    out.id = std::move(object.id);
    return {};
  }
  static void write(std::string& out, const ConversationRef& v) { Codec<std::string>::write(out, v.id); }
  static bj::object schema(const Bounds&) {
    return {{"anyOf", bj::array{Codec<std::string>::schema(kId), Codec<ConversationObject>::schema({})}}};
  }
};
template <>
struct Table<ResponsesRequest> {
  using S = ResponsesRequest;
  static constexpr std::string_view kChangesNothing = "Accepted; changes nothing.";
  static constexpr std::string_view kUnsupported = "Refused.";
  static Fields own() {
    return {
        required("input", &S::input, "What to answer: a text, or messages, calls and their results.",
                 {0, kRequestBytesMax}),
        optional("instructions", &S::instructions, "A system message before the input.", {0, 4 << 20}),
        optional("max_output_tokens", &S::max_output_tokens,
                 "Tokens to generate at most. Omitted or below 0: what the context has room for.",
                 {1, kOutputTokensAskedMax}),
        optional("top_logprobs", &S::top_logprobs, "How many of the likeliest tokens are listed with each.",
                 {0, kTopLogprobsMax}),
        optional("include", &S::include, "Known: message.output_text.logprobs. Others change nothing.", {0, 16}),
        optional("text", &S::text, "The output's format."),
        optional("tools", &S::tools, "Functions the model may call.", {0, 4 << 20}),
        optional("tool_choice", &S::tool_choice, "Whether the model may, must or must not call one, and which."),
        optional("parallel_tool_calls", &S::parallel_tool_calls, kChangesNothing),
        optional("reasoning", &S::reasoning),
        optional("service_tier", &S::service_tier, "flex is priority batch of /v2/tasks, everything else interactive."),
        optional("truncation", &S::truncation, "disabled: nothing is ever truncated.", {0, 64}),
        optional("background", &S::background, "false: the answer is in this response."),
        optional("chat_template_kwargs", &S::chat_template_kwargs, "More variables for the chat template.",
                 {0, 1 << 16}),
        optional("background_options", &S::background_options, kChangesNothing),
        optional("client_metadata", &S::client_metadata, kChangesNothing),
        optional("max_tool_calls", &S::max_tool_calls, kChangesNothing),
        optional("metadata", &S::metadata, kChangesNothing),
        optional("personality", &S::personality, kChangesNothing),
        optional("prompt_cache_key", &S::prompt_cache_key, kChangesNothing),
        optional("prompt_cache_options", &S::prompt_cache_options, kChangesNothing),
        optional("prompt_cache_retention", &S::prompt_cache_retention, kChangesNothing),
        optional("safety_identifier", &S::safety_identifier, kChangesNothing),
        optional("store", &S::store, "true: the response is kept as one in the background is. Omitted: it is not."),
        optional("previous_response_id", &S::previous_response_id,
                 "A kept response: its input and output come before this input.", {1, 256}),
        optional("conversation", &S::conversation,
                 "One of POST /v1/conversations: its items come before this input, which it gets, with the output."),
        optional("user", &S::user, kChangesNothing),
        optional("access_programs", &S::access_programs, kUnsupported),
        optional("context_management", &S::context_management, kUnsupported),
        optional("image", &S::image, kUnsupported),
        optional("moderation", &S::moderation, kUnsupported),
        optional("prompt", &S::prompt, kUnsupported)};
  }
  static Fields fields() {
    return joined({fields_of(&S::common, Table<OpenAiRequest>::model()),
                   fields_of(&S::common, Table<OpenAiRequest>::fields()), own(),
                   fields_of(&S::extensions, extension_fields())});
  }
};
template <>
struct Codec<ResponsesRequest> : NullableCodec<ResponsesRequest> {};

template <>
struct Table<EmbeddingsRequest> {
  using S = EmbeddingsRequest;
  static Fields fields() {
    return {required("model", &S::model, "Model reference, as of POST /v2/tasks.", {1, 512}),
            required("input", &S::input, "A text, a list of token ids, or a list of several of either.",
                     {1, kRequestBytesMax}),
            optional("encoding_format", &S::encoding_format,
                     "float: numbers; base64: their f32, little-endian. Omitted: float."),
            optional("dimensions", &S::dimensions, "Of each vector, from the first on. Omitted: the model's.",
                     {1, 1 << 20}),
            optional("drop_params", &S::drop_params, "Of clients of LiteLLM's proxy. Accepted; changes nothing."),
            optional("user", &S::user, "Accepted; changes nothing.")};
  }
};

template <>
struct Table<CreateBatchRequest> {
  using S = CreateBatchRequest;
  static Fields fields() {
    return {
        required("input_file_id", &S::input_file_id, "A file of POST /v1/files whose lines are requests.", {1, 256}),
        required("endpoint", &S::endpoint, "The path that all of them are for.", {1, 256}),
        required("completion_window", &S::completion_window, "24h.", {1, 16}),
        optional("metadata", &S::metadata, "Repeated in the batch."),
        optional("output_expires_after", &S::output_expires_after, "Accepted; changes nothing.")};
  }
};

// Of UTF-8.
std::size_t characters_in(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

template <>
struct Codec<Metadata> {
  using Texts = Codec<std::map<std::string, std::string>>;
  static constexpr std::size_t kTextsMax = 16, kNameMax = 64, kTextMax = 512;

  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys unknown, Metadata& out) {
    TRY(Texts::read(v, path, {}, unknown, out.texts));
    if (out.texts.size() > kTextsMax) {
      return field_error(path, "length", fmt::format("{} has {} members; allowed are 16", path, out.texts.size()));
    }
    for (const auto& [name, text] : out.texts) {
      if (characters_in(name) <= kNameMax && characters_in(text) <= kTextMax) continue;
      return field_error(path, "length",
                         fmt::format("{} has names of up to 64 characters, and texts of up to 512", path));
    }
    return {};
  }
  static void write(std::string& out, const Metadata& v) { Texts::write(out, v.texts); }
  static bj::object schema(const Bounds&) {
    return {{"type", "object"},
            {"maxProperties", kTextsMax},
            {"propertyNames", {{"maxLength", kNameMax}}},
            {"additionalProperties", {{"type", "string"}, {"maxLength", kTextMax}}}};
  }
};

template <>
struct Table<CreateConversationRequest> {
  using S = CreateConversationRequest;
  static Fields fields() {
    return {optional("items", &S::items, "Up to 20, as input of POST /v1/responses takes them.", {0, kRequestBytesMax}),
            optional("metadata", &S::metadata, "For the client's own use.")};
  }
};
template <>
struct Table<UpdateConversationRequest> {
  static Fields fields() {
    return {required("metadata", &UpdateConversationRequest::metadata, "Instead of all that was there.")};
  }
};
template <>
struct Table<CreateItemsRequest> {
  static Fields fields() {
    return {required("items", &CreateItemsRequest::items, "Up to 20, as input of POST /v1/responses takes them.",
                     {0, kRequestBytesMax})};
  }
};

template <>
struct Table<TextCompletionRequest> {
  using S = TextCompletionRequest;
  static Fields own() {
    return {required("prompt", &S::prompt, "Text to continue or its token ids, or several.", {0, kRequestBytesMax}),
            optional("max_tokens", &S::max_tokens,
                     "Tokens to generate at most. Omitted: 16. Below 0: what the context has room for. 0: with echo.",
                     {0, kOutputTokensAskedMax}),
            optional("logprobs", &S::logprobs,
                     "Every token comes with its log-probability and this many likelier ones.", {0, kTopLogprobsMax}),
            optional("echo", &S::echo, "The text begins with the prompt; with logprobs so do they."),
            optional("best_of", &S::best_of, "As n; left out it is."),
            optional("user", &S::user, "Accepted; changes nothing."),
            optional("suffix", &S::suffix,
                     "What follows on the output: the model fills in between the prompt and this. Empty: none.",
                     {0, 4 << 20}),
            optional("prompt_logprobs", &S::prompt_logprobs, kPromptLogprobs, {0, kTopLogprobsMax})};
  }
  static Fields fields() {
    return joined({fields_of(&S::common, Table<OpenAiRequest>::model_or_only()),
                   fields_of(&S::common, Table<OpenAiRequest>::fields()), own(),
                   fields_of(&S::extensions, extension_fields_beside_vllm()),
                   fields_of(&S::llamacpp, Table<LlamaCppFields>::fields()),
                   fields_of(&S::vllm, Table<VllmFields>::fields())});
  }
};
template <>
struct Codec<TextCompletionRequest> : NullableCodec<TextCompletionRequest> {};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(ChatCompletionRequest)
LLORCH_INSTANTIATE_WIRE(ResponsesRequest)
LLORCH_INSTANTIATE_WIRE(TextCompletionRequest)
LLORCH_INSTANTIATE_WIRE(CreateBatchRequest)
LLORCH_INSTANTIATE_WIRE(CreateConversationRequest)
LLORCH_INSTANTIATE_WIRE(UpdateConversationRequest)
LLORCH_INSTANTIATE_WIRE(CreateItemsRequest)
LLORCH_INSTANTIATE_WIRE(EmbeddingsRequest)
LLORCH_INSTANTIATE_ENUM(ReasoningEffort)
LLORCH_INSTANTIATE_ENUM(ServiceTier)
LLORCH_INSTANTIATE_ENUM(ToolChoiceMode)
