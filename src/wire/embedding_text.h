#pragma once
// Whether a worker's text is a vector or a score (embedding.h) of finite numbers: answers hold it as it stands. Pure.
#include <optional>
#include <string_view>

namespace llorch::wire {

bool is_vector(std::string_view text);
// The number of a score: a JSON number from 0 to 1 and nothing around it. Absent: it is none.
std::optional<double> read_score(std::string_view text);

}  // namespace llorch::wire
