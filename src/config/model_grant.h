#pragma once
// What opens one model of a pool for another pool, for a while. Pure.
#include <cstdint>
#include <string>
#include <string_view>

namespace llorch::config {

// The header in which it is sent: it is no bearer token, which would open more.
inline constexpr std::string_view kModelGrantHeader = "X-Model-Grant";

// Made by orchestratord, which shares `control_token` with the pool that has the model; `checksum` is "sha256:<hex>". Who holds a
// grant learns nothing of the token.
std::string model_grant(std::string_view control_token, std::string_view checksum, std::int64_t until_unix_s);
// Whether `grant` is of this model and its time has not come.
bool opens_model(std::string_view grant, std::string_view control_token, std::string_view checksum,
                 std::int64_t now_unix_s);

}  // namespace llorch::config
