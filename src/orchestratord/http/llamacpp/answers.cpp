#include "orchestratord/http/llamacpp/answers.h"

#include <fmt/format.h>

#include <string_view>

#include "base/append.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "base/version.h"
#include "orchestratord/http/chat/parsing.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::llamacpp {
namespace {

void append_piece(std::string& out, std::string_view bytes) {
  if (base::is_valid_utf8(bytes)) return base::append_json_string(out, bytes);
  out += '[';
  for (const char byte : bytes) {
    base::append(out, "{}{}", out.back() == '[' ? "" : ",", static_cast<unsigned char>(byte));
  }
  out += ']';
}

std::string well_formed(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const base::Utf8Step step = base::next_code_point(text);
    out += step.status == base::Utf8Status::kComplete ? text.substr(0, step.bytes) : base::kReplacementCharacter;
    text.remove_prefix(step.bytes);
  }
  return out;
}

}  // namespace

base::Result<std::string> tokenize_body(const text::Tokenizer& tokenizer, const wire::TokenizeRequest& request) {
  const auto tokens = TRY(
      tokenizer.encode(request.content, {.add_special = request.add_special, .parse_special = request.parse_special}));
  std::string out = R"({"tokens":[)";
  for (const base::TokenId token : tokens) {
    if (out.back() != '[') out += ',';
    if (!request.with_pieces) {
      base::append(out, "{}", base::index(token));
      continue;
    }
    base::append(out, R"({{"id":{},"piece":)", base::index(token));
    append_piece(out, tokenizer.token_bytes(token));
    out += '}';
  }
  return out + "]}";
}

base::Result<std::string> detokenize_body(const text::Tokenizer& tokenizer, const std::vector<std::int64_t>& tokens,
                                          std::int64_t bytes_max) {
  std::vector<base::TokenId> ids;
  ids.reserve(tokens.size());
  std::int64_t bytes = 0;
  const auto vocabulary = static_cast<std::int64_t>(tokenizer.facts().vocab_size);
  for (const std::int64_t token : tokens) {
    if (token < 0 || token >= vocabulary) {
      return chat::refused("tokens", "range",
                           fmt::format("tokens holds an id that is none: the model has 0 to {}", vocabulary - 1));
    }
    ids.push_back(base::TokenId{static_cast<std::uint32_t>(token)});
    bytes += static_cast<std::int64_t>(tokenizer.token_bytes(ids.back()).size());
    if (bytes > bytes_max) {
      return chat::refused(
          "tokens", "length",
          fmt::format("the text of tokens has more than {} bytes (limits.prompt_bytes_max); send fewer", bytes_max));
    }
  }
  std::string out = R"({"content":)";
  base::append_json_string(out, well_formed(tokenizer.decode(ids)));
  return out + "}";
}

std::string apply_template_body(const std::string& prompt) {
  std::string out = R"({"prompt":)";
  base::append_json_string(out, prompt);
  return out + "}";
}

std::string props_body(const std::string& name, const models::KnownModel& model, std::int64_t context_tokens) {
  std::string out = fmt::format(R"({{"default_generation_settings":{{"n_ctx":{},"params":{}}},"total_slots":{})",
                                context_tokens, wire::encode(wire::LlamaCppGeneration{}), model.facts.slots);
  for (const char* member : {"model_alias", "model_path"}) {
    base::append_json_string(out.append(",\"").append(member).append("\":"), name);
  }
  if (model.chat != nullptr && !model.chat->template_text().empty()) {
    base::append_json_string(out += R"(,"chat_template":)", model.chat->template_text());
  }
  base::append(out,
               R"(,"modalities":{{"vision":{},"audio":false}},"build_info":"llama-orch {}","llorch":{{"infill":{}}}}})",
               model.facts.images.has_value(), base::kVersion, model.infill != nullptr);
  return out;
}

std::string slots_body(const std::vector<WorkerSlots>& workers) {
  std::string out = "[";
  std::int64_t id = 0;
  for (const WorkerSlots& worker : workers) {
    for (std::int64_t slot = 0; slot < worker.total; ++slot, ++id) {
      const bool is_busy = slot < worker.busy;
      base::append(out, R"({}{{"id":{},"model":)", id == 0 ? "" : ",", id);
      base::append_json_string(out, worker.model);
      base::append(out, R"(,"n_ctx":{},"state":{},"is_processing":{}}})", worker.context_tokens, is_busy ? 1 : 0,
                   is_busy);
    }
  }
  return out + "]";
}

}  // namespace llorch::orchestratord::http::llamacpp
