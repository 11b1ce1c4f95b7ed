#pragma once
// HTTP/1.1 responses and their events, read as cheaply as a checking reader can. Pure. One object, one thread.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/sha256.h"

namespace llorch::bench {

// One response: status, body pieces, end. Knows lengths and chunks, which is what orchestratord sends.
class ResponseReader {
 public:
  using OnBody = std::function<void(std::string_view)>;
  // Takes bytes up to the end of the response at most; returns what is left. Exits when it is no HTTP.
  std::string_view feed(std::string_view bytes, const OnBody& on_body);
  bool done() const { return state_ == State::kDone; }
  int status() const { return status_; }
  void reset() { *this = {}; }

 private:
  enum class State : std::uint8_t { kHead, kLength, kChunkHead, kChunk, kChunkEnd, kLast, kDone };
  void take_head();
  void take_chunk_head();

  State state_ = State::kHead;
  int status_ = 0;
  std::size_t left_ = 0;  // of the body or chunk
  std::string line_;      // unfinished head or chunk head
};

// The events of one stream: checks that every number follows the last one, that every id carries the right prefix hash
// when `checks_hashes`, and that there is exactly one terminal event, the last. Exits when not.
class StreamChecker {
 public:
  struct Options {
    std::int64_t tokens = 0;  // how many must come
    bool checks_hashes = false;
    bool has_ids = true;  // false: straight from a worker
    bool has_stamps = false;
  };
  struct Sink {
    virtual ~Sink() = default;
    virtual void on_token(std::int64_t sent_ns) = 0;  // 0 without stamps
  };
  StreamChecker(Options options, Sink& sink) : options_(options), sink_(&sink) {}

  void feed(std::string_view body);
  bool seen() const { return seen_; }  // any event
  bool ended() const { return ended_; }
  std::int64_t tokens() const { return tokens_; }

 private:
  void take(std::string_view frame);
  void take_token(std::string_view id, std::string_view data);

  Options options_;
  Sink* sink_;
  std::string partial_;
  std::int64_t tokens_ = 0;
  base::Sha256 hash_;
  bool seen_ = false;
  bool started_ = false;
  bool ended_ = false;
};

}  // namespace llorch::bench
