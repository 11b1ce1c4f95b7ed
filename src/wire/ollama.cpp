#include "wire/ollama.h"

#include "wire/embedding_fields.h"
#include "wire/field.h"
#include "wire/gateway_fields.h"
#include "wire/json_text_fields.h"
#include "wire/request_limits.h"
#include "wire/sampling_fields.h"

namespace llorch::wire {

// Bounds count the bytes of a schema.
template <>
struct Codec<OllamaFormat> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             OllamaFormat& out) {
    out.schema.reset();
    if (v.is_object()) return Codec<JsonSchema>::read(v, path, b, unknown, out.schema.emplace());
    if (v.is_string() && v.get_string().empty()) return {};
    if (!v.is_string() || v.get_string() != "json") {
      return field_error(path, "enum", fmt::format("{} must be \"json\" or a JSON Schema, an object", path));
    }
    out.schema = JsonSchema{R"({"type":"object"})"};
    return {};
  }
  static void write(std::string& out, const OllamaFormat& v) {
    if (v.schema) {
      Codec<JsonSchema>::write(out, *v.schema);
    } else {
      out += R"("")";
    }
  }
  static bj::object schema(const Bounds&) {
    return {{"anyOf", bj::array{bj::object{{"enum", bj::array{"", "json"}}}, bj::object{{"type", "object"}}}}};
  }
};

template <>
struct Codec<OllamaThink> {
  static constexpr std::array<std::string_view, 4> kEfforts = {"low", "medium", "high", "max"};

  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys, OllamaThink& out) {
    const std::string_view effort = v.is_string() ? std::string_view(v.get_string()) : std::string_view();
    const bool is_effort = std::ranges::find(kEfforts, effort) != kEfforts.end();
    if (!v.is_bool() && !is_effort) {
      return field_error(path, "enum", fmt::format("{} must be true, false, low, medium, high or max", path));
    }
    out = {.enabled = is_effort || v.get_bool(), .effort = std::string(effort)};
    return {};
  }
  static void write(std::string& out, const OllamaThink& v) {
    if (v.effort.empty()) return Codec<bool>::write(out, v.enabled);
    append_json_string(out, v.effort);
  }
  static bj::object schema(const Bounds&) { return {{"enum", bj::array{true, false, "low", "medium", "high", "max"}}}; }
};

template <>
struct Codec<OllamaKeepAlive> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys, OllamaKeepAlive& out) {
    if (v.is_number()) {
      out.is_zero = v.to_number<double>() == 0;
      return {};
    }
    const std::string_view text = v.is_string() ? std::string_view(v.get_string()) : std::string_view();
    if (!is_duration(text)) {
      return field_error(path, "format", fmt::format("{} must be seconds or a duration such as \"5m\"", path));
    }
    out.is_zero = text.find_first_of("123456789") == std::string_view::npos;
    return {};
  }
  static void write(std::string& out, const OllamaKeepAlive& v) { out += v.is_zero ? "0" : "-1"; }
  static bj::object schema(const Bounds&) { return {{"type", bj::array{"number", "string"}}}; }

 private:
  // As Go writes one: "0", or a sign and numbers, each with its unit.
  static bool is_duration(std::string_view text) {
    static constexpr std::array<std::string_view, 6> kUnits = {"ns", "us", "ms", "s", "m", "h"};
    if (text == "0") return true;
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
    if (text.empty()) return false;
    while (!text.empty()) {
      const std::size_t number = std::min(text.find_first_not_of("0123456789."), text.size());
      const std::string_view digits = text.substr(0, number);
      if (digits.find_first_of("0123456789") == std::string_view::npos || std::ranges::count(digits, '.') > 1)
        return false;
      text.remove_prefix(number);
      const auto unit = std::ranges::find_if(kUnits, [&](std::string_view u) { return text.starts_with(u); });
      if (unit == kUnits.end()) return false;
      text.remove_prefix(unit->size());
    }
    return true;
  }
};

template <>
struct Codec<OllamaInputs> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             OllamaInputs& out) {
    out.inputs.reset();
    const bool is_none = (v.is_string() && v.get_string().empty()) || (v.is_array() && v.get_array().empty());
    if (is_none) return {};
    return Codec<EmbeddingInputs>::read(v, path, b, unknown, out.inputs.emplace());
  }
  static void write(std::string& out, const OllamaInputs& v) {
    v.inputs ? Codec<EmbeddingInputs>::write(out, *v.inputs) : void(out += "[]");
  }
  static bj::object schema(const Bounds& b) {
    bj::object out = Codec<EmbeddingInputs>::schema(b);
    out["anyOf"].as_array().push_back(bj::object{{"enum", bj::array{"", bj::array{}}}});
    return out;
  }
};

