#pragma once
// Cuts text into the pieces that byte-level BPE merges one by one. Hand-written scanners for the published patterns
// (engine.md §4.4): linear time, no recursion, exact.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace llorch::engine::text::model {

enum class PrePattern : std::uint8_t {
  kGpt2,      // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kCl100k,    // C|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  kOneDigit,  // the same with \p{N}; C are gpt-2's seven endings in either case
};

struct PreTokenizer {
  PrePattern pattern;
  bool whole_piece_first;  // a piece that is a token is not merged ("ignore_merges")
  bool add_bos;            // what the model family does when the file does not say
};

// By the name in tokenizer.ggml.pre; nullopt when there is no exact implementation.
std::optional<PreTokenizer> pre_tokenizer_by_name(std::string_view name);
// For messages: "gpt-2, phi-2, ..."
std::string pre_tokenizer_names();

// Bytes of the first piece of non-empty `text`, at least 1.
std::size_t first_piece_bytes(PrePattern pattern, std::string_view text);

}  // namespace llorch::engine::text::model
