#pragma once
// Strong string ids. A JobId cannot be passed where a WorkerId is meant.
#include <compare>
#include <functional>
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
using CorrelationId = Id<struct CorrelationIdTag>;

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
