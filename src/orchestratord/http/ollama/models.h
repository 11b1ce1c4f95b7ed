#pragma once
// What the Ollama API tells of models. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestratord/models/catalog.h"
#include "wire/pool.h"

namespace llorch::orchestratord::http::ollama {

// The release of Ollama whose API this follows: clients ask for it, and refuse one that lacks what they need.
inline constexpr std::string_view kOllamaVersion = "0.14.2";

// As that API lists a name: with a tag.
std::string listed_name(const std::string& name);

struct ListedModel {
  std::string name;
  std::string model_ref;
  std::optional<wire::ModelFacts> facts;  // absent: nobody has asked for this model yet
};
// The answers of GET /api/tags, POST /api/show and GET /api/ps. `started`: when this process began to offer them.
std::string tags_body(const std::vector<ListedModel>& models, std::int64_t started_unix_ms);
std::string show_body(const std::string& name, const models::KnownModel& model, std::int64_t started_unix_ms);

struct RunningModel {
  std::string name;
  std::optional<wire::ModelFacts> facts;
  wire::WorkerInfo worker;
};
std::string ps_body(const std::vector<RunningModel>& models);

}  // namespace llorch::orchestratord::http::ollama
