// The SSE decoder: no input breaks it, and how the bytes are cut never changes the events. The first byte is the cut.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "net/sse/sse.h"

using llorch::net::sse::Decoder;
using llorch::net::sse::Event;

namespace {

struct Decoded {
  std::vector<Event> events;
  bool failed = false;
};

Decoded decode(std::string_view bytes, std::size_t piece_bytes) {
  Decoded decoded;
  Decoder decoder({.line_bytes_max = 256, .event_bytes_max = 512});
  for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
    if (!decoder.feed(bytes.substr(at, piece_bytes), decoded.events)) decoded.failed = true;
  }
  return decoded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Decoded whole = decode(bytes, bytes.size());
  const Decoded cut = decode(bytes, 1u + data[0] % 32);
  if (whole.failed != cut.failed || whole.events != cut.events) std::abort();

  std::string encoded;
  for (const Event& event : whole.events) {
    llorch::net::sse::append_event(encoded, {event.event, event.id.value_or(""), event.data});
  }
  const Decoded again = decode(encoded, encoded.size() + 1);
  if (again.events.size() != whole.events.size()) std::abort();
  for (std::size_t i = 0; i < whole.events.size(); ++i) {
    if (again.events[i].data != whole.events[i].data || again.events[i].event != whole.events[i].event) std::abort();
  }
  return 0;
}