// As Go reads a number into an integer.
template <>
struct Codec<OllamaInteger> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             OllamaInteger& out) {
    constexpr double kLeastBeyond = 9.2e18;  // nearly 2^63
    const double* number = v.if_double();
    if (number == nullptr) return Codec<std::int64_t>::read(v, path, b, unknown, out.value);
    const double cut = std::clamp(std::trunc(*number), -kLeastBeyond, kLeastBeyond);
    return Codec<std::int64_t>::read(bj::value(static_cast<std::int64_t>(cut)), path, b, unknown, out.value);
  }
  static void write(std::string& out, const OllamaInteger& v) { Codec<std::int64_t>::write(out, v.value); }
  static bj::object schema(const Bounds& b) { return Codec<double>::schema(b); }
};

template <>
struct Table<OllamaOptions> {
  using S = OllamaOptions;
  static constexpr double kAny = 9e15;
  static Fields fields() {
    return {
        optional("seed", &S::seed, "Below 0: one is drawn."),
        optional("num_predict", &S::num_predict, "0 and below: what the context has room for.",
                 {-kAny, kOutputTokensAskedMax}),
        optional("temperature", &S::temperature, "0 is greedy. Omitted: 0.8.", {0, 2}),
        optional("top_k", &S::top_k, "Most likely tokens kept; 0 and -1 are off. Omitted: 40.", {-1, 10'000'000}),
        optional("top_p", &S::top_p, "Smallest set of tokens with this probability mass; 1 is off. Omitted: 0.9.",
                 {0, 1}),
        optional("min_p", &S::min_p, "Least probability relative to the likeliest token; 0 is off. Omitted: 0.",
                 {0, 1}),
        optional("typical_p", &S::typical_p,
                 "Mass of the tokens nearest to the entropy that is kept; 1 is off. Omitted: 1.", {0, 1}),
        optional("repeat_penalty", &S::repeat_penalty,
                 "repetition_penalty of /v2; 1, 0 and below are off. Omitted: 1.1.", {-2, 2}),
        optional("repeat_last_n", &S::repeat_last_n,
                 "Newest tokens the penalties look at; 0: no penalties, -1: all of them. Omitted: 64.",
                 {-1, 10'000'000}),
        optional("presence_penalty", &S::presence_penalty, "Subtracted once from seen tokens. Omitted: 0.", {-2, 2}),
        optional("frequency_penalty", &S::frequency_penalty, "Subtracted per occurrence of a token. Omitted: 0.",
                 {-2, 2}),
        optional("mirostat", &S::mirostat,
                 "1 or 2: this version of mirostat instead of the cuts; 0 is off. Omitted: 0.", {0, 2}),
        optional("mirostat_tau", &S::mirostat_tau, "Surprise mirostat aims at, in bits per token. Omitted: 5.",
                 {0, 20}),
        optional("mirostat_eta", &S::mirostat_eta, "How fast mirostat corrects itself. Omitted: 0.1.", {0, 1}),
        optional("stop", &S::stop, "Texts that end the output; they are not part of it.", {0, kStopTextsMax})};
  }
};

