#include "orchestratord/streams/replay/event_id.h"

#include <array>
#include <charconv>

namespace llorch::orchestratord::streams {
namespace {

constexpr std::size_t kPrefixDigits = 16;
constexpr std::size_t kSeqDigitsMax = 18;

bool only(std::string_view text, std::string_view alphabet) {
  return text.find_first_not_of(alphabet) == std::string_view::npos;
}

}  // namespace

void append_event_id(std::string& out, const EventId& id) {
  constexpr std::size_t kInt64CharsMax = 20;
  std::array<char, kInt64CharsMax + 1 + kPrefixDigits> text;
  char* at = std::to_chars(text.data(), text.data() + kInt64CharsMax, id.seq).ptr;
  *at++ = '-';
  for (int shift = 60; shift >= 0; shift -= 4) *at++ = "0123456789abcdef"[(id.prefix >> shift) & 0xf];
  out.append(text.data(), at);
}

std::string to_string(const EventId& id) {
  std::string out;
  append_event_id(out, id);
  return out;
}

base::Result<EventId> parse_event_id(std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::string_view seq = text.substr(0, dash);
  const std::string_view prefix = dash == std::string_view::npos ? std::string_view() : text.substr(dash + 1);
  if (seq.empty() || seq.size() > kSeqDigitsMax || !only(seq, "0123456789") || prefix.size() != kPrefixDigits ||
      !only(prefix, "0123456789abcdef")) {
    return base::fail(base::Error{
        base::ErrorCode::kInvalidParams,
        "Last-Event-ID must be an id of this stream, <number>-<16 hex digits>; send the last id "
        "received, or none to read from the beginning",
        {}}.with("field", "Last-Event-ID")
                          .with("reason", "format"));
  }
  EventId id;
  std::from_chars(seq.data(), seq.data() + seq.size(), id.seq);
  std::from_chars(prefix.data(), prefix.data() + prefix.size(), id.prefix, 16);
  return id;
}

}  // namespace llorch::orchestratord::streams
