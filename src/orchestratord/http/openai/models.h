#pragma once
// The models that GET /v1/models lists: the configured names. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace llorch::orchestratord::http::openai {

struct ListedModel {
  std::string name;
  std::optional<std::int64_t> context_tokens{};  // absent: nobody has asked for it yet
};

// `created_unix_s`: when this process began to offer them.
std::string model_list(const std::vector<ListedModel>& models, std::int64_t created_unix_s);
std::string model_object(const ListedModel& model, std::int64_t created_unix_s);

}  // namespace llorch::orchestratord::http::openai
