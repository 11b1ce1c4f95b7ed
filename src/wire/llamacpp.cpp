#include "wire/llamacpp.h"

#include "wire/embedding_fields.h"
#include "wire/field.h"
#include "wire/gateway_fields.h"
#include "wire/json_text_fields.h"

namespace llorch::wire {

namespace {
constexpr std::string_view kModel = "As in /v2/tasks. Omitted: the one that is configured.";
constexpr Bounds kModelBytes{1, 512};
}  // namespace

template <>
struct Table<TokenizeRequest> {
  using S = TokenizeRequest;
  static Fields fields() {
    return {optional("model", &S::model, kModel, kModelBytes),
            required("content", &S::content, "The text.", {0, 4 << 20}),
            optional("add_special", &S::add_special, "Tokens around the text, where the model wants them."),
            optional("parse_special", &S::parse_special, "Spelled control tokens are tokens."),
            optional("with_pieces", &S::with_pieces, "The text of each token as well.")};
  }
};
template <>
struct Codec<TokenizeRequest> : NullableCodec<TokenizeRequest> {};
template <>
struct Table<DetokenizeRequest> {
  using S = DetokenizeRequest;
  static Fields fields() {
    return {optional("model", &S::model, kModel, kModelBytes),
            required("tokens", &S::tokens, "Ids of its vocabulary.", {0, 1 << 20})};
  }
};
template <>
struct Table<ApplyTemplateRequest> {
  using S = ApplyTemplateRequest;
  static Fields fields() {
    return {
        optional("model", &S::model, kModel, kModelBytes),
        required("messages", &S::messages, "Conversation, for the model's chat template.", {0, 4 << 20}),
        optional("tools", &S::tools, "Functions the model may call.", {0, 4 << 20}),
        optional("chat_template_kwargs", &S::chat_template_kwargs, "More variables for the template.", {0, 1 << 16}),
        optional("add_generation_prompt", &S::add_generation_prompt, "Whether an answer begins at the end.")};
  }
};

template <>
struct Table<LlamaCppEmbeddingRequest> {
  using S = LlamaCppEmbeddingRequest;
  static Fields fields() {
    return {
        optional("model", &S::model, kModel, kModelBytes),
        optional("content", &S::content, "A text, a list of token ids, or a list of several of either.", {1, 4 << 20}),
        optional("input", &S::input, "The same; where both are sent, this one counts.", {1, 4 << 20}),
        optional("embd_normalize", &S::embd_normalize, "Refused unless 2: every vector is one long.", {-1, 1 << 20})};
  }

  static base::Result<> validate(const S& r) {
    if (!r.content && !r.input) return field_error("content", "missing", "content is required");
    if (r.embd_normalize == 2) return {};
    return field_error("embd_normalize", "unsupported",
                       "embd_normalize is not supported by this server unless it is 2: every vector is one long");
  }
};
template <>
struct Codec<LlamaCppEmbeddingRequest> : NullableCodec<LlamaCppEmbeddingRequest> {};

template <>
struct Codec<RerankDocument> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds&, UnknownKeys unknown,
                             RerankDocument& out) {
    constexpr Bounds kText{1, 4 << 20};
    if (const bj::object* object = v.if_object()) {
      const bj::value* text = object->if_contains("text");
      if (text == nullptr) return field_error(path, "missing", fmt::format("{} has no text", path));
      return Codec<std::string>::read(*text, path.member("text"), kText, unknown, out.text);
    }
    return Codec<std::string>::read(v, path, kText, unknown, out.text);
  }
  static void write(std::string& out, const RerankDocument& v) { append_json_string(out, v.text); }
  static bj::object schema(const Bounds&) {
    const bj::object text = Codec<std::string>::schema({1, 4 << 20});
    return {{"anyOf", bj::array{text, bj::object{{"type", "object"},
                                                 {"properties", bj::object{{"text", text}}},
                                                 {"required", bj::array{"text"}}}}}};
  }
};
template <>
struct Table<RerankRequest> {
  using S = RerankRequest;
  static Fields fields() {
    return {optional("model", &S::model, kModel, kModelBytes),
            required("query", &S::query, "What the documents are judged by.", {1, 4 << 20}),
            required("documents", &S::documents, "Texts, or objects with a text.", {1, kEmbeddingInputsMax}),
            optional("top_n", &S::top_n, "Results at most, the best ones. Omitted: all.", {1, 1 << 20}),
            optional("return_documents", &S::return_documents, "Each result holds its document.")};
  }
};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(TokenizeRequest)
LLORCH_INSTANTIATE_WIRE(DetokenizeRequest)
LLORCH_INSTANTIATE_WIRE(ApplyTemplateRequest)
LLORCH_INSTANTIATE_WIRE(LlamaCppEmbeddingRequest)
LLORCH_INSTANTIATE_WIRE(RerankRequest)
