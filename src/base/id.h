#pragma once
// Strong string ids. A JobId cannot be passed where a WorkerId is meant.
#include <compare>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace llorch::base {

template <class Tag>
struct Id {
  std::string value;

  Id() = default;
  explicit Id(std::string v) : value(std::move(v)) {}
  bool empty() const { return value.empty(); }
  auto operator<=>(const Id&) const = default;
};

using JobId = Id<struct JobIdTag>;
using SessionId = Id<struct SessionIdTag>;
using PoolId = Id<struct PoolIdTag>;
using WorkerId = Id<struct WorkerIdTag>;

// What a caller's tracing system calls the request: W3C Trace Context. For logs and requests to other daemons; never a label of a
// metric, and not on disk.
struct TraceContext {
  std::string trace_id;  // 32 lower-case hex digits
  bool is_sampled = false;
  std::string parent_id{};  // 16 lower-case hex digits: the caller's span; empty: this daemon began the trace
  std::string state{};      // the list members of tracestate, at most 512 bytes; empty: none
};

// Follows a request through all daemons. Two are equal if their values are.
struct CorrelationId {
  std::string value;
  std::shared_ptr<const TraceContext> trace{};  // null: the caller sent none

  CorrelationId() = default;
  explicit CorrelationId(std::string v) : value(std::move(v)) {}
  bool empty() const { return value.empty(); }
  auto operator<=>(const CorrelationId& other) const { return value <=> other.value; }
  bool operator==(const CorrelationId& other) const { return value == other.value; }
};

// VALID-*: 1..256 characters of [A-Za-z0-9_-].
bool is_valid_identifier(std::string_view text, std::size_t length_max = 256);

class Entropy;
// RFC 4122 version 4, lower case.
std::string uuid_v4(Entropy& entropy);
bool is_uuid(std::string_view text);

}  // namespace llorch::base

template <class Tag>
struct std::hash<llorch::base::Id<Tag>> {
  std::size_t operator()(const llorch::base::Id<Tag>& id) const noexcept { return std::hash<std::string>{}(id.value); }
};
