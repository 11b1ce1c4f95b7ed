// Answers over gRPC: no input breaks the reader of frames, or what reads the messages in them, and how the bytes are cut changes
// neither. The first byte is the cut.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/engines/engine.h"
#include "adapter/upstream/grpc.h"
#include "base/utf8.h"

using namespace llorch::adapter;

namespace {

constexpr std::size_t kMessageBytesMax = 512;

struct Read {
  std::vector<std::string> messages;
  bool failed = false;
  bool between = false;
  bool operator==(const Read&) const = default;
};

Read read(std::string_view bytes, std::size_t piece_bytes) {
  Read out;
  upstream::FrameReader reader(kMessageBytesMax);
  for (std::size_t at = 0; at < bytes.size() && !out.failed; at += piece_bytes) {
    const auto fed = reader.feed(bytes.substr(at, piece_bytes),
                                 [&](std::string_view message) { out.messages.emplace_back(message); });
    out.failed = !fed;
  }
  out.between = !out.failed && reader.is_between_messages();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Read whole = read(bytes, bytes.size());
  if (whole != read(bytes, 1u + data[0] % 32)) std::abort();

  std::string again;
  const engines::Engine& engine = *engines::engine_of("triton", "grpc://h:1");
  for (const std::string& message : whole.messages) {
    if (message.size() > kMessageBytesMax) std::abort();
    again += upstream::grpc_frame(message);
    const auto piece = engine.read(message);
    if (piece && piece->text && (piece->text->size() > message.size() || !llorch::base::is_valid_utf8(*piece->text))) {
      std::abort();
    }
    engines::EngineFacts facts;
    (void)engine.learn(0, message, {}, facts);
    (void)engine.learn(1, message, {}, facts);
    (void)engine.is_well(message);
  }
  if (whole.between && again != bytes) std::abort();
  return 0;
}
