#pragma once
// Vectors of embedding jobs and scores of rerank jobs as numbers. Pure.
#include <string>
#include <string_view>

namespace llorch::orchestratord::http::chat {

// Appends the elements, separated by commas: each as short as it can be said so that an f32 reads back the same. REQUIRES: a
// vector as wire/embedding.h has it.
void append_numbers(std::string& out, std::string_view vector);

// REQUIRES: a score as wire/embedding.h has it.
double score_of(std::string_view score);

}  // namespace llorch::orchestratord::http::chat
