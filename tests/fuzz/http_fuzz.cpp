// The HTTP/1.1 parsers, fed in pieces as a socket would: no input breaks them, how the bytes are cut does not change
// the outcome, and no more is taken than offered. The first byte is the cut.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "net/h1/wire.h"

using namespace llorch::net::h1;

namespace {

constexpr ParserLimits kLimits{.header_bytes_max = 512, .body_bytes_max = 1024};

struct Outcome {
  bool done = false;
  bool failed = false;
};

template <class Parser>
Outcome feed(Parser& parser, std::string_view bytes, std::size_t piece_bytes) {
  std::string inbox;
  for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
    inbox += bytes.substr(at, piece_bytes);
    for (;;) {
      const auto step = parser.feed(inbox);
      if (!step) return {.failed = true};
      if (step->consumed > inbox.size()) std::abort();
      inbox.erase(0, step->consumed);
      if (step->status == ParseStatus::kDone) return {.done = true};
      if (step->status == ParseStatus::kNeedMore) break;
    }
    if (inbox.size() > kLimits.header_bytes_max + piece_bytes) std::abort();
  }
  return {};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t piece_bytes = 1u + data[0] % 32;

  static ChunkPool pool;
  RequestParser whole(kLimits, pool);
  RequestParser cut(kLimits, pool);
  const Outcome at_once = feed(whole, bytes, bytes.size());
  const Outcome in_pieces = feed(cut, bytes, piece_bytes);
  if (at_once.done != in_pieces.done) std::abort();
  if (at_once.done && (whole.body() != cut.body() || !(whole.headers() == cut.headers()))) std::abort();
  if (whole.body().size() > kLimits.body_bytes_max || cut.body().size() > kLimits.body_bytes_max) std::abort();

  ResponseParser response(kLimits);
  feed(response, bytes, piece_bytes);
  (void)std::exchange(response.body(), {});
  (void)response.finish();
  return 0;
}
