#include "bench/serve/load/response.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "bench/serve/io/sockets.h"

namespace llorch::bench {
namespace {

constexpr std::string_view kBlankLine = "\r\n\r\n";

// The value of the first `name` in a head written by orchestratord or the mock.
std::string_view field(std::string_view head, std::string_view name) {
  const std::size_t at = head.find(name);
  if (at == std::string_view::npos) return {};
  const std::size_t begin = at + name.size();
  return head.substr(begin, head.find('\r', begin) - begin);
}

template <class Number>
Number number(std::string_view text, int base, const char* what) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) fail(fmt::format("{} is no number: {}", what, text));
  return value;
}

// The rest of the line that starts with `name`.
std::string_view take_line(std::string_view& frame, std::string_view name) {
  if (!frame.starts_with(name)) return {};
  const std::size_t end = std::min(frame.find('\n'), frame.size());
  const std::string_view value = frame.substr(name.size(), end - name.size());
  frame.remove_prefix(std::min(end + 1, frame.size()));
  return value;
}

std::string id_text(std::int64_t seq, const base::Sha256& hash) {
  return fmt::format("{}-{}", seq, base::to_hex(hash.digest()).substr(0, 16));
}

}  // namespace

std::string_view ResponseReader::feed(std::string_view bytes, const OnBody& on_body) {
  while (!bytes.empty() && state_ != State::kDone) {
    switch (state_) {
      case State::kHead: {
        const std::size_t before = line_.size();
        line_ += bytes;
        const std::size_t end = line_.find(kBlankLine);
        if (end == std::string::npos) return {};
        bytes.remove_prefix(end + kBlankLine.size() - before);
        line_.resize(end + 2);
        take_head();
        break;
      }
      case State::kLength:
      case State::kChunk: {
        const std::size_t n = std::min(left_, bytes.size());
        on_body(bytes.substr(0, n));
        bytes.remove_prefix(n);
        left_ -= n;
        if (left_ == 0) state_ = state_ == State::kLength ? State::kDone : State::kChunkEnd;
        break;
      }
      case State::kChunkHead:
      case State::kChunkEnd:
      case State::kLast: {
        const std::size_t n = std::min(bytes.find('\n'), bytes.size() - 1) + 1;
        line_ += bytes.substr(0, n);
        bytes.remove_prefix(n);
        if (line_.back() == '\n') take_chunk_head();
        break;
      }
      case State::kDone: break;
    }
  }
  return bytes;
}

void ResponseReader::take_head() {
  if (!line_.starts_with("HTTP/1.1 ")) fail("an answer is not HTTP/1.1");
  status_ = number<int>(std::string_view(line_).substr(9, 3), 10, "the status");
  if (!field(line_, "\r\nContent-Encoding: ").empty()) fail("an answer is compressed");
  const std::string_view length = field(line_, "\r\nContent-Length: ");
  if (!length.empty()) {
    left_ = number<std::size_t>(length, 10, "Content-Length");
    state_ = left_ == 0 ? State::kDone : State::kLength;
  } else if (field(line_, "\r\nTransfer-Encoding: ") == "chunked") {
    state_ = State::kChunkHead;
  } else {
    fail("an answer has neither length nor chunks");
  }
  line_.clear();
}

void ResponseReader::take_chunk_head() {
  const std::string_view text = std::string_view(line_).substr(0, line_.find('\r'));
  if (state_ == State::kChunkHead) {
    left_ = number<std::size_t>(text, 16, "a chunk's size");
    state_ = left_ == 0 ? State::kLast : State::kChunk;
  } else {
    if (!text.empty()) fail("a chunk does not end where it should");
    state_ = state_ == State::kLast ? State::kDone : State::kChunkHead;
  }
  line_.clear();
}

void StreamChecker::feed(std::string_view body) {
  if (!partial_.empty()) {
    partial_ += body;
    body = partial_;
  }
  std::size_t end = 0;
  while ((end = body.find("\n\n")) != std::string_view::npos) {
    take(body.substr(0, end + 1));
    body.remove_prefix(end + 2);
  }
  partial_ = std::string(body);
}

void StreamChecker::take(std::string_view frame) {
  if (frame.starts_with(':')) return;  // keep-alive
  const std::string_view event = take_line(frame, "event: ");
  const std::string_view id = take_line(frame, "id: ");
  const std::string_view data = take_line(frame, "data: ");
  seen_ = true;
  if (ended_) fail(fmt::format("an event '{}' came after the terminal one", event));
  if (event == "token") return take_token(id, data);
  if (event == "queued" || event == "metrics") return;
  if (event == "started") {
    if (started_) fail("a stream started twice");
    started_ = true;
    return;
  }
  if (event != "end") fail(fmt::format("a stream ended in '{}': {}", event, data));
  if (tokens_ != options_.tokens) fail(fmt::format("a stream ended after {} of {} tokens", tokens_, options_.tokens));
  if (options_.checks_hashes && id != id_text(2 + tokens_, hash_)) fail(fmt::format("the last id {} is wrong", id));
  ended_ = true;
}

void StreamChecker::take_token(std::string_view id, std::string_view data) {
  const auto bad = [&](const char* why) { fail(fmt::format("token {}: {}; id {}, data {}", tokens_, why, id, data)); };
  constexpr std::string_view kText = "{\"t\":\"", kIndex = "\",\"i\":";
  const std::size_t text_end = data.find(kIndex);
  if (!started_ || !data.starts_with(kText) || text_end == std::string_view::npos || !data.ends_with('}'))
    bad("malformed");
  const std::string_view text = data.substr(kText.size(), text_end - kText.size());
  const std::size_t index_begin = text_end + kIndex.size();
  const std::size_t index_end = data.find_first_of(",}", index_begin);  // a worker's token goes on with its id
  const auto index = number<std::int64_t>(data.substr(index_begin, index_end - index_begin), 10, "a token's index");
  if (index != tokens_) bad("out of order");
  if (options_.has_ids) {
    const std::size_t dash = id.find('-');
    if (dash == std::string_view::npos || number<std::int64_t>(id.substr(0, dash), 10, "an id") != index + 2)
      bad("wrong id");
  }
  if (options_.checks_hashes) {
    hash_.update_u32_le(static_cast<std::uint32_t>(index))
        .update_u32_le(static_cast<std::uint32_t>(text.size()))
        .update(text);
    if (id != id_text(index + 2, hash_)) bad("wrong hash");
  }
  ++tokens_;
  sink_->on_token(options_.has_stamps ? number<std::int64_t>(text, 16, "a stamp") : 0);
}

}  // namespace llorch::bench
