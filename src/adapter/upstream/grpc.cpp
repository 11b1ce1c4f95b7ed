#include "adapter/upstream/grpc.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace llorch::adapter::upstream {
namespace {

using base::ErrorCode;

// One byte says whether the message is compressed, four its length, the highest first.
constexpr std::size_t kPrefixBytes = 5;

constexpr std::array<GrpcStatus, 17> kStatuses{{{"OK", 200},
                                                {"CANCELLED", 503},  // by the engine: nobody here did
                                                {"UNKNOWN", 500},
                                                {"INVALID_ARGUMENT", 400},
                                                {"DEADLINE_EXCEEDED", 504},
                                                {"NOT_FOUND", 404},
                                                {"ALREADY_EXISTS", 400},
                                                {"PERMISSION_DENIED", 403},
                                                {"RESOURCE_EXHAUSTED", 429},
                                                {"FAILED_PRECONDITION", 400},
                                                {"ABORTED", 503},
                                                {"OUT_OF_RANGE", 400},
                                                {"UNIMPLEMENTED", 404},
                                                {"INTERNAL", 500},
                                                {"UNAVAILABLE", 503},
                                                {"DATA_LOSS", 500},
                                                {"UNAUTHENTICATED", 401}}};

std::size_t length_in(std::string_view prefix) {
  std::size_t length = 0;
  for (std::size_t i = 1; i < kPrefixBytes; ++i) length = length << 8 | static_cast<unsigned char>(prefix[i]);
  return length;
}

}  // namespace

std::string grpc_frame(std::string_view message) {
  const auto length = static_cast<std::uint32_t>(message.size());
  std::string out{'\0'};
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(length >> shift);
  return out.append(message);
}

base::Result<> FrameReader::feed(std::string_view bytes, const std::function<void(std::string_view message)>& take) {
  const auto fail = [this](ErrorCode code, std::string_view why) {
    failed_ = true;
    return base::fail(code, std::string(why));
  };
  if (failed_) return fail(ErrorCode::kIoError, "an earlier message could not be read");
  const auto fill = [&](std::size_t until) {
    const std::size_t count = std::min(bytes.size(), until - held_.size());
    held_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    return held_.size() == until;
  };
  while (!bytes.empty()) {
    if (held_.size() < kPrefixBytes && !fill(kPrefixBytes)) break;
    if (held_[0] != 0) return fail(ErrorCode::kIoError, "a message of the engine's answer is compressed, or none");
    const std::size_t length = length_in(held_);
    if (length > message_bytes_max_) {
      return fail(ErrorCode::kPayloadTooLarge, "a message of the engine's answer is too long");
    }
    if (!fill(kPrefixBytes + length)) break;
    take(std::string_view(held_).substr(kPrefixBytes));
    held_.clear();
  }
  return {};
}

GrpcStatus grpc_status(int code) {
  const auto index = static_cast<std::size_t>(code);
  return index < kStatuses.size() ? kStatuses[index] : kStatuses[2];
}

base::Result<Reply> grpc_reply(Reply reply) {
  if (reply.head.status != 200) return reply;
  if (!reply.grpc_status) return base::fail(ErrorCode::kIoError, "the engine's answer has no gRPC status");
  const std::string bytes = std::exchange(reply.body, {});
  if (*reply.grpc_status != 0) {
    reply.head.status = grpc_status(*reply.grpc_status).http_status;
    return reply;
  }
  int messages = 0;
  FrameReader reader(bytes.size());
  TRY(reader.feed(bytes, [&](std::string_view message) {
    reply.body = message;
    ++messages;
  }));
  if (messages == 1 && reader.is_between_messages()) return reply;
  return base::fail(ErrorCode::kIoError, "the engine's answer is not one gRPC message");
}

}  // namespace llorch::adapter::upstream