template <>
struct Table<OllamaRequest> {
  using S = OllamaRequest;
  static Fields fields() {
    return {required("model", &S::model, "As in /v2/tasks, with or without the tag latest.", {1, 512}),
            optional("stream", &S::stream, "Lines as they come. Omitted: true."),
            optional("format", &S::format, "What the output must look like.", {0, 1 << 20}),
            optional("options", &S::options, "How tokens are chosen; unknown ones are ignored."),
            optional("think", &S::think, "For the chat template: enable_thinking and reasoning_effort."),
            optional("logprobs", &S::logprobs, "Every token comes with its log-probability."),
            optional("top_logprobs", &S::top_logprobs, "With logprobs: how many of the likeliest tokens are listed.",
                     {0, kTopLogprobsMax}),
            optional("keep_alive", &S::keep_alive, "0 without a question: the model's workers end.")};
  }
};
template <>
struct Table<OllamaChatRequest> {
  using S = OllamaChatRequest;
  static Fields own() {
    return {optional("messages", &S::messages, "Conversation to continue. None: the model is looked for.",
                     {0, kRequestBytesMax}),
            optional("tools", &S::tools, "Functions the model may call.", {0, 4 << 20})};
  }
  static Fields fields() { return joined({fields_of(&S::common, Table<OllamaRequest>::fields()), own()}); }
};
template <>
struct Table<OllamaGenerateRequest> {
  using S = OllamaGenerateRequest;
  static Fields own() {
    return {optional("prompt", &S::prompt, "What a user says, or a text to continue. None: the model is looked for.",
                     {0, kRequestBytesMax}),
            optional("system", &S::system, "A system message before it.", {0, 4 << 20}),
            optional("raw", &S::raw, "The prompt as it stands, without the chat template."),
            optional("images", &S::images, "Images of the prompt: files as base64.", {0, 64}),
            optional("suffix", &S::suffix,
                     "What follows on the output: the model fills in between the prompt and this. Empty: none.",
                     {0, 4 << 20}),
            optional("template", &S::template_text, "Refused unless empty."),
            optional("context", &S::context, "Refused unless empty: nothing is kept.", {0, 1 << 20})};
  }
  static Fields fields() { return joined({fields_of(&S::common, Table<OllamaRequest>::fields()), own()}); }
};
template <>
struct Table<OllamaEmbedRequest> {
  using S = OllamaEmbedRequest;
  static Fields fields() {
    return {required("model", &S::model, "As in a chat.", {1, 512}),
            optional("input", &S::input, "A text, or a list of texts. None: the model is looked for.",
                     {1, kRequestBytesMax}),
            optional("truncate", &S::truncate,
                     "True: an input longer than the context is cut; false: it is refused. Omitted: true."),
            optional("dimensions", &S::dimensions, "Of each vector, from the first on. Omitted: the model's.",
                     {1, 1 << 20})};
  }
};
template <>
struct Table<OllamaEmbeddingsRequest> {
  using S = OllamaEmbeddingsRequest;
  static Fields fields() {
    return {required("model", &S::model, "As in a chat.", {1, 512}),
            optional("prompt", &S::prompt, "A text. None: the model is looked for.", {0, kRequestBytesMax})};
  }
};
template <>
struct Table<OllamaPullRequest> {
  using S = OllamaPullRequest;
  static Fields fields() {
    return {optional("model", &S::model, "The name of a known model, or a reference as of POST /v2/catalog/models.",
                     {1, 4096}),
            optional("name", &S::name, "Older spelling.", {1, 4096}),
            optional("stream", &S::stream, "Lines that say how far it is. Omitted: true."),
            optional("insecure", &S::insecure, "Refused unless false: models.pull says whom a pool trusts.")};
  }

  static base::Result<> validate(const S& r) {
    if (!r.model && !r.name) return field_error("model", "missing", "model is required");
    if (!r.insecure.value_or(false)) return {};
    return field_error("insecure", "unsupported",
                       "insecure is not supported by this server: models.pull says whom a pool trusts; leave it out");
  }
};
template <>
struct Table<OllamaCopyRequest> {
  using S = OllamaCopyRequest;
  static Fields fields() {
    return {required("source", &S::source, "A name of a model that is here.", {1, 512}),
            required("destination", &S::destination, "One more name for it.", {1, 512})};
  }
};
template <>
struct Table<OllamaShowRequest> {
  using S = OllamaShowRequest;
  static Fields fields() {
    return {optional("model", &S::model, "As in a chat.", {0, 512}),
            optional("name", &S::name, "Older spelling.", {0, 512})};
  }

  static base::Result<> validate(const S& r) {
    if (!r.model.value_or("").empty() || !r.name.value_or("").empty()) return {};
    return field_error("model", "missing", "model is required");
  }
};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(OllamaChatRequest)
LLORCH_INSTANTIATE_WIRE(OllamaGenerateRequest)
LLORCH_INSTANTIATE_WIRE(OllamaEmbedRequest)
LLORCH_INSTANTIATE_WIRE(OllamaEmbeddingsRequest)
LLORCH_INSTANTIATE_WIRE(OllamaPullRequest)
LLORCH_INSTANTIATE_WIRE(OllamaCopyRequest)
LLORCH_INSTANTIATE_WIRE(OllamaShowRequest)
