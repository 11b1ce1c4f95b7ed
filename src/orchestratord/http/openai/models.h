#pragma once
// The models that GET /v1/models lists: the configured names. Pure.
#include <cstdint>
#include <string>
#include <vector>

namespace llorch::orchestratord::http::openai {

// `created_unix_s`: when this process began to offer them.
std::string model_list(const std::vector<std::string>& names, std::int64_t created_unix_s);
std::string model_object(const std::string& name, std::int64_t created_unix_s);

}  // namespace llorch::orchestratord::http::openai
