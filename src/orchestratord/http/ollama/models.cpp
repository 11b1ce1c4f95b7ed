#include "orchestratord/http/ollama/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>

#include "base/clock.h"
#include "base/sha256.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::ollama {
namespace {

namespace json = boost::json;

constexpr std::string_view kLatest = ":latest";
// A worker ends when its place is needed, or after an idle time, not at a time that is known before.
constexpr std::string_view kNoExpiry = "9999-12-31T23:59:59Z";
// Clients take a model for one that fills in, or that calls tools, where its template names the suffix or the tools, and ask for no
// capability. Empty where it does neither.
std::string template_of(bool fills_in, bool calls) {
  if (!fills_in && !calls) return "";
  return fmt::format("{{{{ .Prompt }}}}{}{}", fills_in ? "{{ .Suffix }}" : "", calls ? "{{ .Tools }}" : "");
}

json::object details_of(const std::optional<wire::ModelFacts>& facts) {
  json::object out{{"parent_model", ""},  {"format", ""},         {"family", ""},
                   {"families", nullptr}, {"parameter_size", ""}, {"quantization_level", ""}};
  if (!facts) return out;
  out["format"] = facts->model_ref.ends_with(".gguf") ? "gguf" : "safetensors";
  out["family"] = facts->architecture;
  out["families"] = json::array{json::string(facts->architecture)};
  std::string level = facts->quant_kind;
  std::ranges::transform(level, level.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  out["quantization_level"] = level;
  return out;
}

// "sha256:aa" is "aa" there. Where none is known yet, that of the reference: clients print the first twelve digits of what they get.
std::string bare(std::string_view digest, std::string_view model_ref) {
  if (digest.empty()) return base::to_hex(base::sha256(model_ref));
  const std::size_t colon = digest.find(':');
  return std::string(colon == std::string_view::npos ? digest : digest.substr(colon + 1));
}

}  // namespace

std::string listed_name(const std::string& name) {
  return name.find(':') == std::string::npos ? name + std::string(kLatest) : name;
}

std::string tags_body(const std::vector<ListedModel>& models, std::int64_t started_unix_ms) {
  json::array list;
  for (const ListedModel& model : models) {
    const std::string name = listed_name(model.name);
    list.push_back({{"name", name},
                    {"model", name},
                    {"modified_at", base::rfc3339(started_unix_ms)},
                    {"size", model.facts ? model.facts->size_bytes : 0},
                    {"digest", bare(model.facts ? model.facts->digest : "", model.model_ref)},
                    {"details", details_of(model.facts)}});
  }
  return json::serialize(json::object{{"models", std::move(list)}});
}

std::string show_body(const std::string& name, const models::KnownModel& model, std::int64_t started_unix_ms) {
  namespace formats = text::formats;
  const wire::ModelFacts& facts = model.facts;
  json::array capabilities;
  // That API has no word for a model that reranks, and programs that know its words alone read no list with another one.
  if (!facts.reranks.value_or(false)) capabilities.emplace_back(wire::enum_name(models::workload_of(facts)));
  const bool tells_here = model.chat != nullptr && model.chat->has_template();  // else its engine does
  const bool calls = tells_here && facts.writes() && model.format_with_tools->format != formats::Format::kGeneric;
  if (calls) capabilities.emplace_back("tools");
  if (calls && formats::knows_thoughts(model.format->format)) {
    capabilities.emplace_back("thinking");
  }
  const bool fills_in = model.infill != nullptr && facts.writes();
  if (fills_in) capabilities.emplace_back("insert");
  if (facts.images) capabilities.emplace_back("vision");
  json::object info{{"general.architecture", facts.architecture}, {"general.basename", name}};
  info[facts.architecture + ".context_length"] = facts.context_length;
  info[facts.architecture + ".vocab_size"] = facts.vocab_size;
  // Programs (Koog) want it of every model. Of one that makes vectors it is the length of those.
  if (const auto& length = facts.embedding_dimensions ? facts.embedding_dimensions : facts.hidden_size) {
    info[facts.architecture + ".embedding_length"] = *length;
  }
  return json::serialize(json::object{{"modelfile", ""},
                                      {"parameters", ""},
                                      {"template", template_of(fills_in, calls)},
                                      {"details", details_of(facts)},
                                      {"model_info", std::move(info)},
                                      {"capabilities", std::move(capabilities)},
                                      {"modified_at", base::rfc3339(started_unix_ms)}});
}

std::string ps_body(const std::vector<RunningModel>& models) {
  json::array list;
  for (const RunningModel& model : models) {
    const std::string name = listed_name(model.name);
    list.push_back({{"name", name},
                    {"model", name},
                    {"size", model.worker.vram_bytes},
                    {"digest", bare(model.worker.model_digest, model.worker.model_ref)},
                    {"details", details_of(model.facts)},
                    {"expires_at", json::string(kNoExpiry)},
                    {"size_vram", model.worker.vram_bytes},
                    {"context_length", model.worker.context_length}});
  }
  return json::serialize(json::object{{"models", std::move(list)}});
}

}  // namespace llorch::orchestratord::http::ollama
