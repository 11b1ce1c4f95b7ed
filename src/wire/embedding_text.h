#pragma once
// Whether a worker's text is a vector or a score (embedding.h) of finite numbers: answers hold it as it stands. Pure.
#include <string_view>

namespace llorch::wire {

bool is_vector(std::string_view text);
bool is_score(std::string_view text);

}  // namespace llorch::wire
