#pragma once
// Who calls, and which routes are for whom. Values and pure rules, so no thread rule.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace llorch::net::http {

// What a caller is.
enum class Role : std::uint8_t {
  kReader,    // looks at pools and metrics; sees no job
  kTenant,    // submits jobs, and sees and ends its own
  kNode,      // a pool, or a worker that reports to its pool
  kOperator,  // whose machines these are
};
inline constexpr std::array kRoles{Role::kReader, Role::kTenant, Role::kNode, Role::kOperator};

// Whom a route is for. Every route declares one.
enum class Scope : std::uint8_t {
  kOpen,    // everybody, also without a token: what holds no fact of this service
  kPublic,  // everybody the server lets in
  kReader,
  kTenant,
  kNode,
  kOperator,
};
inline constexpr std::array kScopes{Scope::kOpen,   Scope::kPublic, Scope::kReader,
                                    Scope::kTenant, Scope::kNode,   Scope::kOperator};

std::string_view name_of(Role role);    // "operator"
std::string_view name_of(Scope scope);  // "operator"

// Whether a caller of `role` may use routes of `scope`.
bool permits(Scope scope, Role role);

struct Principal {
  Role role = Role::kReader;
  std::string name;      // of a tenant its id, of a node its pool's id; else empty
  std::string identity;  // for logs: "localhost", "token:<first 6 hex digits of the token's SHA-256>"
  std::string account;   // whose use counts together: the name, "token:<whole SHA-256>", "localhost"
  bool operator==(const Principal&) const = default;
};

}  // namespace llorch::net::http
