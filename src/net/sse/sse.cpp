#include "net/sse/sse.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/assert.h"

namespace llorch::net::sse {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// What one big event leaves behind for the next ones.
constexpr std::size_t kKeptBytes = 4 << 10;

// The first CR or LF; text.size() if there is none.
std::size_t line_end(std::string_view text) {
  const std::size_t lf = std::min(text.find('\n'), text.size());
  return std::min(text.substr(0, lf).find('\r'), lf);
}

bool is_one_line(std::string_view text) { return line_end(text) == text.size(); }

// Splits the first line off `rest`; its ending is LF, CR or CRLF.
std::string_view take_first_line(std::string_view& rest) {
  const std::size_t end = line_end(rest);
  const std::string_view line = rest.substr(0, end);
  const std::size_t ending = rest.substr(end).starts_with("\r\n") ? 2 : 1;
  rest.remove_prefix(std::min(end + ending, rest.size()));
  return line;
}

}  // namespace

void append_event(std::string& out, const EventView& event) {
  ASSERT(is_one_line(event.event) && is_one_line(event.id) && event.id.find('\0') == std::string_view::npos);
  if (!event.event.empty()) out.append("event: ").append(event.event).append("\n");
  if (!event.id.empty()) out.append("id: ").append(event.id).append("\n");
  std::string_view rest = event.data;
  bool open_line = true;  // the text ends with a line break, or is empty: one more, empty line
  while (!rest.empty()) {
    const std::size_t before = rest.size();
    const std::string_view line = take_first_line(rest);
    out.append("data: ").append(line).append("\n");
    open_line = before > line.size();
  }
  if (open_line) out.append("data: \n");
  out.append("\n");
}

void append_comment(std::string& out, std::string_view text) {
  ASSERT(is_one_line(text));
  out.append(": ").append(text).append("\n\n");
}

base::Result<> Decoder::feed(std::string_view bytes, std::vector<Event>& out) {
  return feed(bytes, [&out](const Decoded& event) {
    out.push_back({.event = std::string(event.event),
                   .id = event.id ? std::optional<std::string>(*event.id) : std::nullopt,
                   .data = std::string(event.data)});
  });
}

base::Result<> Decoder::feed(std::string_view bytes, const OnEvent& on_event) {
  const auto too_large = [this]() -> base::Result<> {
    failed_ = true;
    return base::fail(base::ErrorCode::kPayloadTooLarge,
                      fmt::format("an event of the stream is larger than {} bytes", limits_.event_bytes_max));
  };
  if (failed_) return too_large();
  while (!bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const std::size_t end = line_end(bytes);
    const std::string_view piece = bytes.substr(0, end);
    if (partial_line_.size() + piece.size() > limits_.line_bytes_max) return too_large();
    if (end == bytes.size()) {
      partial_line_ += piece;
      return {};
    }
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    base::Result<> taken;
    if (partial_line_.empty()) {
      taken = take_line(piece, on_event);
    } else {
      partial_line_ += piece;
      taken = take_line(partial_line_, on_event);
      partial_line_.clear();
    }
    if (!taken) return too_large();
  }
  return {};
}

base::Result<> Decoder::take_line(std::string_view line, const OnEvent& on_event) {
  if (at_start_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  at_start_ = false;
  if (line.empty()) {
    dispatch(on_event);
    return {};
  }
  const std::size_t colon = line.find(':');
  if (colon == 0) return {};  // a comment
  if (colon == std::string_view::npos) return take_field(line, {});
  std::string_view value = line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  return take_field(line.substr(0, colon), value);
}

base::Result<> Decoder::take_field(std::string_view name, std::string_view value) {
  if (name == "data") {
    if (data_.size() + value.size() + 1 > limits_.event_bytes_max) {
      return base::fail(base::ErrorCode::kPayloadTooLarge, "an event of the stream is too large");
    }
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  } else if (name == "event") {
    event_ = value;
  } else if (name == "id") {
    if (value.find('\0') == std::string_view::npos) {
      id_ = value;
      has_id_ = true;
    }
  } else if (name == "retry") {
    std::int64_t ms = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), ms);
    if (error == std::errc{} && end == value.data() + value.size() && ms >= 0) retry_ms_ = ms;
  }
  return {};
}

void Decoder::dispatch(const OnEvent& on_event) {
  if (has_id_) last_event_id_ = id_;
  if (has_data_) {
    on_event({.event = event_.empty() ? std::string_view("message") : event_,
              .id = has_id_ ? std::optional<std::string_view>(id_) : std::nullopt,
              .data = data_});
  }
  event_.clear();
  id_.clear();
  data_.clear();
  if (data_.capacity() > kKeptBytes) std::string().swap(data_);
  has_data_ = has_id_ = false;
}

}  // namespace llorch::net::sse
