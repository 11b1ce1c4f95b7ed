#include "orchestratord/http/ollama/pull.h"

#include <fmt/format.h>

#include "base/json_text.h"
#include "orchestratord/http/chat/parsing.h"
#include "wire/json.h"
#include "wire/ollama.h"

namespace llorch::orchestratord::http::ollama {
namespace {

// A tag stands for the newest of a name there; references have none of this spelling.
std::string without_latest(std::string model) {
  constexpr std::string_view kTag = ":latest";
  const bool is_reference = model.find('/') != std::string::npos;
  if (!is_reference && model.size() > kTag.size() && model.ends_with(kTag)) model.resize(model.size() - kTag.size());
  return model;
}

// In the words that clients of that API know.
std::string_view status_of(wire::PullState state) {
  switch (state) {
    case wire::PullState::kFetching: return "pulling";
    case wire::PullState::kFinishing: return "verifying sha256 digest";
    case wire::PullState::kDone: return "success";
    default: return "pulling manifest";
  }
}

}  // namespace

base::Result<PullCall> decode_pull(std::string_view text) {
  TRY(chat::check_utf8(text));
  const auto body = TRY(wire::decode<wire::OllamaPullRequest>(text, wire::UnknownKeys::kIgnore));
  PullCall call{.model = without_latest(body.model ? *body.model : *body.name), .stream = body.stream.value_or(true)};
  // Unknown fields were ignored, so the name is read again as /v2 reads it.
  const wire::CreateCatalogModelRequest as_there{.model_ref = call.model};
  TRY(wire::decode<wire::CreateCatalogModelRequest>(wire::encode(as_there), wire::UnknownKeys::kRefuse));
  return call;
}

base::Result<CopyCall> decode_copy(std::string_view text) {
  TRY(chat::check_utf8(text));
  auto body = TRY(wire::decode<wire::OllamaCopyRequest>(text, wire::UnknownKeys::kIgnore));
  return CopyCall{.source = std::move(body.source), .destination = without_latest(std::move(body.destination))};
}

base::Result<std::string> decode_delete(std::string_view text) {
  TRY(chat::check_utf8(text));
  const auto body = TRY(wire::decode<wire::OllamaShowRequest>(text, wire::UnknownKeys::kIgnore));
  return body.model ? *body.model : *body.name;
}

std::string pull_line(const wire::PullStatus& pull) {
  std::string out = fmt::format(R"({{"status":"{}")", status_of(pull.state));
  if (pull.state == wire::PullState::kFetching) {
    out += R"(,"digest":)";
    base::append_json_string(out, pull.pull_id);
    if (pull.bytes_total > 0) out += fmt::format(R"(,"total":{})", pull.bytes_total);
    out += fmt::format(R"(,"completed":{})", pull.bytes_done);
  }
  return out + "}\n";
}

std::string pulled_line(const wire::CatalogModel& model) {
  return R"({"status":"success","llorch":)" + wire::encode(model) + "}\n";
}

}  // namespace llorch::orchestratord::http::ollama
